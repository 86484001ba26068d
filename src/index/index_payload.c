/*
 * index_payload.c - payloads of trailing groups: they attach to indexed nodes and have a recency of their own.
 *
 * A payload that nobody pins is on its group's list, used last in front, and may be evicted alone. A pin of a payload
 * is flat: it charges that payload, and protects the node, with all its ancestors, as any pin does.
 */
#include "index/internal.h"

static uint32_t pin_total(const fby_payloads_t *payloads, uint32_t id)
{
    uint32_t total = 0;
    for (uint32_t class_ = 0; class_ < FBY_PIN_CLASSES; class_++) {
        total += payloads->pins[id][class_];
    }
    return total;
}

static void list_add(fby_index_t *index, uint32_t group, uint32_t id)
{
    fby_payloads_t *payloads = &index->payloads[group];
    fby_list_push_front(payloads->links, index->config.max_nodes, id);
    payloads->unpinned++;
}

static void list_remove(fby_index_t *index, uint32_t group, uint32_t id)
{
    fby_payloads_t *payloads = &index->payloads[group];
    fby_list_remove(payloads->links, id);
    payloads->unpinned--;
}

/* The payload must be off the list. */
static void payload_free(fby_index_t *index, uint32_t group, uint32_t id)
{
    const fby_node_t *node = &index->nodes[id];
    fby_slot_state_t from = node->state == FBY_NODE_RETIRED ? FBY_SLOT_RETIRED : FBY_SLOT_RESIDENT;
    fby_slot_move(index->config.slots, index->slot_of[group][id], from, FBY_SLOT_FREE, FBY_NONE);
    index->slot_of[group][id] = FBY_NONE;
    if (fby_node_is_current(index, node)) {
        index->stats.resident[group]--;
    }
}

bool fby_index_attach(fby_index_t *index, uint32_t id, uint32_t group, uint32_t slot)
{
    if (id >= index->fresh || !fby_node_is_current(index, &index->nodes[id]) || index->config.trailing[group] == 0 ||
        index->slot_of[group][id] != FBY_NONE) {
        return false;
    }
    if (!fby_index_slot_usable(index, group, slot)) {
        return fby_index_violation(index, "attach of a slot that is neither staging nor private", id);
    }
    fby_index_slot_adopt(index, slot, id);
    index->slot_of[group][id] = slot;
    index->stats.resident[group]++;
    list_add(index, group, id);
    fby_node_warm(index, id);
    return true;
}

void fby_index_pin_payload(fby_index_t *index, uint32_t id, uint32_t group, fby_pin_class_t class_)
{
    if (!fby_pin_allowed(index, id)) {
        return;
    }
    if (index->config.trailing[group] == 0 || index->slot_of[group][id] == FBY_NONE) {
        fby_index_violation(index, "pin of a payload that is not resident", id);
        return;
    }
    fby_payloads_t *payloads = &index->payloads[group];
    if (pin_total(payloads, id) == 0) {
        list_remove(index, group, id);
    }
    if (payloads->pins[id][class_]++ == 0) {
        index->flat_bytes[class_] += index->config.slot_bytes[group];
    }
    fby_walk_start(
        index, (fby_walk_t){.node = id, .child = FBY_NONE, .end = FBY_NONE, .mask = 1u << FBY_REF_PROTECT, .delta = 1});
}

void fby_index_unpin_payload(fby_index_t *index, uint32_t id, uint32_t group, fby_pin_class_t class_)
{
    fby_payloads_t *payloads = &index->payloads[group];
    if (id >= index->fresh || index->nodes[id].state == FBY_NODE_FREE || index->config.trailing[group] == 0 ||
        payloads->pins[id][class_] == 0) {
        fby_index_violation(index, "unpin of a payload without a pin", id);
        return;
    }
    if (--payloads->pins[id][class_] == 0) {
        index->flat_bytes[class_] -= index->config.slot_bytes[group];
    }
    if (pin_total(payloads, id) == 0) {
        if (index->nodes[id].state == FBY_NODE_RETIRED) {
            payload_free(index, group, id);
        } else {
            list_add(index, group, id);
            index->nodes[id].flags &= (uint8_t)~FBY_NODE_SPARED;
        }
    }
    fby_walk_start(
        index,
        (fby_walk_t){.node = id, .child = FBY_NONE, .end = FBY_NONE, .mask = 1u << FBY_REF_PROTECT, .delta = -1});
}

void fby_payloads_drop(fby_index_t *index, uint32_t id)
{
    for (uint32_t g = 0; g < index->config.groups; g++) {
        if (index->config.trailing[g] == 0 || index->slot_of[g][id] == FBY_NONE) {
            continue;
        }
        if (pin_total(&index->payloads[g], id) > 0) {
            fby_slot_move(index->config.slots, index->slot_of[g][id], FBY_SLOT_RESIDENT, FBY_SLOT_RETIRED, id);
        } else {
            list_remove(index, g, id);
            payload_free(index, g, id);
        }
    }
}

void fby_payloads_touch(fby_index_t *index, uint32_t id, uint32_t end)
{
    for (uint32_t g = 0; index->has_trailing && g < index->config.groups; g++) {
        if ((uint64_t)index->nodes[id].block + index->config.trailing[g] < end || index->config.trailing[g] == 0 ||
            !fby_list_linked(index->payloads[g].links, id)) {
            continue;
        }
        fby_list_remove(index->payloads[g].links, id);
        fby_list_push_front(index->payloads[g].links, index->config.max_nodes, id);
    }
}

bool fby_payload_evict(fby_index_t *index, uint32_t group)
{
    fby_payloads_t *payloads = &index->payloads[group];
    uint32_t head = index->config.max_nodes, chances = FBY_SECOND_CHANCES, id;
    while ((id = fby_list_back(payloads->links, head)) != FBY_NONE) {
        if (chances > 0 && payloads->unpinned > 1 && fby_node_is_sole_checkpoint(index, id)) {
            chances--;
            index->nodes[id].flags |= FBY_NODE_SPARED;
            fby_list_remove(payloads->links, id);
            fby_list_push_front(payloads->links, head, id);
            fby_node_refresh(index, id);
            continue;
        }
        list_remove(index, group, id);
        payload_free(index, group, id);
        index->stats.payload_evicted++;
        fby_node_refresh(index, id);
        return true;
    }
    return false;
}
