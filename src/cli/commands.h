/*
 * commands.h - the table of subcommands. A new command is one row here and one cmd_NAME.c.
 *
 * X(name, function, summary). A function gets argv from its own name on and returns one of the exit codes.
 */
#ifndef FBY_CLI_COMMANDS_H
#define FBY_CLI_COMMANDS_H

enum { FBY_EXIT_OK = 0, FBY_EXIT_FAILED = 1, FBY_EXIT_USAGE = 2 };

#define FBY_COMMAND_MAP(X)                                                                                             \
    X("bench", fby_cmd_bench, "measures what chunks, stops, copies and a server's calls cost")                         \
    X("config", fby_cmd_config, "checks a configuration, or shows every effective value and its origin")               \
    X("demo", fby_cmd_demo, "the tour: a prefix is stored, lost, and fetched back in every way")                       \
    X("doctor", fby_cmd_doctor, "says what is wrong with this machine, a configuration and a store")                   \
    X("replay", fby_cmd_replay, "replays a request trace through sessions, in virtual or real time")                   \
    X("serve", fby_cmd_serve, "one cache for all processes of a node, behind a Unix socket")                           \
    X("stat", fby_cmd_stat, "shows once what a server does")                                                           \
    X("store", fby_cmd_store, "lists, verifies or tidies what a store holds")                                          \
    X("top", fby_cmd_top, "shows live what a server does")                                                             \
    X("trace", fby_cmd_trace, "describes a request trace, or makes a synthetic one")

#define FBY_X(name, function, summary) int function(int argc, char **argv);
FBY_COMMAND_MAP(FBY_X)
#undef FBY_X

typedef struct fby_command {
    const char *name; /* a table ends with NULL */
    int (*run)(int argc, char **argv);
    const char *summary;
} fby_command_t;

/*
 * Runs the command that argv[1] names: commands of one level, also for `forebay config check`. `prefix` is "forebay" or
 * "forebay config". Handles --help, a missing name and an unknown one (with a suggestion).
 */
int fby_commands_run(const char *prefix, const char *about, const fby_command_t *commands, int argc, char **argv);

#endif
