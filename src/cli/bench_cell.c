/* bench_cell.c - one arm under one load: requests in turn, at most FBY_BENCH_CAP at work, a thread each. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "cli/bench_compare.h"

typedef struct crew crew_t;

typedef struct worker {
    crew_t *crew;
    uint32_t number;
    pthread_t thread;
    uint64_t begun_ns, ended_ns; /* 0: it had no request */
    uint64_t wrong_blocks;
    int status;
    char detail[512];
} worker_t;

struct crew {
    fby_bench_t *bench;
    uint32_t arm, requests;
    bool checks_all;
    double *request_ms; /* by request; NULL: nobody asks */
    uint64_t *request_ns;
    pthread_mutex_t lock; /* of the next four */
    pthread_cond_t moved;
    uint32_t next, ended_below; /* all requests below that have ended */
    bool *has_ended;            /* by request */
    bool is_broken;             /* somebody failed: no more requests */
    uint32_t first_prompt;
    pthread_barrier_t start;
    worker_t worker[FBY_BENCH_CAP];
};

static uint64_t now_ns(void)
{
    return fby_clock_now(&fby_clock_monotonic);
}

static int read_one(worker_t *worker, uint32_t request, const void **addresses)
{
    const crew_t *crew = worker->crew;
    fby_bench_t *bench = crew->bench;
    uint32_t prompt = (crew->first_prompt + request) % bench->set.prompts;
    fby_bench_read_t read = {0};
    int status;
    if (crew->arm == FBY_BENCH_NATIVE) {
        status = fby_bench_native_read(&bench->native, worker->number, prompt, crew->checks_all, (void **)addresses,
                                       &read.ns, &read.wrong_blocks);
    } else {
        status =
            fby_bench_cache_read(&bench->cache[crew->arm], &bench->set, prompt, crew->checks_all, addresses, &read);
    }
    worker->wrong_blocks += read.wrong_blocks;
    crew->request_ns[request] = read.ns;
    return status;
}

/* The next request, once it may start; false when there is none. */
static bool take_request(crew_t *crew, uint32_t *request)
{
    pthread_mutex_lock(&crew->lock);
    bool is_there = crew->next < crew->requests && !crew->is_broken;
    *request = crew->next;
    crew->next += is_there;
    while (is_there && *request >= crew->ended_below + FBY_BENCH_LEAD && !crew->is_broken) {
        pthread_cond_wait(&crew->moved, &crew->lock);
    }
    pthread_mutex_unlock(&crew->lock);
    return is_there;
}

static void end_request(crew_t *crew, uint32_t request, bool is_good)
{
    pthread_mutex_lock(&crew->lock);
    uint32_t before = crew->ended_below;
    crew->has_ended[request] = true;
    crew->is_broken = crew->is_broken || !is_good;
    while (crew->ended_below < crew->requests && crew->has_ended[crew->ended_below]) {
        crew->ended_below++;
    }
    if (crew->ended_below > before || crew->is_broken) {
        pthread_cond_broadcast(&crew->moved);
    }
    pthread_mutex_unlock(&crew->lock);
}

static void *work(void *arg)
{
    worker_t *worker = arg;
    crew_t *crew = worker->crew;
    const void **addresses = calloc(crew->bench->set.blocks, sizeof(*addresses));
    worker->status = addresses != NULL ? 0 : -ENOMEM;
    pthread_barrier_wait(&crew->start);
    worker->begun_ns = now_ns();
    for (uint32_t request; worker->status == 0 && take_request(crew, &request);) {
        worker->status = read_one(worker, request, addresses);
        worker->ended_ns = now_ns();
        end_request(crew, request, worker->status == 0);
    }
    if (worker->status != 0) { /* the detail belongs to this thread */
        strncpy(worker->detail, fby_error_get(), sizeof(worker->detail) - 1);
    }
    free(addresses);
    return NULL;
}

/* Starts the workers and waits for them. The barrier has one place for the caller: what is measured begins there. */
static int run_crew(crew_t *crew, uint32_t workers, fby_bench_usage_t *before)
{
    uint32_t made = 0;
    int status = 0;
    pthread_barrier_init(&crew->start, NULL, workers + 1);
    for (; made < workers && status == 0; made++) {
        worker_t *worker = &crew->worker[made];
        *worker = (worker_t){.crew = crew, .number = made};
        status = -pthread_create(&worker->thread, NULL, work, worker);
    }
    if (status != 0) { /* those that wait at the barrier would wait for ever */
        fby_error_set("threads: %s", strerror(-status));
        for (uint32_t i = 0; i + 1 < made; i++) {
            pthread_cancel(crew->worker[i].thread);
            pthread_join(crew->worker[i].thread, NULL);
        }
        return status;
    }
    fby_bench_usage_now(before);
    pthread_barrier_wait(&crew->start);
    for (uint32_t i = 0; i < workers; i++) {
        pthread_join(crew->worker[i].thread, NULL);
    }
    pthread_barrier_destroy(&crew->start);
    return 0;
}

static int sum_up(const crew_t *crew, uint32_t workers, bool is_serial, fby_bench_cell_t *cell)
{
    uint64_t begun = FBY_NEVER, ended = 0, spent = 0;
    for (uint32_t i = 0; i < workers; i++) {
        const worker_t *worker = &crew->worker[i];
        if (worker->status != 0) {
            if (*worker->detail != '\0') {
                fby_error_set("arm %s: %s", fby_bench_arm_names[crew->arm], worker->detail);
            }
            return worker->status;
        }
        begun = FBY_MIN(begun, worker->begun_ns);
        ended = FBY_MAX(ended, worker->ended_ns);
        cell->wrong_blocks += worker->wrong_blocks;
    }
    for (uint32_t i = 0; i < crew->requests; i++) {
        spent += crew->request_ns[i];
        if (crew->request_ms != NULL) {
            crew->request_ms[i] = (double)crew->request_ns[i] / (double)FBY_MS;
        }
    }
    cell->ns = is_serial ? spent : ended - begun;
    cell->requests = crew->requests;
    cell->bytes = (uint64_t)crew->requests * crew->bench->set.blocks * crew->bench->set.object_bytes;
    return 0;
}

static int count_graphs(const fby_bench_t *bench, uint32_t arm, uint64_t *graphs)
{
    *graphs = 0;
    return arm == FBY_BENCH_NATIVE ? 0 : fby_bench_cache_graphs(&bench->cache[arm], graphs);
}

static int run(crew_t *crew, uint32_t workers, bool is_serial, fby_bench_cell_t *cell)
{
    fby_bench_usage_t before, after;
    uint64_t graphs_before = 0, graphs_after = 0;
    int status = crew->arm == FBY_BENCH_NATIVE ? 0 : fby_bench_cache_forget(&crew->bench->cache[crew->arm]);
    status = status == 0 ? count_graphs(crew->bench, crew->arm, &graphs_before) : status;
    status = status == 0 ? run_crew(crew, workers, &before) : status;
    if (status != 0) {
        return status;
    }
    fby_bench_usage_now(&after);
    cell->usage = fby_bench_usage_since(&before, &after);
    status = sum_up(crew, workers, is_serial, cell);
    status = status == 0 ? count_graphs(crew->bench, crew->arm, &graphs_after) : status;
    cell->graphs = graphs_after - graphs_before;
    return status;
}

int fby_bench_cell_run(fby_bench_t *bench, uint32_t arm, uint32_t load, bool checks_all, fby_bench_cell_t *cell,
                       double *request_ms)
{
    static const uint32_t requests[] = {
#define FBY_X(name, text, count) count,
        FBY_BENCH_LOAD_MAP(FBY_X)
#undef FBY_X
    };
    bool is_serial = requests[load] == 0;
    crew_t *crew = calloc(1, sizeof(*crew));
    *cell = (fby_bench_cell_t){0};
    if (crew == NULL) {
        fby_error_set("out of memory");
        return -ENOMEM;
    }
    crew->bench = bench;
    crew->arm = arm;
    crew->requests = is_serial ? (uint32_t)bench->options->requests : requests[load];
    crew->checks_all = checks_all;
    crew->request_ms = request_ms;
    crew->first_prompt = bench->next_prompt;
    crew->request_ns = calloc(crew->requests, sizeof(*crew->request_ns));
    crew->has_ended = calloc(crew->requests, sizeof(*crew->has_ended));
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->moved, NULL);
    bench->next_prompt = (bench->next_prompt + crew->requests) % bench->set.prompts;
    bool is_there = crew->request_ns != NULL && crew->has_ended != NULL;
    int status = is_there ? run(crew, is_serial ? 1 : FBY_BENCH_CAP, is_serial, cell) : -ENOMEM;
    pthread_cond_destroy(&crew->moved);
    pthread_mutex_destroy(&crew->lock);
    free(crew->has_ended);
    free(crew->request_ns);
    free(crew);
    return status;
}
