#include "sim/rig.h"

#include <errno.h>

#include "sim/memory.h"

rig_put_t *rig_put_find(rig_t *rig, fby_put_t put)
{
    for (uint32_t i = 0; i < rig->puts; i++)
        if (rig->put[i].handle == put)
            return &rig->put[i];
    return NULL;
}

/* Any block whose slots this begin may have staged: the full run, and the window before its end. */
static void set_range(const rig_t *rig, rig_put_t *put, uint32_t to)
{
    uint32_t window = 0, prefix = FBY_MIN(put->info.first_missing, to);
    for (uint32_t g = 0; g < rig->config.core.groups; g++)
        window = FBY_MAX(window, rig->config.core.trailing[g]);
    uint32_t low = FBY_MIN(put->info.staged_from, prefix);
    put->from = low > window ? low - window : 0;
    put->to = FBY_MAX(put->info.staged_to, prefix);
}

/* The caller may write the staged slots until the commit: they must not change hands before. */
static void open_range(rig_t *rig, rig_put_t *put, uint32_t wanted_to)
{
    set_range(rig, put, wanted_to);
    uint32_t blocks = put->to - put->from, groups = rig->config.core.groups;
    put->slot = sim_resized(put->slot, (size_t)blocks * groups, sizeof(*put->slot));
    for (uint32_t g = 0; g < groups; g++) {
        int status = fby_core_put_slots(rig->core, put->handle, g, put->from, put->to, &put->slot[g * blocks]);
        if (status)
            rig_fail(rig, "put_slots [%u,%u): %s", put->from, put->to, fby_errname(status));
        for (uint32_t b = 0; b < blocks; b++) {
            uint32_t slot = put->slot[g * blocks + b];
            bool full = !rig->config.core.trailing[g] && put->from + b >= put->info.staged_from &&
                        put->from + b < put->info.staged_to;
            if (full && slot == FBY_NONE)
                rig_fail(rig, "a put staged block %u without a slot of group %u", put->from + b, g);
            if (slot == FBY_NONE)
                continue;
            if (rig->slots.slot[slot].state != FBY_SLOT_STAGING || rig->writer[slot] || rig->readers[slot])
                rig_fail(rig, "a put was given slot %u, which is %s", slot,
                         fby_slot_state_name((fby_slot_state_t)rig->slots.slot[slot].state));
            rig->readers[slot]++;
        }
    }
    put->filling = true;
    put->committing = put->committed = put->abandoned = false;
    put->result = (fby_put_result_t){.size = sizeof(put->result)};
    put->generation = rig->generation;
}

static void close_range(rig_t *rig, rig_put_t *put)
{
    uint32_t n = (put->to - put->from) * rig->config.core.groups;
    for (uint32_t i = 0; put->filling && i < n; i++)
        if (put->slot[i] != FBY_NONE)
            rig->readers[put->slot[i]]--;
    put->filling = false;
}

static int begin(rig_t *rig, const rig_seq_t *seq, uint32_t from, uint32_t to, fby_put_t *handle,
                 fby_core_put_info_t *info)
{
    rig_ref_t *ref = rig_ref_new(rig, seq, false);
    int status = fby_core_put_begin(rig->core, rig->now, &ref->view, from, to, handle, info);
    if (status)
        rig_ref_drop(ref);
    else if (info->staged_from > info->staged_to || info->staged_to > to)
        rig_fail(rig, "a put of [%u,%u) staged [%u,%u)", from, to, info->staged_from, info->staged_to);
    return status;
}

int rig_put_begin(rig_t *rig, const rig_seq_t *seq, uint32_t from, uint32_t to, fby_put_t *out)
{
    fby_put_t handle = 0;
    fby_core_put_info_t info = {0};
    int status = begin(rig, seq, from, to, &handle, &info);
    if (!status) {
        rig_put_t *put = &rig->put[rig->puts++];
        put->handle = *out = handle;
        put->seq = seq;
        put->info = info;
        open_range(rig, put, to);
    }
    rig_checked(rig, 0);
    return status;
}

int rig_put_next(rig_t *rig, fby_put_t handle, uint32_t from, uint32_t to)
{
    rig_put_t *put = rig_put_find(rig, handle);
    fby_core_put_info_t info = {0};
    int status = begin(rig, put->seq, from, to, &handle, &info);
    if (!status) {
        put->info = info;
        open_range(rig, put, to);
    }
    rig_checked(rig, 0);
    return status;
}

void rig_put_fill(rig_t *rig, fby_put_t handle, uint32_t valid)
{
    rig_put_t *put = rig_put_find(rig, handle);
    uint32_t from = put->from, blocks = put->to - from;
    for (uint32_t g = 0; g < rig->config.core.groups && put->filling; g++)
        for (uint32_t b = 0; b < blocks; b++) {
            uint32_t slot = put->slot[g * blocks + b];
            if (slot != FBY_NONE)
                rig->content[slot] = from + b < valid ? chain_content(&put->seq->hashes[from + b], g) : 3;
        }
}

int rig_put_commit_step(rig_t *rig, fby_put_t handle, uint32_t valid)
{
    rig_put_t *put = rig_put_find(rig, handle);
    close_range(rig, put);
    put->committing = true;
    put->valid = valid;
    int status = fby_core_put_commit(rig->core, rig->now, handle, valid, &put->result);
    if (!status) {
        const fby_put_result_t *r = &put->result;
        if (r->published + r->duplicate + r->discarded + r->orphan != put->info.staged_to - put->info.staged_from)
            rig_fail(rig, "%u + %u + %u + %u is no partition of [%u,%u)", r->published, r->duplicate, r->discarded,
                     r->orphan, put->info.staged_from, put->info.staged_to);
        put->committed = true;
        put->committing = false;
    }
    rig_checked(rig, 0);
    return status;
}

fby_put_result_t rig_put_commit(rig_t *rig, fby_put_t handle, uint32_t valid)
{
    rig_put_fill(rig, handle, valid);
    int status;
    do
        status = rig_put_commit_step(rig, handle, valid);
    while (status == -EAGAIN);
    if (status)
        rig_fail(rig, "commit failed: %s", fby_errname(status));
    return rig_put_find(rig, handle)->result;
}

static void forget(rig_t *rig, rig_put_t *put)
{
    rig_put_t last = rig->put[--rig->puts];
    rig->put[rig->puts] = *put;
    *put = last;
}

int rig_put_end(rig_t *rig, fby_put_t handle)
{
    rig_put_t *put = rig_put_find(rig, handle);
    if (put)
        close_range(rig, put);
    int status = fby_core_put_end(rig->core, rig->now, handle);
    if (put)
        forget(rig, put);
    rig_checked(rig, 0);
    return status;
}

int rig_put_abandon(rig_t *rig, fby_put_t handle)
{
    uint64_t bytes = 0;
    rig_put_t *put = rig_put_find(rig, handle);
    int status = fby_core_put_abandon(rig->core, rig->now, handle, &bytes);
    if (!status && put->filling && bytes == 0)
        for (uint32_t i = 0; i < (put->to - put->from) * rig->config.core.groups; i++)
            if (put->slot[i] != FBY_NONE)
                rig_fail(rig, "an abandoned put let go of slot %u, which may be written", put->slot[i]);
    if (!status && fby_core_put_end(rig->core, rig->now, handle) != FBY_E_STALE)
        rig_fail(rig, "the handle of an abandoned put is still known");
    if (!status && bytes == 0)
        forget(rig, put);
    else if (!status)
        put->abandoned = true;
    rig_checked(rig, 0);
    return status;
}

int rig_put_fenced(rig_t *rig, fby_put_t handle)
{
    rig_put_t *put = rig_put_find(rig, handle);
    close_range(rig, put);
    put->abandoned = false;
    int status = fby_core_put_fenced(rig->core, rig->now, handle);
    forget(rig, put);
    rig_checked(rig, 0);
    return status;
}
