/* bench_store.h - what the comparison changes about the store it was given. */
#ifndef FBY_CLI_BENCH_STORE_H
#define FBY_CLI_BENCH_STORE_H

#include "cli/store_text.h"

enum { FBY_BENCH_DRIVER_BYTES = 64 };

typedef struct fby_bench_slow_store {
    fby_store_text_t text; /* its own when `owned`, else into the original and the texts below */
    bool owned;
    char driver[FBY_BENCH_DRIVER_BYTES], bandwidth[32];
} fby_bench_slow_store_t;

/* One writer, then many readers. */
bool fby_bench_is_directory(const fby_store_text_t *store);
/* A store in memory gets a name, so that every arm opens the same one. FBY_E_CONFIG: no room for an option. */
int fby_bench_store_share(fby_store_text_t *store);
int fby_bench_store_readonly(fby_store_text_t *store);
/* The slowed store: what `given` names, or the original behind a link of that many bytes per second. FBY_E_CONFIG: that
   driver cannot be wrapped and none is given. Close in every case. */
int fby_bench_slow_open(const fby_store_text_t *store, const char *given, uint64_t bytes_per_s,
                        fby_bench_slow_store_t *out);
void fby_bench_slow_close(fby_bench_slow_store_t *slow);
/* Whether it could be wrapped. */
bool fby_bench_can_slow(const fby_store_text_t *store);

#endif
