#include "cli/table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void fby_table_init(fby_table_t *table, size_t columns, const char *const *titles, const bool *right)
{
    *table = (fby_table_t){.titles = titles, .right = right, .columns = FBY_MIN(columns, (size_t)FBY_TABLE_COLUMNS)};
}

void fby_table_cell(fby_table_t *table, const char *format, ...)
{
    if (table->count == table->capacity) {
        size_t capacity = table->capacity * 2 + 64;
        char **grown = realloc(table->cells, capacity * sizeof(*grown));
        table->failed = table->failed || grown == NULL;
        table->cells = grown != NULL ? grown : table->cells;
        table->capacity = grown != NULL ? capacity : table->capacity;
    }
    if (table->failed) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&table->cells[table->count], format, arguments);
    va_end(arguments);
    table->failed = length < 0;
    table->count += length >= 0;
}

/* Characters, not bytes: continuation bytes of UTF-8 take no room. */
static size_t width_of(const char *text)
{
    size_t width = 0;
    for (; *text != '\0'; text++) {
        width += ((unsigned char)*text & 0xC0) != 0x80;
    }
    return width;
}

static void print_cell(FILE *out, const char *text, size_t width, bool right, bool is_last)
{
    int pad = (int)(width - width_of(text));
    if (right) {
        fprintf(out, "%*s%s", pad, "", text);
    } else {
        fprintf(out, "%s%*s", text, is_last ? 0 : pad, "");
    }
    fputs(is_last ? "\n" : "  ", out);
}

void fby_table_print(const fby_table_t *table, FILE *out)
{
    size_t width[FBY_TABLE_COLUMNS], columns = table->columns;
    if (columns == 0) {
        return;
    }
    for (size_t c = 0; c < columns; c++) {
        width[c] = width_of(table->titles[c]);
    }
    for (size_t i = 0; i < table->count; i++) {
        width[i % columns] = FBY_MAX(width[i % columns], width_of(table->cells[i]));
    }
    for (size_t c = 0; c < columns; c++) {
        print_cell(out, table->titles[c], width[c], table->right[c], c + 1 == columns);
    }
    for (size_t i = 0; i < table->count; i++) {
        size_t c = i % columns;
        print_cell(out, table->cells[i], width[c], table->right[c], c + 1 == columns || i + 1 == table->count);
    }
}

void fby_table_free(fby_table_t *table)
{
    for (size_t i = 0; i < table->count; i++) {
        free(table->cells[i]);
    }
    free(table->cells);
    *table = (fby_table_t){0};
}
