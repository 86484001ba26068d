/* side_lanes.c - batches between a ring and a driver: every entry is copied, checked, and answered once. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/side_internal.h"

int fby_side_lanes_make(fby_agent_t *agent)
{
    const size_t depth = agent->depth;
    agent->lanes = calloc(agent->lane_count, sizeof(*agent->lanes));
    if (agent->lanes == NULL) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < agent->lane_count; i++) {
        fby_side_lane_t *lane = &agent->lanes[i];
        fby_ring_attach(agent->ring_memory, i, &lane->ring);
        lane->entries = calloc(depth, sizeof(*lane->entries));
        lane->ops = calloc(depth, sizeof(*lane->ops));
        lane->results = calloc(depth, sizeof(*lane->results));
        lane->addresses = calloc(depth, sizeof(*lane->addresses));
        lane->sizes = calloc(depth, sizeof(*lane->sizes));
        lane->keys = calloc(depth, FBY_KEY_BYTES);
        lane->seen = calloc(2 * depth, sizeof(*lane->seen));
        if (lane->entries == NULL || lane->ops == NULL || lane->results == NULL || lane->addresses == NULL ||
            lane->sizes == NULL || lane->keys == NULL || lane->seen == NULL) {
            return -ENOMEM;
        }
    }
    return 0;
}

void fby_side_lanes_free(fby_agent_t *agent)
{
    for (uint32_t i = 0; agent->lanes != NULL && i < agent->lane_count; i++) {
        fby_side_lane_t *lane = &agent->lanes[i];
        free(lane->entries);
        free(lane->ops);
        free(lane->results);
        free(lane->addresses);
        free(lane->sizes);
        free(lane->keys);
        free(lane->seen);
    }
    free(agent->lanes);
}

/* ---- Checks ---- */

/* A driver may use a buffer up to its capacity, which is the group's slot_bytes: all of that has to be there. */
static bool span_fits(const fby_agent_t *agent, const fby_ring_entry_t *entry, uint64_t area)
{
    uint64_t capacity = FBY_MAX(entry->bytes, agent->spec.slot_bytes[entry->group]);
    return capacity <= area && entry->offset <= area - capacity;
}

static bool buffer_check(const fby_agent_t *agent, const fby_side_lane_t *lane, const fby_ring_entry_t *entry,
                         void **buffer)
{
    *buffer = NULL;
    if (entry->op != FBY_RING_GET && entry->op != FBY_RING_PUT) {
        return entry->offset == FBY_RING_NO_BUFFER;
    }
    bool bounce = (entry->flags & FBY_RING_BOUNCE) != 0;
    uint8_t *base = bounce ? lane->ring.bounce : agent->pool;
    uint64_t area = bounce ? lane->ring.bounce_bytes : agent->pool_bytes;
    if (base == NULL || !span_fits(agent, entry, area)) {
        return false;
    }
    *buffer = base + entry->offset;
    return true;
}

/* Also clears what lies behind the key's end, so that keys compare as whole words. */
static bool key_check(fby_ring_entry_t *entry, uint32_t *length)
{
    *length = (uint32_t)strnlen(entry->key, FBY_KEY_BYTES);
    if (*length == 0 || *length == FBY_KEY_BYTES || memchr(entry->key, '\n', *length) != NULL) {
        return false;
    }
    memset(entry->key + *length, 0, FBY_KEY_BYTES - *length);
    return true;
}

static bool entry_check(const fby_agent_t *agent, const fby_side_lane_t *lane, fby_ring_entry_t *entry,
                        uint32_t *key_length, void **buffer)
{
    return (entry->flags & ~(unsigned)(FBY_RING_LAST | FBY_RING_BOUNCE)) == 0 && entry->group < FBY_MAX_GROUPS &&
           key_check(entry, key_length) && buffer_check(agent, lane, entry, buffer);
}

static bool is_single(uint32_t op)
{
    return op == FBY_RING_HEALTH || op == FBY_RING_EPOCH;
}

/* ---- Taking ---- */

static void lane_move(fby_agent_t *agent, fby_side_lane_t *lane, fby_side_lane_state_t state)
{
    pthread_mutex_lock(&agent->lock);
    lane->state = state;
    pthread_cond_broadcast(&agent->changed);
    pthread_mutex_unlock(&agent->lock);
}

/* Waits for one batch and copies it into lane->entries. The count, -ESHUTDOWN, FBY_E_FORMAT. */
static int lane_take(fby_agent_t *agent, fby_side_lane_t *lane)
{
    if (lane->state == FBY_SIDE_UNUSED) {
        lane_move(agent, lane, FBY_SIDE_SERVED);
    }
    while (!atomic_load(&agent->closing)) {
        int taken = fby_ring_take(&lane->ring, lane->entries);
        if (taken != 0) {
            const fby_ring_entry_t *first = lane->entries;
            if (taken > 1 && is_single(first->op)) {
                return FBY_E_FORMAT;
            }
            lane->count = taken > 0 ? (uint32_t)taken : 0;
            lane->tag = first->tag;
            return taken;
        }
        fby_ring_wait_entries(&lane->ring);
    }
    lane_move(agent, lane, FBY_SIDE_LEFT);
    return -ESHUTDOWN;
}

/* Where the answer to HEALTH goes: the start of the bounce area, which no other entry uses at that time. */
static char *lane_text(const fby_side_lane_t *lane, uint32_t op)
{
    if (op != FBY_RING_HEALTH) {
        return NULL;
    }
    lane->ring.bounce[0] = '\0';
    return (char *)lane->ring.bounce;
}

int fby_agent_take(fby_agent_t *agent, uint32_t lane_index, fby_agent_batch_t *batch)
{
    if (lane_index >= agent->lane_count) {
        return -EINVAL;
    }
    fby_side_lane_t *lane = &agent->lanes[lane_index];
    int count = lane_take(agent, lane);
    if (count < 0) {
        return count;
    }
    const uint32_t op = lane->entries[0].op;
    for (uint32_t i = 0; i < lane->count; i++) {
        fby_ring_entry_t *entry = &lane->entries[i];
        void *buffer = NULL;
        uint32_t length;
        if (!is_single(op) && !entry_check(agent, lane, entry, &length, &buffer)) {
            return FBY_E_FORMAT;
        }
        fby_store_op_t *to = &lane->ops[i];
        memcpy(to->key, entry->key, FBY_KEY_BYTES);
        to->buffer = buffer;
        to->bytes = entry->bytes;
        to->group = entry->group;
        to->result = FBY_E_INVALID; /* what a driver forgets is no success */
    }
    *batch = (fby_agent_batch_t){
        .op = (fby_ring_op_t)op,
        .count = lane->count,
        .tag = lane->tag,
        .epoch = op == FBY_RING_EPOCH ? lane->entries[0].offset : 0,
        .text = lane_text(lane, op),
        .ops = lane->ops,
    };
    return 0;
}

/* Finds keys that stand twice: open addressing in twice the room, cleared by counting the stamp up. */
static bool seen_before(fby_side_lane_t *lane, uint32_t index)
{
    const uint32_t mask = 2 * lane->ring.depth - 1;
    const char *key = lane->entries[index].key;
    uint64_t hash = 0, word;
    for (size_t at = 0; at < FBY_KEY_BYTES; at += sizeof(word)) {
        memcpy(&word, key + at, sizeof(word));
        hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 32;
    }
    for (uint32_t at = (uint32_t)hash & mask;; at = (at + 1) & mask) {
        fby_side_seen_t *seen = &lane->seen[at];
        if (seen->stamp != lane->stamp) {
            *seen = (fby_side_seen_t){lane->stamp, index};
            return false;
        }
        if (memcmp(lane->entries[seen->index].key, key, FBY_KEY_BYTES) == 0) {
            return true;
        }
    }
}

static void seen_clear(fby_side_lane_t *lane)
{
    if (++lane->stamp == 0) {
        memset(lane->seen, 0, 2 * (size_t)lane->ring.depth * sizeof(*lane->seen));
        lane->stamp = 1;
    }
}

/* Keys, addresses and sizes of the batch into the lane's arrays. */
static int flatten(fby_agent_t *agent, fby_side_lane_t *lane, fby_agent_flat_t *flat)
{
    char *out = lane->keys;
    seen_clear(lane);
    for (uint32_t i = 0; i < lane->count; i++) {
        fby_ring_entry_t *entry = &lane->entries[i];
        void *buffer;
        uint32_t length;
        if (!entry_check(agent, lane, entry, &length, &buffer)) {
            return FBY_E_FORMAT;
        }
        memcpy(out, entry->key, length);
        out[length] = '\n';
        out += length + 1;
        lane->addresses[i] = (uint64_t)(uintptr_t)buffer;
        lane->sizes[i] = entry->bytes;
        flat->duplicates |= seen_before(lane, i);
    }
    flat->keys_bytes = (uint32_t)(out - lane->keys) - 1;
    out[-1] = '\0'; /* over the last separator: with keys of full length there is no room behind it */
    return 0;
}

int fby_agent_take_flat(fby_agent_t *agent, uint32_t lane_index, fby_agent_flat_t *flat)
{
    if (lane_index >= agent->lane_count) {
        return -EINVAL;
    }
    fby_side_lane_t *lane = &agent->lanes[lane_index];
    int count = lane_take(agent, lane);
    if (count < 0) {
        return count;
    }
    const uint32_t op = lane->entries[0].op;
    *flat = (fby_agent_flat_t){
        .op = op,
        .count = lane->count,
        .tag = lane->tag,
        .keys = lane->keys,
        .addresses = lane->addresses,
        .sizes = lane->sizes,
        .results = lane->results,
        .text = lane_text(lane, op),
        .epoch = op == FBY_RING_EPOCH ? lane->entries[0].offset : 0,
    };
    for (uint32_t i = 0; i < lane->count; i++) {
        lane->results[i] = FBY_E_INVALID; /* what the program forgets is no success */
    }
    lane->keys[0] = '\0';
    return is_single(op) ? 0 : flatten(agent, lane, flat);
}

/* ---- Answering ---- */

/* Count and tag are the lane's own: a caller's mistake cannot unsettle the ring. */
static void lane_answer(fby_side_lane_t *lane)
{
    fby_ring_answer(&lane->ring, lane->tag, lane->results, lane->count);
    lane->count = 0;
}

void fby_agent_answer(fby_agent_t *agent, uint32_t lane_index, const fby_agent_batch_t *batch)
{
    fby_side_lane_t *lane = &agent->lanes[lane_index];
    for (uint32_t i = 0; i < lane->count; i++) {
        lane->results[i] = lane->ops[i].result;
    }
    (void)batch;
    lane_answer(lane);
}

void fby_agent_answer_flat(fby_agent_t *agent, uint32_t lane_index, const fby_agent_flat_t *flat)
{
    (void)flat;
    lane_answer(&agent->lanes[lane_index]);
}
