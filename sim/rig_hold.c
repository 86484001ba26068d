#include "sim/rig.h"

#include "sim/memory.h"

rig_hold_t *rig_hold_find(rig_t *rig, fby_hold_t hold)
{
    for (uint32_t i = 0; i < rig->holds; i++)
        if (rig->hold[i].handle == hold)
            return &rig->hold[i];
    return NULL;
}

/* Lowest block of a group that a hold up to `end` protects. */
static uint32_t needed_from(const rig_t *rig, uint32_t group, uint32_t first_block, uint32_t end)
{
    uint32_t trailing = rig->config.core.trailing[group];
    uint32_t from = trailing && end > trailing ? end - trailing : 0;
    return FBY_MAX(from, first_block);
}

static void protect(rig_t *rig, rig_hold_t *hold, uint32_t slot, uint32_t block)
{
    if (hold->slots == hold->capacity) {
        hold->capacity = hold->capacity ? hold->capacity * 2 : 32;
        hold->slot = sim_resized(hold->slot, hold->capacity, sizeof(*hold->slot));
        hold->block = sim_resized(hold->block, hold->capacity, sizeof(*hold->block));
    }
    hold->slot[hold->slots] = slot;
    hold->block[hold->slots++] = block;
    rig->readers[slot]++;
}

static void protect_group(rig_t *rig, rig_hold_t *hold, uint32_t group)
{
    uint32_t out[FBY_STEP_BLOCKS];
    for (uint32_t from = needed_from(rig, group, hold->first_block, hold->blocks); from < hold->blocks;) {
        uint32_t to = FBY_MIN(from + FBY_STEP_BLOCKS, hold->blocks);
        int status = fby_core_hold_slots(rig->core, hold->handle, group, from, to, out);
        if (status) {
            rig_fail(rig, "hold_slots [%u,%u) of group %u: %s", from, to, group, fby_errname(status));
            return;
        }
        for (uint32_t b = from; b < to; b++) {
            if (out[b - from] == FBY_NONE)
                rig_fail(rig, "V6: a hold up to %u lacks block %u of group %u", hold->blocks, b, group);
            else
                protect(rig, hold, out[b - from], b);
        }
        from = to;
    }
}

static void unprotect(rig_t *rig, rig_hold_t *hold)
{
    while (hold->slots)
        rig->readers[hold->slot[--hold->slots]]--;
}

static void drop(rig_t *rig, rig_hold_t *hold)
{
    rig_hold_t last = rig->hold[--rig->holds];
    rig->hold[rig->holds] = *hold;
    *hold = last;
}

int rig_hold_add(rig_t *rig, fby_hold_t handle, const rig_seq_t *seq)
{
    fby_core_hold_info_t info = {0};
    int status = fby_core_hold_info(rig->core, handle, &info);
    if (status || rig->holds == rig->config.core.hold_slots) {
        rig_fail(rig, "a new hold is unknown: %s", fby_errname(status));
        return 0;
    }
    rig_hold_t *hold = &rig->hold[rig->holds++];
    hold->handle = handle;
    hold->seq = seq;
    hold->blocks = info.blocks;
    hold->first_block = info.first_block;
    hold->slots = 0;
    rig->private_holds += info.first_block > 0;
    hold->generation = rig->generation;
    hold->readers = 1;
    for (uint32_t g = 0; g < rig->config.core.groups && !rig->config.light; g++)
        protect_group(rig, hold, g);
    rig_hold_verify(rig, hold);
    return (int)info.blocks;
}

void rig_hold_verify(rig_t *rig, const rig_hold_t *hold)
{
    for (uint32_t i = 0; i < hold->slots; i++) {
        const fby_slot_t *slot = &rig->slots.slot[hold->slot[i]];
        if (rig->content[hold->slot[i]] != chain_content(&hold->seq->hashes[hold->block[i]], slot->group))
            rig_fail(rig, "a hold's block %u has wrong bytes in group %u", hold->block[i], slot->group);
    }
}

int rig_lookup(rig_t *rig, const rig_seq_t *seq, fby_hold_t *out, uint64_t *tokens)
{
    uint32_t expected = rig->config.model ? rig_model_lookup(rig, seq) : 0;
    rig_ref_t *ref = rig_ref_new(rig, seq, false);
    fby_hold_t hold = 0;
    int status = fby_core_lookup(rig->core, rig->now, &ref->view, 0, &hold, tokens);
    if (status || !hold)
        rig_ref_drop(ref);
    if (!status && hold) {
        uint32_t blocks = (uint32_t)rig_hold_add(rig, hold, seq);
        if (rig->config.model && !rig->config.light && blocks != expected)
            rig_fail(rig, "lookup holds %u blocks, the model has %u", blocks, expected);
        *out = hold;
    }
    rig_checked(rig, 0);
    return status;
}

int rig_probe(rig_t *rig, const rig_seq_t *seq, uint64_t *tokens)
{
    uint32_t expected =
        rig->config.model ? rig_model_lookup(rig, seq) : 0; /* before: the call may publish what was left over */
    rig_ref_t *ref = rig_ref_new(rig, seq, false);
    uint64_t got = 0;
    int status = fby_core_lookup(rig->core, rig->now, &ref->view, FBY_LOOKUP_ADVISORY, NULL, &got);
    rig_ref_drop(ref);
    if (!status && rig->config.model && got != (uint64_t)expected * rig->config.core.block_tokens)
        rig_fail(rig, "lookup says %llu tokens, the model has %u blocks", (unsigned long long)got, expected);
    if (!status && tokens)
        *tokens = got;
    rig_checked(rig, 0);
    return status;
}

int rig_hold_trim(rig_t *rig, fby_hold_t handle, uint64_t tokens, uint64_t *now_tokens)
{
    rig_hold_t *hold = rig_hold_find(rig, handle);
    bool current = hold && hold->generation == rig->generation;
    if (current)
        unprotect(rig, hold); /* the caller stops looking at what it gives up before it says so */
    uint64_t got = 0;
    int status = fby_core_hold_trim(rig->core, rig->now, handle, tokens, &got);
    if (current && !status) {
        if (got > tokens)
            rig_fail(rig, "a trim to %llu tokens left %llu", (unsigned long long)tokens, (unsigned long long)got);
        hold->blocks = (uint32_t)(got / rig->config.core.block_tokens);
        *now_tokens = got;
    }
    if (current)
        for (uint32_t g = 0; g < rig->config.core.groups; g++)
            protect_group(rig, hold, g);
    rig_checked(rig, 0);
    return status;
}

int rig_hold_readers(rig_t *rig, fby_hold_t handle)
{
    int status = fby_core_hold_readers(rig->core, handle, 1);
    rig_hold_t *hold = rig_hold_find(rig, handle);
    if (hold && !status)
        hold->readers++;
    rig_checked(rig, 0);
    return status;
}

int rig_hold_release(rig_t *rig, fby_hold_t handle)
{
    rig_hold_t *hold = rig_hold_find(rig, handle);
    bool last = hold && hold->readers == 1;
    if (hold)
        rig_hold_verify(rig, hold);
    if (last)
        unprotect(rig, hold);
    int status = fby_core_hold_release(rig->core, rig->now, handle);
    if (hold && !status)
        hold->readers--;
    if (last)
        drop(rig, hold);
    rig_checked(rig, 0);
    return status;
}
