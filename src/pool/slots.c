#include "pool/slots.h"

#include <stdio.h>

#define BIT(state) (1u << FBY_SLOT_##state)

/* FBY_SLOT_MOVES: row = from, bits = to. free -> staging happens in fby_slot_take alone, so that nobody takes a slot
   out of the middle of a free list. */
static const uint8_t legal_moves[FBY_SLOT_STATE_COUNT] = {
    [FBY_SLOT_FREE] = 0,
    [FBY_SLOT_STAGING] = BIT(FREE) | BIT(STAGING) | BIT(RESIDENT) | BIT(PRIVATE) | BIT(QUARANTINE) | BIT(RETIRED),
    [FBY_SLOT_RESIDENT] = BIT(FREE) | BIT(RETIRED),
    [FBY_SLOT_PRIVATE] = BIT(FREE) | BIT(PRIVATE) | BIT(RESIDENT) | BIT(RETIRED),
    [FBY_SLOT_QUARANTINE] = BIT(FREE),
    [FBY_SLOT_RETIRED] = BIT(FREE) | BIT(QUARANTINE),
};

const char *fby_slot_state_name(fby_slot_state_t state)
{
    static const char *const names[] = {
#define FBY_X(name, text) text,
        FBY_SLOT_STATE_MAP(FBY_X)
#undef FBY_X
    };
    return (unsigned)state < FBY_SLOT_STATE_COUNT ? names[state] : "unknown";
}

size_t fby_slots_bytes(uint32_t total)
{
    return (size_t)fby_align_up((uint64_t)total * sizeof(fby_slot_t), 64);
}

void fby_slots_init(fby_slots_t *slots, uint32_t groups, const uint32_t *counts, void *memory)
{
    *slots = (fby_slots_t){.slot = memory, .groups = groups};
    for (uint32_t g = 0; g < groups; g++) {
        uint32_t first = slots->total;
        slots->first[g] = first;
        slots->count[g] = counts[g];
        slots->in_state[g][FBY_SLOT_FREE] = counts[g];
        slots->free_head[g] = counts[g] > 0 ? first : FBY_NONE;
        for (uint32_t i = 0; i < counts[g]; i++) {
            slots->slot[first + i] = (fby_slot_t){
                .owner = FBY_NONE,
                .next = i + 1 < counts[g] ? first + i + 1 : FBY_NONE,
                .state = FBY_SLOT_FREE,
                .group = (uint8_t)g,
            };
        }
        slots->total += counts[g];
    }
}

static void change_state(fby_slots_t *slots, uint32_t slot, fby_slot_state_t to, uint32_t owner)
{
    fby_slot_t *entry = &slots->slot[slot];
    slots->in_state[entry->group][entry->state]--;
    slots->in_state[entry->group][to]++;
    entry->state = (uint8_t)to;
    entry->owner = owner;
}

uint32_t fby_slot_take(fby_slots_t *slots, uint32_t group, uint32_t owner)
{
    uint32_t slot = slots->free_head[group];
    if (slot == FBY_NONE) {
        return FBY_NONE;
    }
    slots->free_head[group] = slots->slot[slot].next;
    slots->slot[slot].next = FBY_NONE;
    change_state(slots, slot, FBY_SLOT_STAGING, owner);
    return slot;
}

static bool refuse(fby_slots_t *slots, uint32_t slot, fby_slot_state_t from, fby_slot_state_t to)
{
    if (slots->violations++ == 0) {
        const char *is =
            slot < slots->total ? fby_slot_state_name((fby_slot_state_t)slots->slot[slot].state) : "no slot";
        snprintf(slots->violation, sizeof(slots->violation), "V7: slot %u is %s, refused %s -> %s", slot, is,
                 fby_slot_state_name(from), fby_slot_state_name(to));
    }
    return false;
}

bool fby_slot_move(fby_slots_t *slots, uint32_t slot, fby_slot_state_t from, fby_slot_state_t to, uint32_t owner)
{
    if (slot >= slots->total || (unsigned)from >= FBY_SLOT_STATE_COUNT || (unsigned)to >= FBY_SLOT_STATE_COUNT ||
        slots->slot[slot].state != from || ((uint32_t)legal_moves[from] & (1u << to)) == 0) {
        return refuse(slots, slot, from, to);
    }
    fby_slot_t *entry = &slots->slot[slot];
    change_state(slots, slot, to, to == FBY_SLOT_FREE ? FBY_NONE : owner);
    if (to == FBY_SLOT_FREE) {
        entry->generation++;
        entry->next = slots->free_head[entry->group];
        slots->free_head[entry->group] = slot;
        if (slots->on_free != NULL) {
            slots->on_free(slots->on_free_arg, slot);
        }
    }
    return true;
}

static bool check_group(const fby_slots_t *slots, uint32_t g, char *why, size_t why_size)
{
    uint32_t in_state[FBY_SLOT_STATE_COUNT] = {0};
    uint32_t end = slots->first[g] + slots->count[g];
    for (uint32_t s = slots->first[g]; s < end; s++) {
        const fby_slot_t *entry = &slots->slot[s];
        if (entry->state >= FBY_SLOT_STATE_COUNT || entry->group != g) {
            snprintf(why, why_size, "slot %u has state %u and group %u, expected group %u", s, entry->state,
                     entry->group, g);
            return false;
        }
        in_state[entry->state]++;
    }
    for (uint32_t state = 0; state < FBY_SLOT_STATE_COUNT; state++) {
        if (in_state[state] != slots->in_state[g][state]) {
            snprintf(why, why_size, "group %u: counter says %u %s slots, there are %u", g, slots->in_state[g][state],
                     fby_slot_state_name((fby_slot_state_t)state), in_state[state]);
            return false;
        }
    }
    uint32_t listed = 0;
    for (uint32_t s = slots->free_head[g]; s != FBY_NONE; s = slots->slot[s].next) {
        if (s < slots->first[g] || s >= end || slots->slot[s].state != FBY_SLOT_FREE || ++listed > slots->count[g]) {
            snprintf(why, why_size, "group %u: the free list runs into slot %u, which does not belong there", g, s);
            return false;
        }
    }
    if (listed != in_state[FBY_SLOT_FREE]) {
        snprintf(why, why_size, "group %u: %u slots are free but %u on the free list", g, in_state[FBY_SLOT_FREE],
                 listed);
        return false;
    }
    return true;
}

bool fby_slots_check(const fby_slots_t *slots, char *why, size_t why_size)
{
    uint32_t total = 0;
    for (uint32_t g = 0; g < slots->groups; g++) {
        if (slots->first[g] != total) {
            snprintf(why, why_size, "group %u starts at slot %u, expected %u", g, slots->first[g], total);
            return false;
        }
        total += slots->count[g];
        if (!check_group(slots, g, why, why_size)) {
            return false;
        }
    }
    if (total != slots->total) {
        snprintf(why, why_size, "the groups have %u slots, the total says %u", total, slots->total);
        return false;
    }
    return true;
}
