/*
 * args.h - options of a command as one table: parsing, help text and messages come from it.
 *
 * Every command has --help by itself. A wrong option names the option, the value and what is accepted on stderr.
 */
#ifndef FBY_CLI_ARGS_H
#define FBY_CLI_ARGS_H

#include "base/base.h"

typedef enum fby_arg_type {
    FBY_ARG_FLAG,       /* bool */
    FBY_ARG_TEXT,       /* const char * */
    FBY_ARG_TEXTS,      /* fby_texts_t; may be repeated */
    FBY_ARG_WHOLE,      /* uint64_t, low..high */
    FBY_ARG_WHOLE_LIST, /* fby_wholes_t: comma-separated, low..high each */
    FBY_ARG_SIZE,       /* uint64_t bytes, low..high */
    FBY_ARG_REAL,       /* double, low..high */
    FBY_ARG_SECONDS,    /* uint64_t ns */
    FBY_ARG_WORD,       /* uint32_t: index into words */
    FBY_ARG_WORD_LIST,  /* uint32_t: a bit per word; comma-separated */
} fby_arg_type_t;

enum { FBY_ARG_LIST_MOST = 64 };

typedef struct fby_texts {
    const char *item[FBY_ARG_LIST_MOST]; /* point into argv */
    size_t count;
} fby_texts_t;

typedef struct fby_wholes {
    uint64_t item[FBY_ARG_LIST_MOST];
    size_t count;
} fby_wholes_t;

typedef struct fby_arg {
    const char *name; /* without the dashes */
    fby_arg_type_t type;
    void *target;           /* of the type's kind; keeps its value when the option is not given */
    const char *value_name; /* "N", "FILE"; NULL for a flag */
    const char *help;
    uint64_t low, high;       /* whole numbers, sizes, reals */
    const char *const *words; /* NULL-terminated */
} fby_arg_t;

typedef struct fby_usage {
    const char *command;    /* "forebay trace info" */
    const char *positional; /* "FILE", "[FILE]", "" */
    const char *about;
    const char *examples; /* lines, each indented by two spaces */
    const fby_arg_t *args;
    size_t arg_count;
    size_t min_positional, max_positional;
} fby_usage_t;

enum { FBY_ARGS_GO = -1 };

/*
 * Reads argv[1..]. FBY_ARGS_GO: go on; *positional is the first of *count arguments that are no options (inside argv,
 * which is reordered). Otherwise the exit code to return: help was printed, or a message.
 */
int fby_args_parse(const fby_usage_t *usage, int argc, char **argv, char ***positional, size_t *count);
/* "COMMAND: MESSAGE" and where to find help, on stderr. Returns the exit code for wrong usage. */
int fby_usage_fault(const fby_usage_t *usage, const char *format, ...) FBY_PRINTF(2, 3);

#endif
