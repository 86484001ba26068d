/* main.c - `forebay`: picks the subcommand. Exit codes: 0 done, 1 failed, 2 wrong usage. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "forebay/forebay.h"
#include "runtime/suggest.h"

static void print_commands(FILE *out, const char *prefix, const char *about, const fby_command_t *commands)
{
    fprintf(out, "Usage: %s COMMAND [options]\n\n%s\n\nCommands:\n", prefix, about);
    for (const fby_command_t *command = commands; command->name != NULL; command++) {
        fprintf(out, "  %-10s %s\n", command->name, command->summary);
    }
    fprintf(out, "\n`%s COMMAND --help` says more, with examples. Exit codes: 0 done, 1 failed, 2 wrong usage.\n",
            prefix);
}

static int unknown_command(const char *prefix, const fby_command_t *commands, const char *name)
{
    fby_suggest_t suggest;
    fby_suggest_init(&suggest, name);
    fprintf(stderr, "%s: unknown command \"%s\"", prefix, name);
    for (const fby_command_t *command = commands; command->name != NULL; command++) {
        fby_suggest_offer(&suggest, command->name);
    }
    if (suggest.best != NULL) {
        fprintf(stderr, "; did you mean %s?\n", suggest.best);
        return FBY_EXIT_USAGE;
    }
    for (const fby_command_t *command = commands; command->name != NULL; command++) {
        fprintf(stderr, "%s%s", command == commands ? "; accepted: " : ", ", command->name);
    }
    fputc('\n', stderr);
    return FBY_EXIT_USAGE;
}

int fby_commands_run(const char *prefix, const char *about, const fby_command_t *commands, int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : NULL;
    if (name == NULL) {
        print_commands(stderr, prefix, about, commands);
        return FBY_EXIT_USAGE;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_commands(stdout, prefix, about, commands);
        return FBY_EXIT_OK;
    }
    for (const fby_command_t *command = commands; command->name != NULL; command++) {
        if (strcmp(command->name, name) == 0) {
            return command->run(argc - 1, argv + 1);
        }
    }
    return unknown_command(prefix, commands, name);
}

/* A full disk or a closed pipe behind stdout is a failure, whatever the command thought. */
static int finish(int code)
{
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "forebay: the output could not be written: %s\n", strerror(errno));
        return FBY_EXIT_FAILED;
    }
    return code;
}

int main(int argc, char **argv)
{
    static const fby_command_t commands[] = {
#define FBY_X(name, function, summary) {name, function, summary},
        FBY_COMMAND_MAP(FBY_X)
#undef FBY_X
            {NULL, NULL, NULL},
    };
    static const char about[] =
        "Forebay moves a request's KV cache from a remote store into CPU memory while the request waits.";
    signal(SIGPIPE, SIG_IGN);
    if (argc > 1 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0)) {
        printf("forebay %s\n", fby_version());
        return finish(FBY_EXIT_OK);
    }
    return finish(fby_commands_run("forebay", about, commands, argc, argv));
}
