/* bench_commands.h - the kinds of `forebay bench`, beside `compare`: each is one row of the table in cmd_bench.c. */
#ifndef FBY_CLI_BENCH_COMMANDS_H
#define FBY_CLI_BENCH_COMMANDS_H

/* argv from the kind's own name on; one of the exit codes of commands.h. */
int fby_bench_copy_command(int argc, char **argv);
int fby_bench_engine_command(int argc, char **argv);
int fby_bench_server_command(int argc, char **argv);

#endif
