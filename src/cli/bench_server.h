/*
 * bench_server.h - `forebay bench server`: what a call through the server's socket costs, for one client and for many,
 * and what idle clients cost. The server is a process of its own, every client is one too.
 */
#ifndef FBY_CLI_BENCH_SERVER_H
#define FBY_CLI_BENCH_SERVER_H

#include <sys/types.h>

#include "cli/args.h"
#include "cli/bench_stats.h"
#include "cli/replay_scratch.h"
#include "forebay/server.h"

enum {
    FBY_BENCH_CLIENTS_MOST = 256,
    FBY_BENCH_CLIENT_TEXT = 200,
    FBY_BENCH_BLOCKS = 64, /* of the prompt that every client asks for */
    FBY_BENCH_BLOCK_TOKENS = 16,
    FBY_BENCH_GOAL_CLIENTS = 64, /* what the figures about many clients are named for */
    FBY_BENCH_GOAL_IDLE_S = 10,
};

typedef struct fby_bench_server_options {
    uint64_t rounds, samples, clients, seed;
    uint64_t idle_ns, load_ns;
    const char *python; /* an interpreter; NULL: none */
    bool as_json;
} fby_bench_server_options_t;

/* A server process that answers. */
typedef struct fby_bench_process {
    pid_t pid; /* 0: none */
    char directory[FBY_SCRATCH_BYTES];
    char socket[FBY_SCRATCH_BYTES + 16];
} fby_bench_process_t;

/* What a client says through its pipe, in one piece. */
typedef struct fby_bench_word {
    int32_t status;
    uint32_t reserved0;
    uint64_t calls;
    char text[FBY_BENCH_CLIENT_TEXT]; /* of status != 0 */
} fby_bench_word_t;

/* Clients that are connected and hold the prompt; they wait until they are let go. */
typedef struct fby_bench_crowd {
    pid_t pid[FBY_BENCH_CLIENTS_MOST]; /* 0: none */
    uint64_t clients;
    int go;    /* one byte lets one client go; closing it ends them */
    int words; /* from all of them */
} fby_bench_crowd_t;

typedef struct fby_bench_server {
    const fby_bench_server_options_t *options;
    fby_bench_process_t process;
    fby_bench_crowd_t crowd;
    fby_bench_interval_t poll_us, call_us; /* medians of rounds */
    double call_p999_us;
    double crowd_calls_per_s;
    uint64_t idle_wakes;
    double python_poll_us, python_start_us;  /* NaN: not measured */
    char python_note[FBY_BENCH_CLIENT_TEXT]; /* why not; "": measured */
} fby_bench_server_t;

/* Codes with the detail set. Close in every case. */
int fby_bench_server_run(const fby_bench_server_options_t *options, fby_bench_server_t *out);
void fby_bench_server_close(fby_bench_server_t *bench);
void fby_bench_server_print(const fby_bench_server_t *bench);

/* bench_server_process.c */
int fby_bench_process_start(fby_bench_process_t *out);
/* Ends it in an orderly way. Harmless for none. */
void fby_bench_process_stop(fby_bench_process_t *process);
/* Context switches of all threads of a process so far. */
int fby_bench_process_switches(pid_t pid, uint64_t *out);

/* bench_server_client.c: in the process that calls. */
/* Puts the prompt, so that everything is found in memory. */
int fby_bench_client_prepare(const char *socket);
/* One round each: times of polls (means of 64) and calls, in microseconds. */
int fby_bench_client_measure(fby_cache_t *cache, fby_seq_t *seq, uint64_t samples, double *poll_us, double *call_us);
int fby_bench_client_connect(const char *socket, fby_cache_t **cache, fby_seq_t **seq);
/* Calls as fast as it can for load_ns. */
int fby_bench_client_load(fby_cache_t *cache, fby_seq_t *seq, uint64_t load_ns, uint64_t *calls);

/* bench_server_crowd.c */
int fby_bench_crowd_start(fby_bench_crowd_t *out, const char *socket, uint64_t clients, uint64_t load_ns);
/* Lets all of them call at once; sums what they did. */
int fby_bench_crowd_go(fby_bench_crowd_t *crowd, uint64_t *calls);
/* Ends them. Harmless for none. */
void fby_bench_crowd_stop(fby_bench_crowd_t *crowd);

/* bench_server_python.c: fills python_poll_us, python_start_us and python_note; a package that is not there is no error. */
void fby_bench_python(fby_bench_server_t *bench);

#endif
