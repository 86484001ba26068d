/*
 * slots.h - who owns each slot of the pool. Pure bookkeeping: no memory is touched, nothing is allocated.
 *
 * A slot holds one block of one group. Slot ids run over all groups: group g owns [first[g], first[g] + count[g]).
 *
 * INVARIANT (V7)  each slot is in exactly one state, and every change is one of FBY_SLOT_MOVES. A move names the state
 * it expects, so a second free is impossible: it is refused, counted as a violation, and nothing changes.
 */
#ifndef FBY_POOL_SLOTS_H
#define FBY_POOL_SLOTS_H

#include "base/base.h"
#include "forebay/forebay.h"

#define FBY_SLOT_STATE_MAP(X)                                                                                          \
    X(FREE, "free")             /* on its group's free list */                                                         \
    X(STAGING, "staging")       /* owner: a ledger entry or a put; invisible to the index */                           \
    X(RESIDENT, "resident")     /* owner: an index node */                                                             \
    X(PRIVATE, "private")       /* owner: a session or a hold; verified, parents not indexed */                        \
    X(QUARANTINE, "quarantine") /* an unfenced operation may still touch it; owner: that operation */                  \
    X(RETIRED, "retired")       /* of an older generation, somebody still reads or writes it; owner: node or put */

typedef enum fby_slot_state {
#define FBY_X(name, text) FBY_SLOT_##name,
    FBY_SLOT_STATE_MAP(FBY_X)
#undef FBY_X
        FBY_SLOT_STATE_COUNT
} fby_slot_state_t;

typedef struct fby_slot {
    uint32_t owner; /* meaning depends on the state, see above */
    uint32_t next;  /* free list; otherwise the owner's chain */
    uint8_t state;  /* fby_slot_state_t */
    uint8_t group;
    uint16_t generation; /* bumped at each return to free; debug aid, wraps */
} fby_slot_t;

typedef struct fby_slots {
    fby_slot_t *slot;
    uint32_t total, groups;
    uint32_t first[FBY_MAX_GROUPS], count[FBY_MAX_GROUPS];
    uint32_t free_head[FBY_MAX_GROUPS];
    uint32_t in_state[FBY_MAX_GROUPS][FBY_SLOT_STATE_COUNT];
    uint64_t violations;                       /* refused moves */
    char violation[96];                        /* the first one, in words */
    void (*on_free)(void *arg, uint32_t slot); /* debug painting; may be NULL; must not call back */
    void *on_free_arg;
} fby_slots_t;

/* Bytes of the slot array; multiple of 64. */
size_t fby_slots_bytes(uint32_t total);
/* `memory`: zeroed, fby_slots_bytes(sum of counts) long, owned by the caller. All slots start free, lowest id first. */
void fby_slots_init(fby_slots_t *slots, uint32_t groups, const uint32_t *counts, void *memory);
/* free -> staging(owner). FBY_NONE when the group has no free slot. O(1). */
uint32_t fby_slot_take(fby_slots_t *slots, uint32_t group, uint32_t owner);
/* from -> to with a new owner; to == FREE ignores owner. false (and a violation) when the slot is not in `from` or the
   move is not legal: staging -> free|staging|resident|private|quarantine|retired, resident -> free|retired,
   private -> free|private|resident|retired, quarantine -> free, retired -> free|quarantine. O(1). */
bool fby_slot_move(fby_slots_t *slots, uint32_t slot, fby_slot_state_t from, fby_slot_state_t to, uint32_t owner);
static inline uint32_t fby_slots_free(const fby_slots_t *slots, uint32_t group)
{
    return slots->in_state[group][FBY_SLOT_FREE];
}
/* Recomputes every counter and walks every free list: false with the reason in why. O(total). */
bool fby_slots_check(const fby_slots_t *slots, char *why, size_t why_size);
const char *fby_slot_state_name(fby_slot_state_t state);

#endif
