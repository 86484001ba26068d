#include "cli/args.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/commands.h"
#include "runtime/config_value.h"
#include "runtime/suggest.h"

enum { MOST_ARGS = 40, HELP_COLUMN = 28 };

int fby_usage_fault(const fby_usage_t *usage, const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "%s: ", usage->command);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\nTry `%s --help`.\n", usage->command);
    return FBY_EXIT_USAGE;
}

/* ---- Help -------------------------------------------------------------------------------------------------------- */

static void print_option(const char *name, const char *value_name, const char *help)
{
    char left[64];
    snprintf(left, sizeof(left), "--%s%s%s", name, value_name != NULL ? " " : "", value_name != NULL ? value_name : "");
    if (strlen(left) > HELP_COLUMN - 4) {
        printf("  %s\n  %-*s%s\n", left, HELP_COLUMN - 2, "", help);
    } else {
        printf("  %-*s%s\n", HELP_COLUMN - 2, left, help);
    }
}

static void print_help(const fby_usage_t *usage)
{
    printf("Usage: %s%s%s [options]\n\n%s\n\nOptions:\n", usage->command, *usage->positional != '\0' ? " " : "",
           usage->positional, usage->about);
    for (size_t i = 0; i < usage->arg_count; i++) {
        print_option(usage->args[i].name, usage->args[i].value_name, usage->args[i].help);
    }
    print_option("help", NULL, "prints this text");
    printf("\nExamples:\n%s", usage->examples);
}

/* ---- Values ------------------------------------------------------------------------------------------------------ */

static void accepted_words(const fby_arg_t *arg, char *out, size_t capacity)
{
    bool is_list = arg->type == FBY_ARG_WORD_LIST;
    size_t length = (size_t)snprintf(out, capacity, "%s ", is_list ? "some, separated by commas, of" : "one of");
    for (size_t i = 0; arg->words[i] != NULL && length < capacity; i++) {
        length += (size_t)snprintf(out + length, capacity - length, "%s%s", i > 0 ? ", " : "", arg->words[i]);
    }
}

static void accepted(const fby_arg_t *arg, char *out, size_t capacity)
{
    char low[32], high[32];
    fby_format_size(arg->low, low, sizeof(low));
    fby_format_size(arg->high, high, sizeof(high));
    switch (arg->type) {
    case FBY_ARG_WHOLE:
        snprintf(out, capacity, "a whole number from %" PRIu64 " to %" PRIu64, arg->low, arg->high);
        break;
    case FBY_ARG_WHOLE_LIST:
        snprintf(out, capacity, "1 to %d whole numbers from %" PRIu64 " to %" PRIu64 ", separated by commas",
                 FBY_ARG_LIST_MOST, arg->low, arg->high);
        break;
    case FBY_ARG_SIZE:
        snprintf(out, capacity, "a size from %s to %s, such as 512MiB", low, high);
        break;
    case FBY_ARG_REAL:
        snprintf(out, capacity, "a number from %" PRIu64 " to %" PRIu64, arg->low, arg->high);
        break;
    case FBY_ARG_SECONDS:
        snprintf(out, capacity, "seconds from 0 to 1e9");
        break;
    case FBY_ARG_WORD:
    case FBY_ARG_WORD_LIST:
        accepted_words(arg, out, capacity);
        break;
    default:
        snprintf(out, capacity, "at most %d values", FBY_ARG_LIST_MOST);
        break;
    }
}

static bool read_word(const fby_arg_t *arg, const char *text, uint32_t *index, char *why)
{
    for (uint32_t i = 0; arg->words[i] != NULL; i++) {
        if (strcmp(arg->words[i], text) == 0) {
            *index = i;
            return true;
        }
    }
    snprintf(why, FBY_WHY_BYTES, "is not known");
    return false;
}

static bool read_word_list(const fby_arg_t *arg, const char *text, char *why)
{
    char copy[256], *rest = copy, *one;
    uint32_t bits = 0, index = 0;
    snprintf(copy, sizeof(copy), "%s", text);
    while ((one = strsep(&rest, ",")) != NULL) {
        if (!read_word(arg, one, &index, why)) {
            return false;
        }
        bits |= UINT32_C(1) << index;
    }
    *(uint32_t *)arg->target = bits;
    return true;
}

static bool read_wholes(const fby_arg_t *arg, const char *text, char *why)
{
    char copy[FBY_ARG_LIST_MOST * 24], *rest = copy, *one;
    fby_wholes_t list = {.count = 0};
    snprintf(copy, sizeof(copy), "%s", text);
    while ((one = strsep(&rest, ",")) != NULL) {
        if (list.count == FBY_ARG_LIST_MOST) {
            snprintf(why, FBY_WHY_BYTES, "has too many numbers");
            return false;
        }
        if (!fby_read_whole(one, arg->low, arg->high, &list.item[list.count++], why)) {
            return false;
        }
    }
    *(fby_wholes_t *)arg->target = list;
    return true;
}

static bool read_real(const fby_arg_t *arg, const char *text, char *why)
{
    double number;
    if (!fby_read_real(text, &number, why)) {
        return false;
    }
    if (number < (double)arg->low || number > (double)arg->high) {
        snprintf(why, FBY_WHY_BYTES, "is too %s", number < (double)arg->low ? "small" : "large");
        return false;
    }
    *(double *)arg->target = number;
    return true;
}

static bool read_texts(const fby_arg_t *arg, const char *text, char *why)
{
    fby_texts_t *list = arg->target;
    if (list->count == FBY_ARG_LIST_MOST) {
        snprintf(why, FBY_WHY_BYTES, "is one value too many");
        return false;
    }
    list->item[list->count++] = text;
    return true;
}

static bool read_value(const fby_arg_t *arg, const char *text, char *why)
{
    switch (arg->type) {
    case FBY_ARG_FLAG:
        *(bool *)arg->target = true;
        return true;
    case FBY_ARG_TEXT:
        *(const char **)arg->target = text;
        return true;
    case FBY_ARG_TEXTS:
        return read_texts(arg, text, why);
    case FBY_ARG_WHOLE:
        return fby_read_whole(text, arg->low, arg->high, arg->target, why);
    case FBY_ARG_WHOLE_LIST:
        return read_wholes(arg, text, why);
    case FBY_ARG_SIZE:
        return fby_read_size(text, arg->low, arg->high, arg->target, why);
    case FBY_ARG_REAL:
        return read_real(arg, text, why);
    case FBY_ARG_SECONDS:
        return fby_read_seconds(text, arg->target, why);
    case FBY_ARG_WORD:
        return read_word(arg, text, arg->target, why);
    case FBY_ARG_WORD_LIST:
        return read_word_list(arg, text, why);
    }
    return false;
}

/* ---- Parsing ----------------------------------------------------------------------------------------------------- */

static int unknown_option(const fby_usage_t *usage, const char *option)
{
    char name[64];
    fby_suggest_t suggest;
    int length = (int)strcspn(option, "=");
    snprintf(name, sizeof(name), "%.*s", length - (int)strspn(option, "-"), option + strspn(option, "-"));
    fby_suggest_init(&suggest, name);
    for (size_t i = 0; i < usage->arg_count; i++) {
        fby_suggest_offer(&suggest, usage->args[i].name);
    }
    return suggest.best != NULL
               ? fby_usage_fault(usage, "unknown option %.*s; did you mean --%s?", length, option, suggest.best)
               : fby_usage_fault(usage, "unknown option %.*s", length, option);
}

static int take_value(const fby_usage_t *usage, const fby_arg_t *arg, const char *text)
{
    char why[FBY_WHY_BYTES] = "", quoted[96], accepts[256];
    if (read_value(arg, text, why)) {
        return FBY_ARGS_GO;
    }
    accepted(arg, accepts, sizeof(accepts));
    return fby_usage_fault(usage, "--%s: %s %s; accepted: %s", arg->name, fby_log_quote(quoted, sizeof(quoted), text),
                           why, accepts);
}

static void fill_options(const fby_usage_t *usage, struct option options[MOST_ARGS + 2])
{
    for (size_t i = 0; i < usage->arg_count; i++) {
        const fby_arg_t *arg = &usage->args[i];
        options[i] = (struct option){arg->name, arg->type == FBY_ARG_FLAG ? no_argument : required_argument, NULL,
                                     (int)(256 + i)};
    }
    options[usage->arg_count] = (struct option){"help", no_argument, NULL, 'h'};
    options[usage->arg_count + 1] = (struct option){0};
}

/* One answer of getopt_long. FBY_ARGS_GO or an exit code. */
static int take_option(const fby_usage_t *usage, char **argv, int answer)
{
    if (answer == 'h') {
        print_help(usage);
        return FBY_EXIT_OK;
    }
    if (answer >= 256) {
        const fby_arg_t *arg = &usage->args[answer - 256];
        return take_value(usage, arg, optarg);
    }
    if (answer == ':') {
        return fby_usage_fault(usage, "%s needs a value", argv[optind - 1]);
    }
    bool is_flag_with_value = optopt >= 256 || optopt == 'h';
    return is_flag_with_value ? fby_usage_fault(usage, "%s takes no value", argv[optind - 1])
                              : unknown_option(usage, argv[optind - 1]);
}

int fby_args_parse(const fby_usage_t *usage, int argc, char **argv, char ***positional, size_t *count)
{
    struct option options[MOST_ARGS + 2];
    int answer, code;
    if (usage->arg_count > MOST_ARGS) {
        return FBY_EXIT_FAILED;
    }
    fill_options(usage, options);
    opterr = 0;
    optind = 0; /* glibc: forgets what an earlier parse left */
    while ((answer = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        code = take_option(usage, argv, answer);
        if (code != FBY_ARGS_GO) {
            return code;
        }
    }
    *positional = argv + optind;
    *count = (size_t)(argc - optind);
    if (*count < usage->min_positional) {
        return fby_usage_fault(usage, "an argument is missing; accepted: %s", usage->positional);
    }
    if (*count > usage->max_positional) {
        return fby_usage_fault(usage, "\"%s\" is one argument too many; accepted: %s",
                               (*positional)[usage->max_positional],
                               *usage->positional != '\0' ? usage->positional : "options only");
    }
    return FBY_ARGS_GO;
}
