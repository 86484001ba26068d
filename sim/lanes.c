#include "sim/lanes.h"

#include <string.h>

#include "sim/memory.h"

/* Ticks at one moment that continue left-over work: more would be a loop that never ends. */
#define LANES_MOST_TICKS 1000000u

typedef struct lane_query {
    bool live, hangs;
    fby_core_query_t query;
    uint8_t *present;
    uint32_t capacity;
    int status;
    uint64_t ends_at, order, lease_until;
} lane_query_t;

struct lanes {
    lane_query_t *query;
    uint64_t ticks, ticks_at;
};

void lanes_open(rig_t *rig)
{
    rig->lanes = sim_zeroed(1, sizeof(*rig->lanes));
    rig->lanes->query = sim_zeroed(rig->config.query_lanes, sizeof(*rig->lanes->query));
}

void lanes_close(rig_t *rig)
{
    for (uint32_t i = 0; i < rig->config.query_lanes; i++) {
        if (rig->lanes->query[i].live)
            rig_ref_drop(rig->lanes->query[i].query.ref);
        free(rig->lanes->query[i].present);
    }
    free(rig->lanes->query);
    free(rig->lanes);
}

void lanes_fence(rig_t *rig, uint32_t id)
{
    rig_part_t *part = &rig->part[id];
    if (id >= rig->config.core.part_slots || !part->live) {
        rig_fail(rig, "a fence names part %u, which is not outstanding", id);
        return;
    }
    if (part->fenced)
        rig_fail(rig, "part %u was fenced twice", id);
    part->fenced = true;
    if (rig->config.fence_ns == FBY_NEVER)
        return;
    part->hangs = part->lost = false;
    part->ends_at = fby_add_sat(rig->now, rig->config.fence_ns);
    for (uint32_t i = 0; i < part->count; i++)
        part->results[i] = FBY_E_TIMEOUT;
}

static void answer_key(rig_t *rig, lane_query_t *lane, uint32_t i, uint32_t group)
{
    store_fault_t fault = store_call(&rig->store, STORE_EXISTS, &lane->query.hashes[i], group);
    const store_object_t *object = store_at(&rig->store, &lane->query.hashes[i], group);
    bool present = object->present || fault.kind == FAULT_NOT_READY;
    if (fault.kind == FAULT_MISS)
        present = false;
    if (present)
        lane->present[i] |= (uint8_t)(1u << group);
    if (fault.kind == FAULT_ERROR)
        lane->status = (int)fault.arg;
    if (fault.kind == FAULT_DELAY)
        lane->ends_at = FBY_MAX(lane->ends_at, rig->now + (uint64_t)fault.arg);
    if (fault.kind == FAULT_LEASE)
        lane->lease_until = FBY_MIN(lane->lease_until, rig->now + (uint64_t)fault.arg);
    if (fault.kind == FAULT_HANG || fault.kind == FAULT_LOST)
        lane->hangs = true;
    if (fault.kind == FAULT_DROP)
        store_at(&rig->store, &lane->query.hashes[i], group)->present = false;
}

static bool start_query(rig_t *rig, lane_query_t *lane)
{
    if (!rig_next_query(rig, &lane->query))
        return false;
    uint32_t n = lane->query.to - lane->query.from;
    if (lane->capacity < n) {
        lane->capacity = n;
        lane->present = sim_resized(lane->present, n, 1);
    }
    memset(lane->present, 0, n);
    lane->live = true;
    lane->hangs = false;
    lane->status = 0;
    lane->lease_until = rig->config.core.probe_lease_ns ? rig->now + rig->config.core.probe_lease_ns : FBY_NEVER;
    lane->order = rig->order++;
    lane->ends_at = store_end_time(&rig->store, STORE_EXISTS, rig->now, 0);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t group = 0; group < rig->config.core.groups; group++)
            answer_key(rig, lane, i, group);
    return true;
}

/* A scripted delay adds to the call's time; the longest of a call counts. */
static bool start_part(rig_t *rig, bool write)
{
    uint32_t id = rig_begin(rig, write, rig->config.part_blocks);
    if (id == FBY_NONE)
        return false;
    rig_part_t *part = &rig->part[id];
    uint64_t delay = 0;
    store_op_t op = write ? STORE_PUT : STORE_GET;
    for (uint32_t i = 0; i < part->count; i++) {
        const fby_core_io_t *io = &part->io[i];
        store_fault_t fault = store_call(&rig->store, op, &io->hash, io->group);
        if (fault.kind == FAULT_DELAY || fault.kind == FAULT_LEASE)
            delay = FBY_MAX(delay, (uint64_t)fault.arg);
        part->hangs |= fault.kind == FAULT_HANG;
        part->lost |= fault.kind == FAULT_LOST;
        part->words[i] = rig->content[io->slot];
        part->results[i] = write ? store_put(&rig->store, &io->hash, io->group, &fault, part->words[i])
                                 : store_get(&rig->store, &io->hash, io->group, &fault, &part->words[i]);
    }
    part->ends_at = store_end_time(&rig->store, op, rig->now, part->bytes) + delay;
    return true;
}

void rig_pump(rig_t *rig)
{
    bool more = true;
    for (uint32_t i = 0; i < rig->config.query_lanes && more; i++)
        if (!rig->lanes->query[i].live)
            more = start_query(rig, &rig->lanes->query[i]);
    while (rig->live_count[0] < rig->config.read_lanes && start_part(rig, false))
        continue;
    while (rig->live_count[1] < rig->config.write_lanes && start_part(rig, true))
        continue;
}

void rig_unhang(rig_t *rig)
{
    for (uint32_t i = 0; i < rig->config.query_lanes; i++)
        if (rig->lanes->query[i].live && rig->lanes->query[i].hangs) {
            rig->lanes->query[i].hangs = false;
            rig->lanes->query[i].ends_at = rig->now;
        }
    for (unsigned write = 0; write < 2; write++)
        for (uint32_t i = 0; i < rig->live_count[write]; i++) {
            rig_part_t *part = &rig->part[rig->live[write][i]];
            if (part->hangs)
                part->ends_at = rig->now;
            part->hangs = false;
        }
}

typedef struct next {
    uint64_t at, order;
    lane_query_t *query;
    uint32_t part;
} next_t;

static void earlier(next_t *next, uint64_t at, uint64_t order, lane_query_t *query, uint32_t part)
{
    if (at == FBY_NEVER || at > next->at || (at == next->at && order > next->order))
        return;
    *next = (next_t){at, order, query, part};
}

static next_t next_end(rig_t *rig)
{
    next_t next = {FBY_NEVER, UINT64_MAX, NULL, FBY_NONE};
    for (uint32_t i = 0; i < rig->config.query_lanes; i++) {
        lane_query_t *lane = &rig->lanes->query[i];
        if (lane->live && !lane->hangs)
            earlier(&next, lane->ends_at, lane->order, lane, FBY_NONE);
    }
    for (unsigned write = 0; write < 2; write++)
        for (uint32_t i = 0; i < rig->live_count[write]; i++) {
            uint32_t id = rig->live[write][i];
            const rig_part_t *part = &rig->part[id];
            if (!part->hangs && !part->lost)
                earlier(&next, part->ends_at, part->order, NULL, id);
        }
    return next;
}

uint64_t rig_next_event(rig_t *rig)
{
    uint64_t end = next_end(rig).at;
    return FBY_MIN(end, FBY_MAX(fby_core_next_deadline(rig->core), rig->now));
}

static void end_next(rig_t *rig, const next_t *next)
{
    if (!next->query) {
        rig_end_scripted(rig, next->part);
        return;
    }
    next->query->live = false;
    rig_query_done(rig, &next->query->query, next->query->status, next->query->present, next->query->lease_until);
}

/* One event at or before `until`: left-over work first, then what ended, then timers. False when there is none. */
static bool step(rig_t *rig, uint64_t until)
{
    rig_pump(rig);
    next_t next = next_end(rig);
    uint64_t deadline = fby_core_next_deadline(rig->core);
    bool tick = deadline < next.at || deadline == 0;
    uint64_t at = FBY_MAX(tick ? deadline : next.at, rig->now);
    if (at > until || (!tick && next.at == FBY_NEVER))
        return false;
    if (at > rig->now)
        rig->lanes->ticks = 0;
    rig->now = at;
    if (!tick) {
        end_next(rig, &next);
        return true;
    }
    if (++rig->lanes->ticks > LANES_MOST_TICKS)
        rig_fail(rig, "ticks do not get done: next deadline stays at %llu", (unsigned long long)deadline);
    rig_tick(rig);
    return !rig->failure[0];
}

void rig_run_until(rig_t *rig, uint64_t until)
{
    while (step(rig, until))
        continue;
    rig->now = FBY_MAX(rig->now, until);
}

bool rig_run_idle(rig_t *rig, uint64_t limit)
{
    while (step(rig, limit))
        continue;
    return rig_next_event(rig) == FBY_NEVER && !fby_core_wants(rig->core);
}

static bool answered(rig_t *rig, fby_session_t session)
{
    fby_snapshot_t snapshot = {.size = sizeof(snapshot)};
    return fby_core_session_snapshot(rig->core, session, &snapshot) != 0 || snapshot.answered;
}

bool rig_run_answered(rig_t *rig, fby_session_t session, uint64_t limit)
{
    while (!answered(rig, session))
        if (!step(rig, limit))
            return answered(rig, session);
    return true;
}
