#include "sim/rig.h"

#include <string.h>

#include "sim/memory.h"

void rig_model_cover(rig_t *rig)
{
    uint32_t need = rig->registry.capacity, had = rig->model_capacity, groups = rig->config.core.groups;
    if (need <= had)
        return;
    rig->resident = sim_resized(rig->resident, need, sizeof(*rig->resident));
    rig->old = sim_resized(rig->old, need, sizeof(*rig->old));
    rig->children = sim_resized(rig->children, need, sizeof(*rig->children));
    rig->reading = sim_resized(rig->reading, (size_t)need * groups, sizeof(*rig->reading));
    memset(rig->resident + had, 0, need - had);
    memset(rig->old + had, 0, need - had);
    memset(rig->children + had, 0, (need - had) * sizeof(*rig->children));
    memset(rig->reading + (size_t)had * groups, 0, (size_t)(need - had) * groups * sizeof(*rig->reading));
    rig->model_capacity = need;
}

static void published(rig_t *rig, uint32_t node, const fby_core_event_t *event)
{
    const chain_node_t *block = &rig->registry.node[node];
    if (rig->resident[node])
        rig_fail(rig, "block %u was published twice", block->block);
    if (block->parent != FBY_NONE && !rig->resident[block->parent])
        rig_fail(rig, "V13: block %u was published without its parent", block->block);
    if (event->block != block->block)
        rig_fail(rig, "block %u was announced as %u", block->block, event->block);
    rig->old_count -= rig->old[node];
    rig->old[node] = 0;
    rig->resident[node] = 1;
    rig->resident_count++;
    if (block->parent != FBY_NONE)
        rig->children[block->parent]++;
    if (rig->published_count == rig->published_capacity) {
        rig->published_capacity = rig->published_capacity ? rig->published_capacity * 2 : 64;
        rig->published = sim_resized(rig->published, rig->published_capacity, sizeof(*rig->published));
    }
    rig->published[rig->published_count++] = node;
}

static void removed(rig_t *rig, uint32_t node)
{
    const chain_node_t *block = &rig->registry.node[node];
    if (rig->old[node]) { /* swept in any order */
        rig->old[node] = 0;
        rig->old_count--;
        return;
    }
    if (!rig->resident[node])
        rig_fail(rig, "block %u was removed, but was not resident", block->block);
    if (rig->children[node])
        rig_fail(rig, "V13: block %u was removed before its children", block->block);
    rig->resident[node] = 0;
    rig->resident_count--;
    if (block->parent != FBY_NONE && rig->children[block->parent])
        rig->children[block->parent]--;
}

void rig_model_event(rig_t *rig, const fby_core_event_t *event)
{
    if (!rig->config.model)
        return;
    uint32_t node = chain_find(&rig->registry, &event->hash);
    if (node == FBY_NONE) {
        rig_fail(rig, "an event names a hash that nobody made");
        return;
    }
    if (event->type == FBY_CORE_PUBLISHED)
        published(rig, node, event);
    else
        removed(rig, node);
}

void rig_model_reset(rig_t *rig)
{
    for (uint32_t i = 0; i < rig->registry.count; i++)
        rig->old[i] |= rig->resident[i];
    if (rig->model_capacity == 0)
        return;
    rig->old_count += rig->resident_count;
    memset(rig->resident, 0, rig->model_capacity);
    memset(rig->children, 0, rig->model_capacity * sizeof(*rig->children));
    rig->resident_count = 0;
}

uint32_t rig_last_token_cap(const rig_t *rig, const rig_seq_t *seq)
{
    return seq->tokens ? (uint32_t)((seq->tokens - 1) / rig->config.core.block_tokens) : 0;
}

static bool usable(rig_t *rig, const rig_seq_t *seq, uint32_t end)
{
    for (uint32_t g = 0; g < rig->config.core.groups; g++) {
        uint32_t trailing = rig->config.core.trailing[g];
        for (uint32_t b = end > trailing ? end - trailing : 0; trailing && b < end; b++) {
            uint32_t node = fby_index_find(rig->index, &seq->hashes[b]);
            if (node == FBY_NONE || fby_index_slot(rig->index, node, g) == FBY_NONE)
                return false;
        }
    }
    return true;
}

uint32_t rig_model_lookup(rig_t *rig, const rig_seq_t *seq)
{
    uint32_t end = 0, cap = FBY_MIN(rig_last_token_cap(rig, seq), seq->blocks);
    while (end < cap && rig->resident[seq->nodes[end]])
        end++;
    while (end && !usable(rig, seq, end))
        end--;
    return end;
}

typedef struct visit {
    rig_t *rig;
    uint32_t nodes;
} visit_t;

static void visit_node(void *arg, uint32_t node)
{
    visit_t *visit = arg;
    rig_t *rig = visit->rig;
    const fby_hash_t *hash = fby_index_hash(rig->index, node);
    uint32_t known = chain_find(&rig->registry, hash);
    visit->nodes++;
    if (known == FBY_NONE || !rig->resident[known]) {
        rig_fail(rig, "the index holds block %u, which was never announced", fby_index_block(rig->index, node));
        return;
    }
    for (uint32_t g = 0; g < rig->config.core.groups; g++) {
        uint32_t slot = fby_index_slot(rig->index, node, g);
        if (slot == FBY_NONE) {
            if (!rig->config.core.trailing[g])
                rig_fail(rig, "resident block %u lacks group %u", rig->registry.node[known].block, g);
            continue;
        }
        if (rig->content[slot] != chain_content(hash, g))
            rig_fail(rig, "resident block %u has wrong bytes in group %u", rig->registry.node[known].block, g);
    }
}

void rig_model_check(rig_t *rig)
{
    visit_t visit = {rig, 0};
    fby_index_each(rig->index, visit_node, &visit);
    if (visit.nodes != rig->resident_count)
        rig_fail(rig, "the index holds %u blocks, %u were announced", visit.nodes, rig->resident_count);
    if (rig->old_count && !fby_core_resetting(rig->core))
        rig_fail(rig, "the reset is done, but %u blocks were never announced as removed", rig->old_count);
}
