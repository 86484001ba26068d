#include "support/naive_index.h"

#include <stdlib.h>

/* ---- Looking at everything ---- */

static bool is_current(const naive_block_t *block)
{
    return block->used && !block->old;
}

static uint32_t payload_pins(const naive_block_t *block, uint32_t group)
{
    return block->payload_pins[group][FBY_PIN_SESSION] + block->payload_pins[group][FBY_PIN_HOLD] +
           block->payload_pins[group][FBY_PIN_WRITE];
}

static bool is_pinned(const naive_index_t *naive, const naive_block_t *block)
{
    uint32_t pins = block->pins[FBY_PIN_SESSION] + block->pins[FBY_PIN_HOLD] + block->pins[FBY_PIN_WRITE];
    for (uint32_t g = 0; g < naive->config.groups; g++) {
        pins += payload_pins(block, g);
    }
    return pins > 0;
}

/* protected_[i]: block i or one of its descendants has a pin. */
static void naive_protect(naive_index_t *naive)
{
    for (uint32_t i = 0; i < naive->config.max_nodes; i++) {
        naive->protected_[i] = false;
    }
    for (uint32_t i = 0; i < naive->config.max_nodes; i++) {
        if (naive->blocks[i].used && is_pinned(naive, &naive->blocks[i])) {
            for (uint32_t at = i; at != FBY_NONE; at = naive->blocks[at].parent) {
                naive->protected_[at] = true;
            }
        }
    }
}

bool naive_is_protected(naive_index_t *naive, uint32_t id)
{
    naive_protect(naive);
    return naive->protected_[id];
}

static uint32_t count_children(const naive_index_t *naive, uint32_t id)
{
    uint32_t children = 0;
    for (uint32_t i = 0; i < naive->config.max_nodes; i++) {
        children += naive->blocks[i].used && naive->blocks[i].parent == id;
    }
    return children;
}

bool naive_is_leaf(const naive_index_t *naive, uint32_t id)
{
    return count_children(naive, id) == 0;
}

static bool has_trailing(const naive_index_t *naive)
{
    for (uint32_t g = 0; g < naive->config.groups; g++) {
        if (naive->config.trailing[g] > 0) {
            return true;
        }
    }
    return false;
}

static bool has_all_payloads(const naive_index_t *naive, uint32_t id)
{
    for (uint32_t g = 0; g < naive->config.groups; g++) {
        if (naive->config.trailing[g] > 0 && !naive->blocks[id].payload[g]) {
            return false;
        }
    }
    return true;
}

static uint64_t all_bytes(const naive_index_t *naive)
{
    uint64_t bytes = 0;
    for (uint32_t g = 0; g < naive->config.groups; g++) {
        bytes += naive->config.trailing[g] == 0 ? naive->config.slot_bytes[g] : 0;
    }
    return bytes;
}

bool naive_is_charged(const naive_index_t *naive, uint32_t id, fby_pin_class_t class_)
{
    if (class_ == FBY_PIN_WRITE) {
        return naive->blocks[id].pins[class_] > 0;
    }
    for (uint32_t i = 0; i < naive->config.max_nodes; i++) {
        if (!naive->blocks[i].used || naive->blocks[i].pins[class_] == 0) {
            continue;
        }
        for (uint32_t at = i; at != FBY_NONE; at = naive->blocks[at].parent) {
            if (at == id) {
                return true;
            }
        }
    }
    return false;
}

uint64_t naive_charged_bytes(const naive_index_t *naive, fby_pin_class_t class_)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < naive->config.max_nodes; i++) {
        if (!naive->blocks[i].used) {
            continue;
        }
        bytes += naive_is_charged(naive, i, class_) ? all_bytes(naive) : 0;
        for (uint32_t g = 0; g < naive->config.groups; g++) {
            bytes += naive->blocks[i].payload_pins[g][class_] > 0 ? naive->config.slot_bytes[g] : 0;
        }
    }
    return bytes;
}

uint64_t naive_charge_estimate(const naive_index_t *naive, uint32_t id, fby_pin_class_t class_)
{
    uint64_t bytes = 0;
    for (uint32_t at = id; at != FBY_NONE; at = class_ == FBY_PIN_WRITE ? FBY_NONE : naive->blocks[at].parent) {
        bytes += naive_is_charged(naive, at, class_) ? 0 : all_bytes(naive);
    }
    return bytes;
}

static uint32_t count_unprotected(naive_index_t *naive)
{
    uint32_t count = 0;
    naive_protect(naive);
    for (uint32_t i = 0; i < naive->config.max_nodes; i++) {
        count += is_current(&naive->blocks[i]) && !naive->protected_[i];
    }
    return count;
}

uint32_t naive_evictable(naive_index_t *naive, uint32_t group)
{
    if (naive->config.trailing[group] == 0) {
        return count_unprotected(naive);
    }
    uint32_t count = 0;
    for (uint32_t i = 0; i < naive->config.max_nodes; i++) {
        const naive_block_t *block = &naive->blocks[i];
        count += is_current(block) && block->payload[group] && payload_pins(block, group) == 0;
    }
    return count;
}

uint32_t naive_retired(const naive_index_t *naive, uint32_t group)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < naive->config.max_nodes; i++) {
        const naive_block_t *block = &naive->blocks[i];
        count += block->used && block->old && (naive->config.trailing[group] == 0 || block->payload[group]);
    }
    return count;
}

/* ---- Finding ---- */

naive_index_t *naive_create(const fby_index_config_t *config)
{
    naive_index_t *naive = calloc(1, sizeof(*naive));
    naive->config = *config;
    naive->blocks = calloc(config->max_nodes, sizeof(*naive->blocks));
    naive->protected_ = calloc(config->max_nodes, sizeof(*naive->protected_));
    naive->chances = 4;
    return naive;
}

void naive_destroy(naive_index_t *naive)
{
    free(naive->blocks);
    free(naive->protected_);
    free(naive);
}

uint32_t naive_find(const naive_index_t *naive, const fby_hash_t *hash)
{
    for (uint32_t i = 0; i < naive->config.max_nodes; i++) {
        if (is_current(&naive->blocks[i]) && fby_hash_equal(&naive->blocks[i].hash, hash)) {
            return i;
        }
    }
    return FBY_NONE;
}

uint32_t naive_match(const naive_index_t *naive, const fby_hash_t *hashes, uint32_t n)
{
    uint32_t length = 0;
    while (length < n && naive_find(naive, &hashes[length]) != FBY_NONE) {
        length++;
    }
    return length;
}

static bool is_checkpoint(const naive_index_t *naive, const fby_hash_t *hashes, uint32_t end)
{
    for (uint32_t g = 0; g < naive->config.groups; g++) {
        for (uint32_t b = 0; b < end; b++) {
            bool needed = naive->config.trailing[g] > 0 && b + naive->config.trailing[g] >= end;
            if (needed && !naive->blocks[naive_find(naive, &hashes[b])].payload[g]) {
                return false;
            }
        }
    }
    return true;
}

uint32_t naive_checkpoint(const naive_index_t *naive, const fby_hash_t *hashes, uint32_t end)
{
    while (!is_checkpoint(naive, hashes, end)) {
        end--;
    }
    return end;
}

/* ---- Using ---- */

static bool ends_nothing(const naive_index_t *naive, uint32_t id)
{
    return has_trailing(naive) && naive_is_leaf(naive, id) && !has_all_payloads(naive, id);
}

static void use(naive_index_t *naive, uint32_t id, bool cold)
{
    naive_block_t *block = &naive->blocks[id];
    block->used_at = ++naive->now;
    block->uses++;
    block->demoted_at = 0;
    block->spared = false;
    block->cold = cold || ends_nothing(naive, id);
}

/* A leaf that lost what it was kept for goes next. */
static void demote(naive_index_t *naive, uint32_t id)
{
    if (id != FBY_NONE && is_current(&naive->blocks[id]) && !naive_is_protected(naive, id) && !naive->blocks[id].cold &&
        ends_nothing(naive, id)) {
        naive->blocks[id].cold = true;
        naive->blocks[id].demoted_at = ++naive->now;
    }
}

static void drop(naive_index_t *naive, uint32_t id)
{
    naive_block_t *block = &naive->blocks[id];
    if (!block->old) {
        naive->stats.removed++;
        naive->stats.nodes--;
        naive->last_removed = block->hash;
        for (uint32_t g = 0; g < naive->config.groups; g++) {
            naive->stats.resident[g] -= naive->config.trailing[g] == 0 || block->payload[g] ? 1 : 0;
        }
    }
    *block = (naive_block_t){.used = false};
}

void naive_remove(naive_index_t *naive, uint32_t id)
{
    uint32_t parent = naive->blocks[id].parent;
    naive->stats.evicted++;
    naive->stats.evicted_before_use += naive->blocks[id].prefetched;
    drop(naive, id);
    demote(naive, parent);
}

uint32_t naive_insert(naive_index_t *naive, uint32_t parent, const fby_hash_t *hash, bool prefetched)
{
    uint32_t id = 0;
    while (naive->blocks[id].used) {
        id++;
    }
    naive->blocks[id] = (naive_block_t){
        .used = true,
        .prefetched = prefetched,
        .hash = *hash,
        .parent = parent,
        .block = parent == FBY_NONE ? 0 : naive->blocks[parent].block + 1,
        .published_at = ++naive->now,
        .used_at = naive->now,
    };
    naive->stats.nodes++;
    naive->stats.published++;
    for (uint32_t g = 0; g < naive->config.groups; g++) {
        naive->stats.resident[g] += naive->config.trailing[g] == 0 ? 1 : 0;
    }
    return id;
}

void naive_attach(naive_index_t *naive, uint32_t id, uint32_t group)
{
    naive->blocks[id].payload[group] = true;
    naive->blocks[id].payload_used_at[group] = ++naive->now;
    naive->stats.resident[group]++;
}

/* ---- Pins ---- */

static void hold_clears_prefetched(naive_index_t *naive, uint32_t id, fby_pin_class_t class_)
{
    for (uint32_t at = id; class_ == FBY_PIN_HOLD && at != FBY_NONE; at = naive->blocks[at].parent) {
        naive->blocks[at].prefetched = false;
    }
}

void naive_pin(naive_index_t *naive, uint32_t id, fby_pin_class_t class_)
{
    naive->blocks[id].pins[class_]++;
    hold_clears_prefetched(naive, id, class_);
    naive_protect(naive);
    for (uint32_t at = id; at != FBY_NONE; at = naive->blocks[at].parent) {
        naive->blocks[at].cold = false;
    }
}

/* After a pin of `id` went: what came free counts as used, deepest first. Cold only while nothing else hangs on it. */
static void settle(naive_index_t *naive, uint32_t id, bool cold)
{
    uint32_t below = FBY_NONE;
    naive_protect(naive);
    while (id != FBY_NONE && !naive->protected_[id]) {
        uint32_t parent = naive->blocks[id].parent;
        if (naive->blocks[id].old) {
            drop(naive, id);
        } else {
            uint32_t children = count_children(naive, id);
            bool alone = children == 0 || (children == 1 && below != FBY_NONE && naive->blocks[below].cold);
            use(naive, id, cold && alone);
        }
        below = id;
        id = parent;
    }
}

void naive_unpin(naive_index_t *naive, uint32_t id, fby_pin_class_t class_, bool cold)
{
    naive->blocks[id].pins[class_]--;
    settle(naive, id, cold);
}

void naive_pin_payload(naive_index_t *naive, uint32_t id, uint32_t group, fby_pin_class_t class_)
{
    naive->blocks[id].payload_pins[group][class_]++;
    for (uint32_t at = id; at != FBY_NONE; at = naive->blocks[at].parent) {
        naive->blocks[at].cold = false;
    }
}

void naive_unpin_payload(naive_index_t *naive, uint32_t id, uint32_t group, fby_pin_class_t class_)
{
    naive_block_t *block = &naive->blocks[id];
    block->payload_pins[group][class_]--;
    if (payload_pins(block, group) == 0) {
        if (block->old) {
            block->payload[group] = false;
        } else {
            block->payload_used_at[group] = ++naive->now;
            block->spared = false;
        }
    }
    settle(naive, id, false);
}

void naive_touch(naive_index_t *naive, uint32_t id)
{
    uint32_t end = naive->blocks[id].block + 1;
    naive_protect(naive);
    for (; id != FBY_NONE && !naive->protected_[id]; id = naive->blocks[id].parent) {
        use(naive, id, false);
        for (uint32_t g = 0; g < naive->config.groups; g++) {
            if (naive->config.trailing[g] > 0 && naive->blocks[id].block + naive->config.trailing[g] >= end) {
                naive->blocks[id].payload_used_at[g] = ++naive->now;
            }
        }
    }
}

void naive_reset(naive_index_t *naive)
{
    naive_protect(naive);
    for (uint32_t i = 0; i < naive->config.max_nodes; i++) {
        naive_block_t *block = &naive->blocks[i];
        if (!is_current(block)) {
            continue;
        }
        if (!naive->protected_[i]) {
            drop(naive, i);
            continue;
        }
        naive->stats.removed++;
        block->old = true;
        for (uint32_t g = 0; g < naive->config.groups; g++) {
            block->payload[g] = block->payload[g] && payload_pins(block, g) > 0;
        }
    }
    naive->stats.nodes = 0;
    for (uint32_t g = 0; g < naive->config.groups; g++) {
        naive->stats.resident[g] = 0;
    }
}

/* ---- Evicting ---- */

/* Rank of a candidate; the smallest pair goes. The policy's own order comes last. */
static void rank(const naive_index_t *naive, const naive_block_t *block, uint64_t *major, uint64_t *minor)
{
    bool list = naive->config.eviction == FBY_EVICT_LRU;
    *major = block->cold ? 0 : 2;
    if (block->spared && !list) {
        *major += 1;
    }
    *major <<= 32;
    *minor = block->used_at;
    switch (naive->config.eviction) {
    case FBY_EVICT_LFU:
        *major += block->uses;
        break;
    case FBY_EVICT_SLRU:
        *major += block->uses >= 2;
        break;
    case FBY_EVICT_FIFO:
        *minor = block->published_at;
        break;
    case FBY_EVICT_FILO:
        *minor = UINT64_MAX - block->published_at;
        break;
    case FBY_EVICT_MRU:
        *minor = UINT64_MAX - block->used_at;
        break;
    default:
        if (block->cold && block->demoted_at > 0) {
            *minor = 0; /* the last demoted one is next; there is more than one at a time only in different chains */
        }
        break;
    }
}

static bool goes_before(const naive_index_t *naive, const naive_block_t *a, const naive_block_t *b)
{
    uint64_t a_major, a_minor, b_major, b_minor;
    rank(naive, a, &a_major, &a_minor);
    rank(naive, b, &b_major, &b_minor);
    if (a_major != b_major) {
        return a_major < b_major;
    }
    return a_minor != b_minor ? a_minor < b_minor : a->demoted_at > b->demoted_at;
}

static uint32_t victim(naive_index_t *naive)
{
    uint32_t best = FBY_NONE;
    naive_protect(naive);
    for (uint32_t i = 0; i < naive->config.max_nodes; i++) {
        if (!is_current(&naive->blocks[i]) || naive->protected_[i] || !naive_is_leaf(naive, i)) {
            continue;
        }
        if (best == FBY_NONE || goes_before(naive, &naive->blocks[i], &naive->blocks[best])) {
            best = i;
        }
    }
    return best;
}

static bool is_sole_checkpoint(const naive_index_t *naive, uint32_t id)
{
    const naive_block_t *block = &naive->blocks[id];
    if (!has_trailing(naive) || block->spared || block->cold || !naive_is_leaf(naive, id) ||
        !has_all_payloads(naive, id)) {
        return false;
    }
    uint32_t distance = 1;
    for (uint32_t at = block->parent; at != FBY_NONE && distance <= 64; at = naive->blocks[at].parent, distance++) {
        if (has_all_payloads(naive, at)) {
            return false;
        }
    }
    return true;
}

static bool evict_payload(naive_index_t *naive, uint32_t group)
{
    for (uint32_t chances = 4;;) {
        uint32_t oldest = FBY_NONE;
        for (uint32_t i = 0; i < naive->config.max_nodes; i++) {
            const naive_block_t *block = &naive->blocks[i];
            if (is_current(block) && block->payload[group] && payload_pins(block, group) == 0 &&
                (oldest == FBY_NONE || block->payload_used_at[group] < naive->blocks[oldest].payload_used_at[group])) {
                oldest = i;
            }
        }
        if (oldest == FBY_NONE) {
            return false;
        }
        if (chances > 0 && naive_evictable(naive, group) > 1 && is_sole_checkpoint(naive, oldest)) {
            chances--;
            naive->blocks[oldest].spared = true;
            naive->blocks[oldest].payload_used_at[group] = ++naive->now;
            continue;
        }
        naive->blocks[oldest].payload[group] = false;
        naive->stats.resident[group]--;
        naive->stats.payload_evicted++;
        demote(naive, oldest);
        return true;
    }
}

bool naive_evict(naive_index_t *naive, uint32_t group)
{
    if (naive->config.trailing[group] > 0) {
        return evict_payload(naive, group);
    }
    for (;;) {
        uint32_t id = victim(naive);
        if (id == FBY_NONE) {
            return false;
        }
        if (naive->chances > 0 && count_unprotected(naive) > naive->blocks[id].block + 1 &&
            is_sole_checkpoint(naive, id)) {
            naive->chances--;
            if (naive->config.eviction == FBY_EVICT_LRU) {
                naive_touch(naive, id);
            }
            naive->blocks[id].spared = true;
            continue;
        }
        naive->chances = 4;
        naive_remove(naive, id);
        return true;
    }
}
