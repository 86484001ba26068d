#include "index/internal.h"

#include <stdio.h>
#include <string.h>

#include "index/evict.h"

/* ---- Memory ---- */

/* Hands out pieces of one block of memory; with base NULL it only adds up. Pieces start on cache lines. */
typedef struct layout {
    uint8_t *base;
    uint64_t used;
} layout_t;

static void *layout_take(layout_t *layout, uint64_t count, size_t size)
{
    void *piece = layout->base != NULL ? layout->base + layout->used : NULL;
    layout->used = fby_align_up(layout->used + count * size, 64);
    return piece;
}

static void layout_payloads(layout_t *layout, fby_payloads_t *payloads, uint64_t nodes)
{
    payloads->pins = layout_take(layout, nodes, sizeof(*payloads->pins));
    payloads->links = layout_take(layout, nodes + 1, sizeof(*payloads->links));
}

/* Sets the pointers of *index, which may lie in the memory that is laid out. */
static void layout_index(layout_t *layout, const fby_index_config_t *config, fby_index_t *index)
{
    uint64_t nodes = config->max_nodes;
    layout_take(layout, 1, sizeof(fby_index_t));
    index->counters = layout_take(layout, 1, sizeof(*index->counters));
    index->walks = layout_take(layout, FBY_WALKS, sizeof(*index->walks));
    index->nodes = layout_take(layout, nodes, sizeof(*index->nodes));
    /* Bucket numbers are 32 bits wide. */
    index->bucket_count = FBY_MIN(nodes * FBY_BUCKETS_PER_NODE, UINT64_C(1) << 32);
    index->buckets = layout_take(layout, index->bucket_count, sizeof(*index->buckets));
    if (fby_evict_policy(config->eviction)->list) {
        index->links = layout_take(layout, nodes + FBY_LISTS, sizeof(*index->links));
    } else {
        void *memory = layout_take(layout, fby_heap_bytes(config->max_nodes), 1);
        if (memory != NULL) {
            fby_heap_init(&index->heap, config->max_nodes, memory);
        }
    }
    for (uint32_t g = 0; g < config->groups; g++) {
        index->slot_of[g] = layout_take(layout, nodes, sizeof(*index->slot_of[g]));
        if (config->trailing[g] > 0) {
            layout_payloads(layout, &index->payloads[g], nodes);
        }
    }
}

size_t fby_index_bytes(const fby_index_config_t *config)
{
    layout_t layout = {0};
    fby_index_t scratch = {0};
    layout_index(&layout, config, &scratch);
    return (size_t)layout.used;
}

fby_index_t *fby_index_init(const fby_index_config_t *config, void *memory)
{
    layout_t layout = {.base = memory};
    fby_index_t *index = memory;
    layout_index(&layout, config, index);
    index->config = *config;
    index->policy = fby_evict_policy(config->eviction);
    index->free_head = FBY_NONE;
    index->walk_step = FBY_WALK_STEP;
    index->next_ticket = 1;
    index->chances = FBY_SECOND_CHANCES;
    for (uint32_t g = 0; g < config->groups; g++) {
        if (config->trailing[g] > 0) {
            index->has_trailing = true;
            fby_list_init(index->payloads[g].links, config->max_nodes);
        } else {
            index->all_bytes += config->slot_bytes[g];
        }
    }
    index->policy->init(index);
    return index;
}

bool fby_index_violation(fby_index_t *index, const char *what, uint32_t id)
{
    fby_slots_t *slots = index->config.slots;
    if (slots->violations++ == 0) {
        snprintf(slots->violation, sizeof(slots->violation), "index: %s (node %u)", what, id);
    }
    return false;
}

/* ---- Finding ---- */

uint32_t fby_index_find(const fby_index_t *index, const fby_hash_t *hash)
{
    index->counters->probes++;
    return fby_table_find(index, hash, true);
}

/* Residency is monotone along a chain (V13): doubling steps until a miss, then bisection from the last hit. */
uint32_t fby_index_match(const fby_index_t *index, const fby_hash_t *hashes, uint32_t known, uint32_t n, uint32_t *node)
{
    uint32_t last = FBY_NONE; /* node of block hit - 1, once probed */
    uint32_t hit = known, miss = n;
    for (uint64_t step = 1; hit < miss; step *= 2) {
        uint32_t at = (uint32_t)FBY_MIN((uint64_t)hit + step, n) - 1;
        uint32_t id = fby_index_find(index, &hashes[at]);
        if (id == FBY_NONE) {
            miss = at;
            break;
        }
        last = id;
        hit = at + 1;
    }
    while (hit < miss) {
        uint32_t at = hit + (miss - hit) / 2;
        uint32_t id = fby_index_find(index, &hashes[at]);
        if (id == FBY_NONE) {
            miss = at;
        } else {
            last = id;
            hit = at + 1;
        }
    }
    if (hit > 0 && last == FBY_NONE) {
        last = fby_index_find(index, &hashes[hit - 1]);
    }
    *node = last;
    return hit;
}

uint32_t fby_index_parent(const fby_index_t *index, uint32_t node)
{
    return index->nodes[node].parent;
}

uint32_t fby_index_block(const fby_index_t *index, uint32_t node)
{
    return index->nodes[node].block;
}

const fby_hash_t *fby_index_hash(const fby_index_t *index, uint32_t node)
{
    return &index->nodes[node].hash;
}

uint32_t fby_index_slot(const fby_index_t *index, uint32_t node, uint32_t group)
{
    return index->slot_of[group][node];
}

/* Where the checkpoint search stands in the chain: it asks for blocks in descending order. */
typedef struct descent {
    const fby_index_t *index;
    uint32_t at;   /* node of the block asked last */
    uint32_t last; /* node of the last block below the boundary that is still possible */
} descent_t;

static bool descent_present(void *arg, uint32_t block, uint32_t group)
{
    descent_t *descent = arg;
    const fby_index_t *index = descent->index;
    while (index->nodes[descent->at].block > block) {
        descent->at = index->nodes[descent->at].parent;
    }
    if (index->slot_of[group][descent->at] != FBY_NONE) {
        return true;
    }
    descent->last = index->nodes[descent->at].parent;
    return false;
}

uint32_t fby_index_checkpoint(const fby_index_t *index, uint32_t end, uint32_t node, uint32_t *out_node)
{
    descent_t descent = {.index = index, .at = node, .last = node};
    const fby_index_config_t *config = &index->config;
    end = fby_checkpoint_below(config->trailing, config->groups, end, descent_present, &descent);
    *out_node = end > 0 ? descent.last : FBY_NONE;
    return end;
}

/* ---- Inserting ---- */

bool fby_index_slot_usable(const fby_index_t *index, uint32_t group, uint32_t slot)
{
    const fby_slots_t *slots = index->config.slots;
    if (slot >= slots->total || slots->slot[slot].group != group) {
        return false;
    }
    return slots->slot[slot].state == FBY_SLOT_STAGING || slots->slot[slot].state == FBY_SLOT_PRIVATE;
}

void fby_index_slot_adopt(fby_index_t *index, uint32_t slot, uint32_t id)
{
    fby_slots_t *slots = index->config.slots;
    fby_slot_move(slots, slot, (fby_slot_state_t)slots->slot[slot].state, FBY_SLOT_RESIDENT, id);
}

static bool insert_allowed(fby_index_t *index, uint32_t parent, const fby_hash_t *hash, const uint32_t *slots)
{
    if (parent != FBY_NONE && (parent >= index->fresh || !fby_node_is_current(index, &index->nodes[parent]))) {
        return fby_index_violation(index, "V13: insert under a parent that is not indexed", parent);
    }
    for (uint32_t g = 0; g < index->config.groups; g++) {
        if (index->config.trailing[g] == 0 && !fby_index_slot_usable(index, g, slots[g])) {
            return fby_index_violation(index, "insert with a slot that is neither staging nor private", parent);
        }
    }
    uint32_t twin = fby_table_find(index, hash, true);
    return twin == FBY_NONE || fby_index_violation(index, "insert of a hash that is indexed", twin);
}

static uint32_t node_alloc(fby_index_t *index)
{
    uint32_t id = index->free_head;
    if (id != FBY_NONE) {
        index->free_head = index->nodes[id].parent;
    } else if (index->fresh < index->config.max_nodes) {
        id = index->fresh++;
    } else {
        return FBY_NONE;
    }
    index->in_use++;
    return id;
}

static void node_fill(fby_index_t *index, uint32_t id, uint32_t parent, const fby_hash_t *hash, const uint32_t *slots)
{
    index->nodes[id] = (fby_node_t){
        .hash = *hash,
        .parent = parent,
        .block = parent == FBY_NONE ? 0 : index->nodes[parent].block + 1,
        .generation = index->generation,
        .state = FBY_NODE_INDEXED,
    };
    for (uint32_t g = 0; g < index->config.groups; g++) {
        bool trailing = index->config.trailing[g] > 0;
        index->slot_of[g][id] = trailing ? FBY_NONE : slots[g];
        if (trailing) {
            memset(index->payloads[g].pins[id], 0, sizeof(index->payloads[g].pins[id]));
            fby_list_init(index->payloads[g].links, id);
        } else {
            fby_index_slot_adopt(index, slots[g], id);
            index->stats.resident[g]++;
        }
    }
}

uint32_t fby_index_insert(fby_index_t *index, uint32_t parent, const fby_hash_t *hash, const uint32_t *slots,
                          bool prefetched)
{
    if (!insert_allowed(index, parent, hash, slots)) {
        return FBY_NONE;
    }
    uint32_t id = node_alloc(index);
    if (id == FBY_NONE) {
        return FBY_NONE;
    }
    /* Listeners keep a set of hashes: an old block of this name must be gone before the new one comes. */
    uint32_t old = fby_table_find(index, hash, false);
    if (old != FBY_NONE) {
        fby_node_unhash(index, old);
    }
    node_fill(index, id, parent, hash, slots);
    fby_node_t *node = &index->nodes[id];
    node->flags |= prefetched ? FBY_NODE_PREFETCHED : 0;
    fby_table_add(index, id);
    bool under_cold = false;
    if (parent != FBY_NONE) {
        index->nodes[parent].children++;
        under_cold = (index->nodes[parent].flags & FBY_NODE_COLD) != 0;
        fby_node_refresh(index, parent);
    }
    node->flags |= under_cold || fby_node_ends_nothing(index, id) ? FBY_NODE_COLD : 0;
    index->policy->insert(index, id);
    index->unprotected++;
    index->stats.nodes++;
    index->stats.published++;
    if (index->config.event != NULL) {
        index->config.event(index->config.event_arg, true, hash, node->block);
    }
    return id;
}

/* ---- Looking ---- */

void fby_index_stats(const fby_index_t *index, fby_index_stats_t *stats)
{
    *stats = index->stats;
    stats->probes = index->counters->probes;
    for (uint32_t g = 0; g < index->config.groups; g++) {
        stats->payload_evictable[g] = index->payloads[g].unpinned;
    }
}

uint32_t fby_index_evictable(const fby_index_t *index, uint32_t group)
{
    if (index->config.trailing[group] > 0) {
        return index->payloads[group].unpinned;
    }
    return (uint32_t)fby_sub_sat(index->unprotected, index->pending_blocks[FBY_REF_PROTECT]);
}

void fby_index_each(const fby_index_t *index, void (*visit)(void *arg, uint32_t node), void *arg)
{
    for (uint32_t id = 0; id < index->fresh; id++) {
        if (fby_node_is_current(index, &index->nodes[id])) {
            visit(arg, id);
        }
    }
}
