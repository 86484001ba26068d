/*
 * reset.c - a new generation, and the end of everything.
 *
 * At a reset the index sees nothing old any more, every session is sealed and discarded, every lease dropped, staging of
 * puts retires. What is still read or written by somebody stays until that use ends; then the reset is done.
 */
#include "core/internal.h"

/* Nobody of the new generation may join what was begun before the reset. */
static void leave_flight(fby_core_t *core, uint32_t session)
{
    for (uint32_t e = fby_sess(core, session)->ledger_head; e != FBY_NONE; e = core->entries[e].next) {
        uint32_t head = fby_own_entry(core, e);
        for (uint32_t slot = core->own[head].next; slot != head; slot = core->own[slot].next)
            fby_flight_remove(core, slot);
    }
}

/* Orphans of puts that wait for their store write retire: freed when that write ends. */
static void retire_orphans(fby_core_t *core, uint32_t head)
{
    for (uint32_t slot = core->io[head].next; slot != head; slot = core->io[slot].next)
        if (core->items[slot].orphan && core->config.slots->slot[slot].state == FBY_SLOT_STAGING)
            fby_slot_move(core->config.slots, slot, FBY_SLOT_STAGING, FBY_SLOT_RETIRED, core->items[slot].put);
}

static void discard_all(fby_core_t *core, fby_reason_t reason)
{
    for (uint32_t id = 0; id < core->config.session_slots; id++) {
        fby_sess_t *s = fby_sess(core, id);
        if (!s->used || s->state == FBY_EXPIRED)
            continue;
        if (s->ledger_head != FBY_NONE && !s->old && reason == FBY_REASON_RESET) {
            s->old = 1;
            core->old_unsettled++;
        }
        fby_session_discard(core, id, reason);
        leave_flight(core, id);
        if (s->lease)
            fby_lease_end(core, id);
        fby_mark_dirty(core, id);
    }
}

int fby_core_reset(fby_core_t *core, uint64_t now, bool bump)
{
    int rc = fby_core_enter(core, now);
    if (rc || core->closed)
        return rc ? rc : FBY_E_CLOSED;
    core->resetting = core->sweeping = true;
    discard_all(core, FBY_REASON_RESET);
    core->generation++;
    if (bump)
        core->epoch++;
    fby_index_reset(core->config.index);
    for (uint32_t id = 0; id < core->config.put_slots; id++)
        if (core->puts[id].used)
            fby_put_reset(core, id);
    retire_orphans(core, fby_io_writes(core));
    for (uint32_t op = 0; op < core->config.part_slots; op++)
        if (core->ops[op].used && core->ops[op].write)
            retire_orphans(core, fby_io_op(core, op));
    for (uint32_t id = 0; id < core->config.hold_slots; id++)
        if (core->holds[id].used)
            fby_hold_reset(core, id);
    fby_core_leave(core);
    return 0;
}

static uint32_t retired_slots(const fby_core_t *core)
{
    uint32_t retired = 0;
    for (uint32_t g = 0; g < core->config.groups; g++)
        retired += core->config.slots->in_state[g][FBY_SLOT_RETIRED];
    return retired;
}

/* Sweeps a step; done with an empty old ledger and nothing retired. */
void fby_reset_continue(fby_core_t *core)
{
    if (!core->resetting)
        return;
    bool swept_before = !core->sweeping;
    core->sweeping = fby_index_sweep(core->config.index);
    if (!core->sweeping && !swept_before)
        fby_room_freed(core);
    if (core->sweeping)
        return;
    if (core->old_unsettled > 0 || retired_slots(core) > 0 || !fby_index_clean(core->config.index))
        return;
    core->resetting = false;
    fby_room_freed(core);
    fby_core_emit(core, &(fby_core_event_t){.type = FBY_CORE_RESET_DONE});
}

bool fby_core_resetting(const fby_core_t *core)
{
    return core->resetting;
}

uint32_t fby_core_generation(const fby_core_t *core)
{
    return core->generation;
}

uint64_t fby_core_epoch(const fby_core_t *core)
{
    return core->epoch;
}

void fby_core_shutdown(fby_core_t *core, uint64_t now)
{
    if (fby_core_enter(core, now) || core->closed)
        return;
    core->closed = true;
    discard_all(core, FBY_REASON_SHUTDOWN);
    fby_core_leave(core);
}

bool fby_core_idle(const fby_core_t *core)
{
    return core->unsettled == 0 && core->ops_reads == 0 && core->ops_writes == 0 && core->write_queue == 0 &&
           !core->work_left;
}
