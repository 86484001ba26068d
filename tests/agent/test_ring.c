/* Lanes in shared memory: what a header may say, batches there and back, wakes, and a side that dies. */
#include "agent/ring.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "unit.h"

enum { DEPTH = 16, BOUNCE = 4096, LANES = 3 };

typedef struct memory {
    void *start;
    uint64_t bytes;
} memory_t;

/* Shared with children. */
static memory_t memory_make(void)
{
    memory_t memory = {.bytes = fby_ring_bytes(LANES, DEPTH, BOUNCE)};
    memory.start = mmap(NULL, memory.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory.start != MAP_FAILED);
    fby_ring_format(memory.start, LANES, DEPTH, BOUNCE);
    return memory;
}

static void memory_free(const memory_t *memory)
{
    munmap(memory->start, memory->bytes);
}

static void entries_make(fby_ring_entry_t *entries, uint32_t n, fby_ring_op_t op)
{
    for (uint32_t i = 0; i < n; i++) {
        entries[i] = (fby_ring_entry_t){.op = (uint8_t)op, .offset = i * 64, .bytes = i, .flags = FBY_RING_LAST};
        snprintf(entries[i].key, sizeof(entries[i].key), "key-%u", i);
    }
}

/* ---- Layout ---- */

static void numbers_out_of_range_have_no_size(void **state)
{
    assert_int_equal(fby_ring_bytes(0, 16, 4096), 0);
    assert_int_equal(fby_ring_bytes(FBY_RING_LANES_MOST + 1, 16, 4096), 0);
    assert_int_equal(fby_ring_bytes(1, 0, 4096), 0);
    assert_int_equal(fby_ring_bytes(1, 12, 4096), 0);
    assert_int_equal(fby_ring_bytes(1, FBY_RING_DEPTH_MOST * 2, 4096), 0);
    assert_int_equal(fby_ring_bytes(1, 16, 0), 0);
    assert_int_equal(fby_ring_bytes(1, 16, 4095), 0);
    assert_int_equal(fby_ring_bytes(1, 16, UINT32_C(0x80001000)), 0);
    /* header, then per lane: counters and rings in one page, bounce area */
    assert_int_equal(fby_ring_bytes(1, 1, 4096), 3 * 4096);
    assert_int_equal(fby_ring_bytes(2, 1, 8192), 7 * 4096);
    assert_true(fby_ring_bytes(FBY_RING_LANES_MOST, FBY_RING_DEPTH_MOST, UINT32_C(0x80000000)) > UINT64_C(1) << 39);
}

static void a_formatted_ring_passes_and_its_lanes_do_not_overlap(void **state)
{
    char error[160];
    memory_t memory = memory_make();
    assert_int_equal(fby_ring_check(memory.start, memory.bytes, error, sizeof(error)), 0);
    const uint8_t *end = (const uint8_t *)memory.start + 4096;
    for (uint32_t i = 0; i < LANES; i++) {
        fby_ring_t ring;
        fby_ring_attach(memory.start, i, &ring);
        assert_ptr_equal(ring.lane, end);
        assert_ptr_equal(ring.entries, ring.lane + 1);
        assert_ptr_equal(ring.results, ring.entries + DEPTH);
        assert_true(ring.bounce >= (uint8_t *)(ring.results + DEPTH));
        assert_int_equal((uintptr_t)ring.bounce % 4096, 0);
        assert_int_equal(ring.position, 0);
        end = ring.bounce + BOUNCE;
    }
    assert_ptr_equal(end, (const uint8_t *)memory.start + memory.bytes);
    memory_free(&memory);
}

/* Spoils one field, expects its name in the message, and puts it back. */
#define REFUSED(memory, field, value, part)                                                                            \
    do {                                                                                                               \
        fby_ring_header_t *header_ = (memory).start, kept_ = *header_;                                                 \
        char error_[160] = "";                                                                                         \
        header_->field = (value);                                                                                      \
        assert_int_equal(fby_ring_check((memory).start, (memory).bytes, error_, sizeof(error_)), FBY_E_FORMAT);        \
        if (strstr(error_, (part)) == NULL) {                                                                          \
            fail_msg("'%s' does not say '%s'", error_, (part));                                                        \
        }                                                                                                              \
        *header_ = kept_;                                                                                              \
    } while (0)

static void each_wrong_field_is_named(void **state)
{
    char error[160];
    memory_t memory = memory_make();
    REFUSED(memory, magic, FBY_RING_MAGIC + 1, "magic");
    REFUSED(memory, version, FBY_RING_VERSION + 1, "version is 2; accepted: 1");
    REFUSED(memory, header_bytes, 56, "header_bytes is 56");
    REFUSED(memory, lanes, 0, "lanes is 0; accepted: 1 to 256");
    REFUSED(memory, lanes, 257, "lanes is 257");
    REFUSED(memory, lanes, 2, "bytes is"); /* another number of lanes is another size */
    REFUSED(memory, depth, 0, "depth is 0");
    REFUSED(memory, depth, 24, "depth is 24");
    REFUSED(memory, depth, 8192, "depth is 8192");
    REFUSED(memory, depth, 4096, "lane_bytes is");
    REFUSED(memory, bounce_bytes, 0, "bounce_bytes is 0");
    REFUSED(memory, bounce_bytes, 4097, "bounce_bytes is 4097");
    REFUSED(memory, bounce_bytes, 8192, "lane_bytes is");
    REFUSED(memory, lane_bytes, 4096, "lane_bytes is 4096");
    REFUSED(memory, bytes, memory.bytes + 1, "bytes is");
    assert_int_equal(fby_ring_check(memory.start, 4095, error, sizeof(error)), FBY_E_FORMAT);
    assert_string_equal(error, "ring: 4095 bytes; accepted: at least 4096");
    assert_int_equal(fby_ring_check(memory.start, memory.bytes - 4096, error, sizeof(error)), FBY_E_FORMAT);
    assert_int_equal(fby_ring_check(memory.start, memory.bytes, error, sizeof(error)), 0);
    memory_free(&memory);
}

/* ---- Batches ---- */

typedef struct lane {
    memory_t memory;
    fby_ring_t host, agent;
} lane_t;

/* Counters start at `start`, as after that many entries. */
static void lane_open(lane_t *lane, uint32_t start)
{
    lane->memory = memory_make();
    fby_ring_attach(lane->memory.start, 1, &lane->host);
    atomic_store(&lane->host.lane->submitted, start);
    atomic_store(&lane->host.lane->answered, start);
    fby_ring_attach(lane->memory.start, 1, &lane->host);
    fby_ring_attach(lane->memory.start, 1, &lane->agent);
}

static void lane_close(lane_t *lane)
{
    memory_free(&lane->memory);
}

static void one_batch(lane_t *lane, uint64_t tag, uint32_t n)
{
    fby_ring_entry_t entries[DEPTH], taken[DEPTH];
    int64_t results[DEPTH], answers[DEPTH];
    entries_make(entries, n, FBY_RING_GET);
    assert_int_equal(fby_ring_ready(&lane->agent), 0);
    assert_int_equal(fby_ring_take(&lane->agent, taken), 0);
    fby_ring_submit(&lane->host, tag, entries, n);
    assert_int_equal(fby_ring_ready(&lane->agent), n);
    assert_int_equal(fby_ring_answered(&lane->host, n), 0);
    assert_int_equal(fby_ring_take(&lane->agent, taken), n);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(taken[i].tag, tag);
        assert_int_equal(taken[i].flags, i + 1 == n ? FBY_RING_LAST : 0);
        assert_memory_equal(&taken[i], &entries[i], sizeof(taken[i]));
        results[i] = (int64_t)(tag * 100 + i);
    }
    fby_ring_answer(&lane->agent, tag, results, n);
    assert_int_equal(fby_ring_answered(&lane->host, n), n);
    fby_ring_wait(&lane->host, n, FBY_NEVER); /* nothing to wait for */
    assert_int_equal(fby_ring_results(&lane->host, tag, answers, n), 0);
    assert_memory_equal(answers, results, n * sizeof(*results));
}

static void a_batch_comes_back_whole(void **state)
{
    lane_t lane;
    lane_open(&lane, 0);
    for (uint32_t n = 1; n <= DEPTH; n++) {
        one_batch(&lane, n, n);
    }
    lane_close(&lane);
}

static void counters_wrap(void **state)
{
    lane_t lane;
    lane_open(&lane, UINT32_MAX - 20);
    for (uint32_t i = 0; i < 10; i++) {
        one_batch(&lane, i, 7);
    }
    assert_int_equal(lane.host.position, 49);
    lane_close(&lane);
}

static void a_counter_that_makes_no_sense_is_refused(void **state)
{
    fby_ring_entry_t entries[DEPTH];
    lane_t lane;
    lane_open(&lane, 5);
    atomic_store(&lane.host.lane->submitted, 5 + DEPTH + 1);
    assert_int_equal(fby_ring_ready(&lane.agent), FBY_E_FORMAT);
    assert_int_equal(fby_ring_take(&lane.agent, entries), FBY_E_FORMAT);
    atomic_store(&lane.host.lane->submitted, 4); /* backwards */
    assert_int_equal(fby_ring_ready(&lane.agent), FBY_E_FORMAT);
    fby_ring_wait_entries(&lane.agent); /* does not sleep over it */
    atomic_store(&lane.host.lane->submitted, 5);
    entries_make(entries, 3, FBY_RING_PUT);
    fby_ring_submit(&lane.host, 1, entries, 3);
    atomic_store(&lane.host.lane->answered, 9); /* more than was asked */
    assert_int_equal(fby_ring_answered(&lane.host, 3), FBY_E_FORMAT);
    fby_ring_wait(&lane.host, 3, FBY_NEVER);
    atomic_store(&lane.host.lane->answered, 4); /* backwards */
    assert_int_equal(fby_ring_answered(&lane.host, 3), FBY_E_FORMAT);
    lane_close(&lane);
}

/* A batch of three whose entry at `index` is spoilt in shared memory. */
static int take_spoilt(uint32_t index, void (*spoil)(fby_ring_entry_t *entry))
{
    fby_ring_entry_t entries[DEPTH];
    lane_t lane;
    lane_open(&lane, 0);
    entries_make(entries, 3, FBY_RING_PUT);
    fby_ring_submit(&lane.host, 1, entries, 3);
    spoil(&lane.host.entries[index]);
    int taken = fby_ring_take(&lane.agent, entries);
    lane_close(&lane);
    return taken;
}

#define SPOILS(name, statement)                                                                                        \
    static void name(fby_ring_entry_t *entry)                                                                          \
    {                                                                                                                  \
        statement;                                                                                                     \
    }
SPOILS(nothing, (void)entry)
SPOILS(no_last, entry->flags = 0)
SPOILS(other_tag, entry->tag++)
SPOILS(other_op, entry->op = FBY_RING_GET)
SPOILS(no_op, entry->op = FBY_RING_OP_COUNT)

static void a_batch_that_does_not_hold_together_is_refused(void **state)
{
    assert_int_equal(take_spoilt(0, nothing), 3);
    assert_int_equal(take_spoilt(2, no_last), FBY_E_FORMAT);
    assert_int_equal(take_spoilt(1, other_tag), FBY_E_FORMAT);
    assert_int_equal(take_spoilt(2, other_op), FBY_E_FORMAT);
    assert_int_equal(take_spoilt(0, no_op), FBY_E_FORMAT);
}

static void a_foreign_result_is_refused(void **state)
{
    fby_ring_entry_t entries[DEPTH];
    int64_t results[2] = {1, 2};
    lane_t lane;
    lane_open(&lane, 0);
    entries_make(entries, 2, FBY_RING_PUT);
    fby_ring_submit(&lane.host, 7, entries, 2);
    assert_int_equal(fby_ring_take(&lane.agent, entries), 2);
    fby_ring_answer(&lane.agent, 6, results, 2);
    assert_int_equal(fby_ring_answered(&lane.host, 2), 2);
    assert_int_equal(fby_ring_results(&lane.host, 7, results, 2), FBY_E_FORMAT);
    lane_close(&lane);
}

/* ---- Wakes ---- */

static void a_limit_that_has_passed_ends_the_wait(void **state)
{
    fby_ring_entry_t entries[DEPTH];
    lane_t lane;
    lane_open(&lane, 0);
    entries_make(entries, 1, FBY_RING_PUT);
    fby_ring_submit(&lane.host, 1, entries, 1);
    fby_ring_wait(&lane.host, 1, 1);
    assert_int_equal(fby_ring_answered(&lane.host, 1), 0);
    lane_close(&lane);
}

/* The kick comes between the look at the flag and the wait: the wait must not begin. It ends one wait, not those after.
   */
static void a_kick_before_the_wait_is_not_lost(void **state)
{
    fby_ring_entry_t entries[DEPTH];
    lane_t lane;
    lane_open(&lane, 0);
    entries_make(entries, 1, FBY_RING_PUT);
    fby_ring_kick(lane.agent.lane);
    fby_ring_wait_entries(&lane.agent);
    assert_int_equal(lane.agent.agent_seen, atomic_load(&lane.agent.lane->agent_wake));
    fby_ring_submit(&lane.host, 1, entries, 1);
    fby_ring_wait(&lane.host, 1, FBY_NEVER);
    fby_ring_kick(lane.agent.lane);
    fby_ring_wait(&lane.host, 1, FBY_NEVER);
    assert_int_equal(lane.host.host_seen, atomic_load(&lane.host.lane->host_wake));
    assert_int_equal(atomic_load(&lane.host.lane->host_sleeps), 0);
    lane_close(&lane);
}

typedef struct sleeper {
    lane_t *lane;
    bool host;
    _Atomic bool stop;
} sleeper_t;

static void *sleep_until_stopped(void *arg)
{
    sleeper_t *sleeper = arg;
    while (!atomic_load(&sleeper->stop)) {
        if (sleeper->host) {
            fby_ring_wait(&sleeper->lane->host, 1, FBY_NEVER);
        } else {
            fby_ring_wait_entries(&sleeper->lane->agent);
        }
    }
    return NULL;
}

/* Many times, so that the kick meets every place of the wait. */
static void a_kick_ends_a_wait_on_either_side(void **state)
{
    fby_ring_entry_t entries[DEPTH];
    for (int round = 0; round < 400; round++) {
        lane_t lane;
        lane_open(&lane, 0);
        sleeper_t sleeper = {.lane = &lane, .host = round % 2 != 0};
        if (sleeper.host) {
            entries_make(entries, 1, FBY_RING_PUT);
            fby_ring_submit(&lane.host, 1, entries, 1);
        }
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, sleep_until_stopped, &sleeper), 0);
        for (int i = 0; i < round; i++) {
            atomic_signal_fence(memory_order_seq_cst);
        }
        atomic_store(&sleeper.stop, true);
        fby_ring_kick(lane.host.lane);
        assert_int_equal(pthread_join(thread, NULL), 0);
        lane_close(&lane);
    }
}

/* ---- Two sides at once ---- */

/* Answers every entry with bytes + offset until a REMOVE comes. 0 when all was as it should be. */
static int serve(fby_ring_t *ring)
{
    fby_ring_entry_t entries[DEPTH];
    int64_t results[DEPTH];
    uint64_t tag = 0;
    for (;;) {
        int n = fby_ring_take(ring, entries);
        if (n == 0) {
            fby_ring_wait_entries(ring);
            continue;
        }
        if (n < 0 || entries[0].tag != ++tag) {
            return 1;
        }
        for (int i = 0; i < n; i++) {
            results[i] = (int64_t)(entries[i].bytes + entries[i].offset);
        }
        fby_ring_answer(ring, entries[0].tag, results, (uint32_t)n);
        if (entries[0].op == FBY_RING_REMOVE) {
            return 0;
        }
    }
}

static void call(fby_ring_t *ring, uint64_t tag, fby_ring_op_t op, uint32_t n, uint64_t *random)
{
    fby_ring_entry_t entries[DEPTH];
    int64_t results[DEPTH];
    for (uint32_t i = 0; i < n; i++) {
        entries[i] = (fby_ring_entry_t){.op = (uint8_t)op, .bytes = unit_below(random, 1000), .offset = tag};
    }
    fby_ring_submit(ring, tag, entries, n);
    while (fby_ring_answered(ring, n) != (int)n) {
        fby_ring_wait(ring, n, FBY_NEVER);
    }
    assert_int_equal(fby_ring_results(ring, tag, results, n), 0);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(results[i], entries[i].bytes + tag);
    }
}

static void *serve_thread(void *arg)
{
    return serve(arg) == 0 ? NULL : arg;
}

static void calls(fby_ring_t *ring, uint32_t count)
{
    uint64_t random = 1;
    for (uint32_t i = 1; i < count; i++) {
        call(ring, i, FBY_RING_GET, 1 + unit_below(&random, DEPTH), &random);
    }
    call(ring, count, FBY_RING_REMOVE, 1, &random);
}

/* Without a limit anywhere: one lost wake and the test hangs. */
static void no_wake_is_lost_between_threads(void **state)
{
    lane_t lane;
    pthread_t thread;
    void *wrong;
    lane_open(&lane, UINT32_MAX - 1000);
    assert_int_equal(pthread_create(&thread, NULL, serve_thread, &lane.agent), 0);
    calls(&lane.host, 50000);
    assert_int_equal(pthread_join(thread, &wrong), 0);
    assert_null(wrong);
    lane_close(&lane);
}

static void no_wake_is_lost_between_processes(void **state)
{
    lane_t lane;
    int status;
    lane_open(&lane, 0);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(serve(&lane.agent));
    }
    calls(&lane.host, 100000);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    lane_close(&lane);
}

typedef struct killing {
    fby_ring_lane_t *lane;
    pid_t pid;
    _Atomic bool gone;
} killing_t;

/* What a supervisor does: ends the agent, sees it gone, says so, kicks. */
static void *kill_agent(void *arg)
{
    killing_t *killing = arg;
    int status;
    kill(killing->pid, SIGKILL);
    waitpid(killing->pid, &status, 0);
    atomic_store(&killing->gone, true);
    fby_ring_kick(killing->lane);
    return NULL;
}

/* The agent dies at whatever instruction it is: the host's wait ends by the kick, and what it reads makes sense. */
static void a_killed_agent_never_keeps_the_host(void **state)
{
    for (uint32_t round = 0; round < 50; round++) {
        lane_t lane;
        lane_open(&lane, 0);
        pid_t pid = fork();
        if (pid == 0) {
            _exit(serve(&lane.agent));
        }
        killing_t killing = {.lane = lane.host.lane, .pid = pid};
        pthread_t thread;
        uint64_t random = round;
        for (uint64_t tag = 1; tag <= round; tag++) {
            call(&lane.host, tag, FBY_RING_PUT, DEPTH, &random);
        }
        assert_int_equal(pthread_create(&thread, NULL, kill_agent, &killing), 0);
        fby_ring_entry_t entries[DEPTH];
        uint32_t answered = DEPTH;
        for (uint64_t tag = round + 1; answered == DEPTH && !atomic_load(&killing.gone); tag++) {
            entries_make(entries, DEPTH, FBY_RING_PUT);
            fby_ring_submit(&lane.host, tag, entries, DEPTH);
            for (answered = 0; answered < DEPTH && !atomic_load(&killing.gone);) {
                fby_ring_wait(&lane.host, DEPTH, FBY_NEVER);
                int n = fby_ring_answered(&lane.host, DEPTH);
                assert_true(n == 0 || n == DEPTH); /* whole batches or nothing */
                answered = (uint32_t)n;
            }
        }
        assert_int_equal(pthread_join(thread, NULL), 0);
        lane_close(&lane);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_out_of_range_have_no_size),
        cmocka_unit_test(a_formatted_ring_passes_and_its_lanes_do_not_overlap),
        cmocka_unit_test(each_wrong_field_is_named),
        cmocka_unit_test(a_batch_comes_back_whole),
        cmocka_unit_test(counters_wrap),
        cmocka_unit_test(a_counter_that_makes_no_sense_is_refused),
        cmocka_unit_test(a_batch_that_does_not_hold_together_is_refused),
        cmocka_unit_test(a_foreign_result_is_refused),
        cmocka_unit_test(a_limit_that_has_passed_ends_the_wait),
        cmocka_unit_test(a_kick_before_the_wait_is_not_lost),
        cmocka_unit_test(a_kick_ends_a_wait_on_either_side),
        cmocka_unit_test(no_wake_is_lost_between_threads),
        cmocka_unit_test(no_wake_is_lost_between_processes),
        cmocka_unit_test(a_killed_agent_never_keeps_the_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
