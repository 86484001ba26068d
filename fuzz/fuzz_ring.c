/*
 * fuzz_ring.c - any bytes as shared memory: neither side reads outside of it, and what an agent is given to work on
 * lies in the pool or in the lane's bounce area.
 *
 * Input: a byte that says what the rest is laid over: 0 the header, 1 the lane from its counters on, 2 the same but
 * with one batch that holds together as far as counters and tags go, so that its entries are looked at. 3 to 5: the
 * agent takes the flat form.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/side_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { DEPTH = 8, BOUNCE_BYTES = 4096, POOL_BYTES = 16384, SLOT_BYTES = 512 };

typedef struct world {
    uint8_t *memory; /* exactly as long as the ring, so that a sanitizer sees what is beyond */
    uint64_t bytes;
    uint8_t pool[POOL_BYTES];
    fby_agent_t agent;
    fby_ring_t host;
} world_t;

static void world_open(world_t *world)
{
    world->bytes = fby_ring_bytes(1, DEPTH, BOUNCE_BYTES);
    CHECK(posix_memalign((void **)&world->memory, 4096, world->bytes) == 0);
    memset(world->memory, 0, world->bytes);
    fby_ring_format(world->memory, 1, DEPTH, BOUNCE_BYTES);
}

static void world_close(world_t *world)
{
    free(world->memory);
    free(world);
}

/* A header that passes is one whose lanes can be attached. */
static void try_header(world_t *world, const uint8_t *data, size_t size)
{
    char error[160];
    memcpy(world->memory, data, FBY_MIN(size, sizeof(fby_ring_header_t)));
    if (fby_ring_check(world->memory, world->bytes, error, sizeof(error)) == 0) {
        fby_ring_header_t header;
        memcpy(&header, world->memory, sizeof(header));
        for (uint32_t i = 0; i < header.lanes; i++) {
            fby_ring_t ring;
            fby_ring_attach(world->memory, i, &ring);
            CHECK(ring.bounce + ring.bounce_bytes <= world->memory + world->bytes);
        }
    } else {
        CHECK(strncmp(error, "ring: ", 6) == 0);
    }
}

static void agent_open(world_t *world)
{
    fby_agent_t *agent = &world->agent;
    agent->ring_memory = world->memory;
    agent->lane_count = 1;
    agent->depth = DEPTH;
    agent->pool = world->pool;
    agent->pool_bytes = POOL_BYTES;
    agent->spec.slot_bytes[0] = SLOT_BYTES;
    pthread_mutex_init(&agent->lock, NULL);
    pthread_cond_init(&agent->changed, NULL);
    CHECK(fby_side_lanes_make(agent) == 0);
    fby_ring_attach(world->memory, 0, &world->host);
}

static void agent_close(world_t *world)
{
    fby_side_lanes_free(&world->agent);
    pthread_cond_destroy(&world->agent.changed);
    pthread_mutex_destroy(&world->agent.lock);
}

static bool lies_within(const void *start, size_t area, const void *buffer, uint64_t bytes)
{
    uintptr_t at = (uintptr_t)buffer, base = (uintptr_t)start;
    return at >= base && bytes <= area && at - base <= area - bytes;
}

static void check_buffer(const world_t *world, uint32_t op, const void *buffer, uint64_t bytes)
{
    if (op != FBY_RING_GET && op != FBY_RING_PUT) {
        CHECK(buffer == NULL);
        return;
    }
    CHECK(lies_within(world->pool, POOL_BYTES, buffer, bytes) ||
          lies_within(world->host.bounce, BOUNCE_BYTES, buffer, bytes));
}

static void take(world_t *world)
{
    fby_agent_batch_t batch;
    int status = fby_agent_take(&world->agent, 0, &batch);
    CHECK(status == 0 || status == FBY_E_FORMAT);
    if (status == 0) {
        CHECK(batch.count >= 1 && batch.count <= DEPTH);
        for (uint32_t i = 0; i < batch.count; i++) {
            bool is_single = batch.op == FBY_RING_HEALTH || batch.op == FBY_RING_EPOCH;
            CHECK(is_single || memchr(batch.ops[i].key, '\0', FBY_KEY_BYTES) != NULL);
            CHECK(batch.ops[i].group < FBY_MAX_GROUPS || is_single);
            check_buffer(world, batch.op, batch.ops[i].buffer, batch.ops[i].bytes);
        }
        fby_agent_answer(&world->agent, 0, &batch);
    }
}

static void take_flat(world_t *world)
{
    fby_agent_flat_t flat;
    int status = fby_agent_take_flat(&world->agent, 0, &flat);
    CHECK(status == 0 || status == FBY_E_FORMAT);
    if (status == 0) {
        uint32_t separators = 0;
        CHECK(flat.count >= 1 && flat.count <= DEPTH && strlen(flat.keys) == flat.keys_bytes);
        for (uint32_t i = 0; i < flat.keys_bytes; i++) {
            separators += flat.keys[i] == '\n';
        }
        CHECK(separators == flat.count - 1);
        for (uint32_t i = 0; flat.keys_bytes > 0 && i < flat.count; i++) {
            check_buffer(world, flat.op, (void *)(uintptr_t)flat.addresses[i], flat.sizes[i]);
        }
        fby_agent_answer_flat(&world->agent, 0, &flat);
    }
}

/* What a host makes of the lane: a number that fits, or a refusal. */
static void look_as_host(world_t *world)
{
    int64_t results[DEPTH];
    for (uint32_t n = 1; n <= DEPTH; n++) {
        int answered = fby_ring_answered(&world->host, n);
        CHECK(answered == FBY_E_FORMAT || (answered >= 0 && answered <= (int)n));
        int status = fby_ring_results(&world->host, 0, results, n);
        CHECK(status == 0 || status == FBY_E_FORMAT);
    }
}

/* Tags and marks as a host would set them, counters that fit. */
static void mend(world_t *world, uint8_t n)
{
    world->host.position = 0;
    atomic_store(&world->host.lane->submitted, 0);
    for (uint32_t i = 0; i < n; i++) {
        world->host.entries[i].op = (uint8_t)(world->host.entries[0].op % FBY_RING_OP_COUNT);
    }
    fby_ring_entry_t entries[DEPTH];
    memcpy(entries, world->host.entries, sizeof(entries));
    fby_ring_submit(&world->host, 3, entries, n);
}

static void try_lane(world_t *world, const uint8_t *data, size_t size, bool mended, bool flat)
{
    agent_open(world); /* positions are those from before the bytes came */
    uint8_t *lane = (uint8_t *)world->host.lane;
    memcpy(lane, data, FBY_MIN(size, (size_t)(world->memory + world->bytes - lane)));
    if (mended) {
        mend(world, (uint8_t)(size % DEPTH + 1));
    }
    look_as_host(world);
    for (int i = 0; i < 4 && fby_ring_ready(&world->agent.lanes[0].ring) != 0; i++) {
        if (flat) {
            take_flat(world);
        } else {
            take(world);
        }
    }
    agent_close(world);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    world_t *world = calloc(1, sizeof(*world));
    CHECK(world != NULL);
    world_open(world);
    if (data[0] % 3 == 0) {
        try_header(world, data + 1, size - 1);
    } else {
        try_lane(world, data + 1, size - 1, data[0] % 3 == 2, data[0] / 3 % 2 != 0);
    }
    world_close(world);
    return 0;
}
