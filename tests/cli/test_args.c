/* Every type of option: what it takes, and that a wrong one leaves its target alone. */
#include <unistd.h>

#include "cli/args.h"
#include "cli/commands.h"
#include "unit.h"

typedef struct targets {
    bool flag;
    const char *text;
    fby_texts_t texts;
    uint64_t whole, size, ns;
    fby_wholes_t wholes;
    double real;
    uint32_t word, words;
} targets_t;

static const char *const colours[] = {"red", "green", "blue", NULL};

enum { MOST_WORDS = FBY_ARG_LIST_MOST + 8 };

/* What positional arguments point into. */
static char *argv[MOST_WORDS];

/* Parses words[1..] up to a NULL. stderr is away meanwhile: what is said is the stories' business. */
static int parse(targets_t *targets, const char *const *words, char ***positional, size_t *count)
{
    const fby_arg_t args[] = {
        {"flag", FBY_ARG_FLAG, &targets->flag, NULL, "", 0, 0, NULL},
        {"text", FBY_ARG_TEXT, &targets->text, "T", "", 0, 0, NULL},
        {"each", FBY_ARG_TEXTS, &targets->texts, "T", "", 0, 0, NULL},
        {"whole", FBY_ARG_WHOLE, &targets->whole, "N", "", 2, 9, NULL},
        {"wholes", FBY_ARG_WHOLE_LIST, &targets->wholes, "N,...", "", 1, 100, NULL},
        {"size", FBY_ARG_SIZE, &targets->size, "S", "", 1, 1 << 20, NULL},
        {"real", FBY_ARG_REAL, &targets->real, "R", "", 1, 4, NULL},
        {"seconds", FBY_ARG_SECONDS, &targets->ns, "S", "", 0, 0, NULL},
        {"colour", FBY_ARG_WORD, &targets->word, "C", "", 0, 0, colours},
        {"colours", FBY_ARG_WORD_LIST, &targets->words, "C,...", "", 0, 0, colours},
    };
    const fby_usage_t usage = {"test", "[A] [B]", "", "", args, FBY_ARRAY_LEN(args), 0, 2};
    int argc = 0, saved = dup(STDERR_FILENO);
    for (; words[argc] != NULL; argc++) {
        argv[argc] = (char *)(uintptr_t)words[argc];
    }
    argv[argc] = NULL;
    assert_non_null(freopen("/dev/null", "w", stderr));
    int code = fby_args_parse(&usage, argc, argv, positional, count);
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    return code;
}

static void every_type_is_read(void **state)
{
    targets_t t = {0};
    char **positional;
    size_t count;
    const char *const words[] = {
        "test",           "a",        "--flag",   "--text=x y", "--each",   "1",    "--each", "2",
        "--whole",        "9",        "--wholes", "3,1,100",    "--size",   "1KiB", "--real", "2.5",
        "--seconds=0.25", "--colour", "green",    "--colours",  "blue,red", "--",   "--b",    NULL};
    assert_int_equal(parse(&t, words, &positional, &count), FBY_ARGS_GO);
    assert_true(t.flag);
    assert_string_equal(t.text, "x y");
    assert_int_equal(t.texts.count, 2);
    assert_string_equal(t.texts.item[1], "2");
    assert_int_equal(t.whole, 9);
    assert_int_equal(t.wholes.count, 3);
    assert_int_equal(t.wholes.item[2], 100);
    assert_int_equal(t.size, 1024);
    assert_true(t.real == 2.5);
    assert_int_equal(t.ns, 250000000);
    assert_int_equal(t.word, 1);
    assert_int_equal(t.words, 5);
    assert_int_equal(count, 2);
    assert_string_equal(positional[0], "a");
    assert_string_equal(positional[1], "--b");
}

static void what_is_not_given_keeps_its_value(void **state)
{
    targets_t t = {.whole = 5, .real = 3, .word = 2};
    char **positional;
    size_t count;
    const char *const words[] = {"test", NULL};
    assert_int_equal(parse(&t, words, &positional, &count), FBY_ARGS_GO);
    assert_int_equal(count, 0);
    assert_int_equal(t.whole, 5);
    assert_int_equal(t.word, 2);
}

static void wrong_values_are_refused_and_change_nothing(void **state)
{
    static const char *const wrong[] = {
        "--whole=1",       "--whole=10",   "--whole=-2",   "--whole=x",   "--whole=",
        "--wholes=1,,2",   "--wholes=101", "--wholes=",    "--size=2MiB", "--size=1.5KiB",
        "--size=1KB",      "--real=nan",   "--real=0.5",   "--real=inf",  "--real=5",
        "--real=",         "--seconds=-1", "--seconds=1s", "--colour=",   "--colour=re",
        "--colours=red,x", "--colours=",   "--flag=1",     "--nosuch",    "-x"};
    for (size_t i = 0; i < FBY_ARRAY_LEN(wrong); i++) {
        targets_t t = {0}, untouched = {0};
        char **positional;
        size_t count;
        const char *const words[] = {"test", wrong[i], NULL};
        if (parse(&t, words, &positional, &count) != FBY_EXIT_USAGE ||
            memcmp(&t.whole, &untouched.whole, sizeof(t.whole)) != 0 || t.size != 0 || t.ns != 0 ||
            t.wholes.count != 0 || t.real != 0 || t.word != 0 || t.words != 0 || t.flag) {
            fail_msg("%s was taken", wrong[i]);
        }
    }
}

static void too_many_of_a_repeated_option_are_refused(void **state)
{
    targets_t t = {0};
    const char *words[FBY_ARG_LIST_MOST + 3] = {"test"};
    char **positional;
    size_t count;
    for (size_t i = 1; i <= FBY_ARG_LIST_MOST + 1; i++) {
        words[i] = "--each=x";
    }
    assert_int_equal(parse(&t, words, &positional, &count), FBY_EXIT_USAGE);
}

int main(void)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test(every_type_is_read),
        cmocka_unit_test(what_is_not_given_keeps_its_value),
        cmocka_unit_test(wrong_values_are_refused_and_change_nothing),
        cmocka_unit_test(too_many_of_a_repeated_option_are_refused),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}
