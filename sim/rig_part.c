#include "sim/rig.h"

#include <string.h>

#include "sim/lanes.h"
#include "sim/memory.h"
#include "sim/random.h"

void rig_slot_freed(void *arg, uint32_t slot)
{
    rig_t *rig = arg;
    if (rig->config.light)
        return;
    if (rig->writer[slot])
        rig_fail(rig, "slot %u was freed while read part %u may write it", slot, rig->writer[slot] - 1);
    if (rig->readers[slot])
        rig_fail(rig, "slot %u was freed while %u hold, fill or store it", slot, rig->readers[slot]);
    rig->content[slot] = RIG_PAINT;
}

void rig_tick(rig_t *rig)
{
    fby_core_tick(rig->core, rig->now);
    rig_checked(rig, 0);
}

int rig_reset(rig_t *rig, bool bump)
{
    uint64_t epoch = fby_core_epoch(rig->core);
    if (rig->closed)
        return fby_core_reset(rig->core, rig->now, bump);
    rig->generation++;
    rig->resets++;
    if (rig->config.model)
        rig_model_reset(rig); /* before the call: its own sweep announces removals already */
    int status = fby_core_reset(rig->core, rig->now, bump);
    if (status)
        rig_fail(rig, "reset answered %s", fby_errname(status));
    if (fby_core_epoch(rig->core) != epoch + bump)
        rig_fail(rig, "a reset moved the epoch from %llu to %llu", (unsigned long long)epoch,
                 (unsigned long long)fby_core_epoch(rig->core));
    rig_checked(rig, 0);
    return status;
}

void rig_shutdown(rig_t *rig)
{
    rig->closed = true;
    fby_core_shutdown(rig->core, rig->now);
    rig_checked(rig, 0);
}

bool rig_next_query(rig_t *rig, fby_core_query_t *query)
{
    bool wanted = fby_core_wants(rig->core) & FBY_WANT_QUERY;
    if (!fby_core_next_query(rig->core, rig->now, query)) {
        rig_checked(rig, 0);
        return false;
    }
    if (!wanted)
        rig_fail(rig, "a query was queued, but no lane was told");
    if (query->from >= query->to)
        rig_fail(rig, "an empty query [%u,%u)", query->from, query->to);
    ((rig_ref_t *)query->ref)->count++;
    rig_checked(rig, 0);
    return true;
}

void rig_query_done(rig_t *rig, const fby_core_query_t *query, int status, const uint8_t *present, uint64_t lease_until)
{
    fby_core_query_done(rig->core, rig->now, query->ticket, status, present, lease_until);
    rig_ref_drop(query->ref);
    rig_checked(rig, 0);
}

static rig_part_t *part_room(rig_t *rig, uint32_t id, uint32_t capacity)
{
    rig_part_t *part = &rig->part[id];
    if (part->capacity < capacity) {
        part->capacity = capacity;
        part->io = sim_resized(part->io, capacity, sizeof(*part->io));
        part->results = sim_resized(part->results, capacity, sizeof(*part->results));
        part->words = sim_resized(part->words, capacity, sizeof(*part->words));
    }
    return part;
}

/* One read per block at a time. A private run is the exception, and a stale generation reads what nobody may see. */
static void check_single_read(rig_t *rig, uint32_t id, const fby_core_io_t *io)
{
    uint32_t node = rig->config.model ? chain_find(&rig->registry, &io->hash) : FBY_NONE;
    if (node == FBY_NONE)
        return;
    uint32_t *reading = &rig->reading[(size_t)node * rig->config.core.groups + io->group];
    const rig_part_t *other = *reading ? &rig->part[*reading - 1] : NULL;
    *reading = id + 1;
    if (!other || other == &rig->part[id] || !other->live || other->write || rig->have_sessions ||
        other->generation != rig->generation)
        return;
    for (uint32_t i = 0; i < other->count; i++)
        if (other->io[i].group == io->group && fby_hash_equal(&other->io[i].hash, &io->hash) &&
            rig->slots.slot[other->io[i].slot].state == FBY_SLOT_STAGING)
            rig_fail(rig, "block %u is read twice at a time", io->block);
}

static void begin_read(rig_t *rig, uint32_t id, const fby_core_io_t *io)
{
    const fby_slot_t *slot = &rig->slots.slot[io->slot];
    if (slot->state != FBY_SLOT_STAGING || slot->group != io->group)
        rig_fail(rig, "a read of block %u goes into a %s slot of group %u", io->block,
                 fby_slot_state_name((fby_slot_state_t)slot->state), slot->group);
    if (rig->writer[io->slot])
        rig_fail(rig, "slot %u is read into twice", io->slot);
    if (rig->readers[io->slot])
        rig_fail(rig, "slot %u is read into while it is used", io->slot);
    rig->writer[io->slot] = id + 1;
    check_single_read(rig, id, io);
}

static void begin_write(rig_t *rig, const fby_core_io_t *io)
{
    uint8_t state = rig->slots.slot[io->slot].state;
    if (state != FBY_SLOT_RESIDENT && state != FBY_SLOT_STAGING && state != FBY_SLOT_RETIRED)
        rig_fail(rig, "a store write reads a %s slot", fby_slot_state_name((fby_slot_state_t)state));
    if (rig->content[io->slot] != chain_content(&io->hash, io->group))
        rig_fail(rig, "a store write would store wrong bytes for block %u", io->block);
    rig->readers[io->slot]++;
}

uint32_t rig_begin(rig_t *rig, bool write, uint32_t max)
{
    bool wanted = fby_core_wants(rig->core) & (unsigned)(write ? FBY_WANT_WRITE : FBY_WANT_READ);
    fby_core_part_t out;
    static fby_core_io_t io[FBY_STEP_BLOCKS * FBY_MAX_GROUPS];
    max = FBY_MIN(max, (uint32_t)FBY_ARRAY_LEN(io));
    bool got = write ? fby_core_next_writes(rig->core, rig->now, max, &out, io)
                     : fby_core_next_reads(rig->core, rig->now, max, &out, io);
    if (!got) {
        rig_checked(rig, 0);
        return FBY_NONE;
    }
    if (!wanted)
        rig_fail(rig, "a part was queued, but no lane was told");
    if (out.id >= rig->config.core.part_slots || rig->part[out.id].live || !out.count || out.count > max) {
        rig_fail(rig, "part %u of %u blocks is not a new one", out.id, out.count);
        return FBY_NONE;
    }
    rig_part_t *part = part_room(rig, out.id, out.count);
    memcpy(part->io, io, out.count * sizeof(*io));
    part->live = true;
    part->write = write;
    part->fenced = part->hangs = part->lost = false;
    part->count = out.count;
    part->bytes = out.bytes;
    part->limit_at = out.limit_at;
    part->begun_at = rig->now;
    part->ends_at = FBY_NEVER;
    part->order = rig->order++;
    part->generation = rig->generation;
    part->at = rig->live_count[write];
    rig->live[write][rig->live_count[write]++] = out.id;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < out.count; i++) {
        bytes += rig->config.core.slot_bytes[io[i].group];
        if (write)
            begin_write(rig, &io[i]);
        else
            begin_read(rig, out.id, &io[i]);
    }
    if (bytes != out.bytes)
        rig_fail(rig, "a part of %llu bytes says %llu", (unsigned long long)bytes, (unsigned long long)out.bytes);
    rig_checked(rig, 0);
    return out.id;
}

static void land(rig_t *rig, const rig_part_t *part, uint32_t i, int32_t result, bool scripted)
{
    const fby_core_io_t *io = &part->io[i];
    uint8_t state = rig->slots.slot[io->slot].state;
    if (state != FBY_SLOT_STAGING && state != FBY_SLOT_QUARANTINE)
        rig_fail(rig, "a read lands in a %s slot", fby_slot_state_name((fby_slot_state_t)state));
    rig->writer[io->slot] = 0;
    rig->missing_reads += result == FBY_E_MISSING;
    if (scripted)
        rig->content[io->slot] = part->words[i];
    else
        rig->content[io->slot] = result ? sim_mix(rig->order + io->slot) | 2 : chain_content(&io->hash, io->group);
}

/* words: what each slot holds afterwards was set in part->words (scheduled mode). */
static void end_part(rig_t *rig, uint32_t id, const int32_t *results, bool scripted)
{
    rig_part_t *part = &rig->part[id];
    if (!part->live) {
        rig_fail(rig, "part %u is not outstanding", id);
        return;
    }
    for (uint32_t i = 0; i < part->count; i++) {
        int32_t result = results ? results[i] : 0;
        if (results != part->results)
            part->results[i] = result;
        if (!part->write) {
            land(rig, part, i, result, scripted);
            continue;
        }
        if (rig->content[part->io[i].slot] != chain_content(&part->io[i].hash, part->io[i].group))
            rig_fail(rig, "block %u changed while it was written to the store", part->io[i].block);
        rig->readers[part->io[i].slot]--;
    }
    uint32_t last = rig->live[part->write][--rig->live_count[part->write]];
    rig->live[part->write][part->at] = last;
    rig->part[last].at = part->at;
    part->live = false;
    if (part->write)
        fby_core_write_done(rig->core, rig->now, id, part->results);
    else
        fby_core_read_done(rig->core, rig->now, id, part->results);
    rig_checked(rig, 0);
}

void rig_end(rig_t *rig, uint32_t part, const int32_t *results)
{
    end_part(rig, part, results, false);
}

void rig_end_scripted(rig_t *rig, uint32_t part)
{
    end_part(rig, part, rig->part[part].results, true);
}

void rig_progress(rig_t *rig, uint32_t part)
{
    fby_core_progress(rig->core, rig->now, part);
    rig_checked(rig, 0);
}
