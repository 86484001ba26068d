/* table.h - aligned tables on a stream. Cells are copied; columns are as wide as their widest cell. */
#ifndef FBY_CLI_TABLE_H
#define FBY_CLI_TABLE_H

#include <stdio.h>

#include "base/base.h"

enum { FBY_TABLE_COLUMNS = 24 };

typedef struct fby_table {
    const char *const *titles;
    const bool *right; /* per column: aligned to the right */
    size_t columns;
    char **cells; /* rows x columns */
    size_t count, capacity;
    bool failed; /* out of memory once: printed as far as it got */
} fby_table_t;

/* titles and right stay valid until the table is freed. At most FBY_TABLE_COLUMNS columns. */
void fby_table_init(fby_table_t *table, size_t columns, const char *const *titles, const bool *right);
/* The next cell, left to right, row by row. */
void fby_table_cell(fby_table_t *table, const char *format, ...) FBY_PRINTF(2, 3);
void fby_table_print(const fby_table_t *table, FILE *out);
void fby_table_free(fby_table_t *table);

#endif
