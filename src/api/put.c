/* put.c - the public calls on puts. */
#include <errno.h>
#include <unistd.h>

#include "api/call.h"
#include "api/calls.h"
#include "api/sequence.h"
#include "runtime/put_publish.h"
#include "stores/object.h"

/* What stands against changing a put now. Under the lock. */
static int put_is_busy(const fby_runtime_t *runtime, fby_put_t put)
{
    const fby_put_record_t *record = fby_put_record(runtime, put);
    if (record == NULL) {
        return FBY_E_STALE;
    }
    return record->busy ? FBY_E_STATE : 0;
}

/* ---- Begin ------------------------------------------------------------------------------------------------------ */

typedef struct put_range {
    uint64_t from, to;
    uint64_t *first_missing, *staged_from, *staged_to;
} put_range_t;

/* *put == 0: a new one. The record of an older range is replaced. */
static int put_stage(fby_runtime_t *runtime, fby_seq_t *seq, const put_range_t *range, fby_put_t *put)
{
    fby_core_seq_t view;
    fby_core_put_info_t info = {0};
    fby_actions_t actions;
    int rc = fby_seq_view(seq, false, &view);
    if (rc != 0) {
        return rc;
    }
    fby_put_record_t *record = fby_put_record_create(&view, fby_seq_keyring(seq));
    if (record == NULL) {
        fby_seq_data_unref(view.ref);
        return -ENOMEM;
    }
    fby_put_record_t *unused = record;
    uint64_t now = fby_enter(runtime, &actions);
    rc = *put != 0 ? put_is_busy(runtime, *put) : 0;
    if (rc == 0) {
        rc = fby_core_put_begin(runtime->core, now, &view, (uint32_t)range->from, (uint32_t)range->to, put, &info);
    }
    if (rc == 0) {
        record->from = info.staged_from;
        record->to = info.staged_to;
        record->end =
            info.staged_to > info.staged_from ? info.staged_to : FBY_MIN(info.first_missing, (uint32_t)range->to);
        unused = fby_put_record(runtime, *put);
        if (unused != NULL) {
            record->fds = unused->fds;
            unused->fds = NULL;
        }
        (void)fby_handles_set(&runtime->puts, *put, (uint64_t)(uintptr_t)record);
    }
    fby_leave(runtime, &actions);
    fby_put_record_free(unused);
    if (rc != 0) {
        fby_seq_data_unref(view.ref);
        return fby_call_about(rc, "put", *put);
    }
    uint64_t *outs[] = {range->first_missing, range->staged_from, range->staged_to};
    uint64_t values[] = {info.first_missing, info.staged_from, info.staged_to};
    for (size_t i = 0; i < FBY_ARRAY_LEN(outs); i++) {
        if (outs[i] != NULL) {
            *outs[i] = values[i];
        }
    }
    return 0;
}

int fby_local_put_begin(fby_cache_t *cache, fby_seq_t *seq, uint64_t from_block, uint64_t to_block, fby_put_t *out,
                        uint64_t *first_missing, uint64_t *staged_from, uint64_t *staged_to)
{
    fby_runtime_t *runtime;
    const put_range_t range = {from_block, to_block, first_missing, staged_from, staged_to};
    fby_put_t put = 0;
    int rc = fby_call_begin(cache, &runtime);
    if (rc != 0) {
        return rc;
    }
    rc = out == NULL ? fby_call_null("out") : fby_sequence_check(runtime, seq);
    rc = rc == 0 ? fby_call_range(seq, range.from, range.to) : rc;
    rc = rc == 0 ? put_stage(runtime, seq, &range, &put) : rc;
    if (rc == 0) {
        *out = put; // NOLINT(clang-analyzer-core.NullDereference): checked above, rc says so
    }
    return fby_call_end(cache, rc);
}

int fby_local_put_next(fby_cache_t *cache, fby_put_t put, fby_seq_t *seq, uint64_t from_block, uint64_t to_block,
                       uint64_t *first_missing, uint64_t *staged_from, uint64_t *staged_to)
{
    fby_runtime_t *runtime;
    const put_range_t range = {from_block, to_block, first_missing, staged_from, staged_to};
    int rc = fby_call_begin(cache, &runtime);
    if (rc != 0) {
        return rc;
    }
    rc = put == 0 ? fby_call_about(FBY_E_STALE, "put", put) : fby_sequence_check(runtime, seq);
    rc = rc == 0 ? fby_call_range(seq, range.from, range.to) : rc;
    rc = rc == 0 ? put_stage(runtime, seq, &range, &put) : rc;
    return fby_call_end(cache, rc);
}

int fby_local_put_slots(fby_cache_t *cache, fby_put_t put, uint32_t group, uint64_t from, uint64_t to, void **out)
{
    fby_runtime_t *runtime;
    uint32_t slots[FBY_STEP_BLOCKS];
    int rc = fby_call_begin(cache, &runtime);
    if (rc != 0) {
        return rc;
    }
    if (group >= runtime->settings.model.groups || from > to || to >= FBY_NONE) {
        fby_error_set("blocks [%llu, %llu) of group %u: the model has %u groups", (unsigned long long)from,
                      (unsigned long long)to, group, runtime->settings.model.groups);
        return fby_call_end(cache, -EINVAL);
    }
    if (out == NULL && to > from) {
        return fby_call_end(cache, fby_call_null("out"));
    }
    for (uint64_t at = from; at < to && rc == 0;) {
        uint64_t end = FBY_MIN(to, at + FBY_STEP_BLOCKS);
        pthread_mutex_lock(&runtime->lock);
        rc = fby_core_put_slots(runtime->core, put, group, (uint32_t)at, (uint32_t)end, slots);
        pthread_mutex_unlock(&runtime->lock);
        for (uint64_t i = at; i < end && rc == 0; i++) {
            uint32_t slot = slots[i - at];
            out[i - from] = slot == FBY_NONE ? NULL : fby_region_slot(&runtime->region, group, slot);
        }
        at = end;
    }
    return fby_call_end(cache, fby_call_about(rc, "put", put));
}

/* ---- Commit ----------------------------------------------------------------------------------------------------- */

/* Trailers of one group's blocks [from, to), to - from <= FBY_STEP_BLOCKS. */
static int seal_step(fby_runtime_t *runtime, fby_put_t put, const fby_put_record_t *record, fby_object_id_t *id,
                     uint32_t from, uint32_t to)
{
    uint32_t slots[FBY_STEP_BLOCKS];
    pthread_mutex_lock(&runtime->lock);
    int rc = fby_core_put_slots(runtime->core, put, id->group, from, to, slots);
    pthread_mutex_unlock(&runtime->lock);
    for (uint32_t i = from; i < to && rc == 0; i++) {
        if (slots[i - from] != FBY_NONE) {
            id->hash = record->hashes[i];
            fby_object_seal(fby_region_slot(&runtime->region, id->group, slots[i - from]), id,
                            runtime->settings.store.verify != FBY_VERIFY_OFF);
        }
    }
    return rc;
}

/* Writes the trailers of what is staged below `valid`: checksums in this thread, outside the lock. The put is marked
   busy, so that its slots stay its own meanwhile. */
static int put_seal(fby_runtime_t *runtime, fby_put_t put, const fby_put_record_t *record, uint32_t valid)
{
    const fby_fingerprint_fields_t *model = &runtime->settings.model;
    for (uint32_t group = 0; group < model->groups; group++) {
        uint32_t from, to;
        fby_put_seal_range(record, model->group[group].trailing, valid, &from, &to);
        fby_object_id_t id = {
            .group = group,
            .payload_bytes = model->group[group].payload_bytes,
            .segment_bytes = FBY_SEGMENT_BYTES,
        };
        memcpy(id.fingerprint, record->fingerprint, sizeof(id.fingerprint));
        for (uint32_t at = from; at < to; at += FBY_STEP_BLOCKS) {
            int rc = seal_step(runtime, put, record, &id, at, FBY_MIN(to, at + FBY_STEP_BLOCKS));
            if (rc != 0) {
                return rc;
            }
        }
    }
    return 0;
}

int fby_local_put_commit(fby_cache_t *cache, fby_put_t put, uint64_t valid_tokens, fby_put_result_t *result)
{
    fby_runtime_t *runtime;
    fby_put_result_t full;
    int rc = fby_call_begin(cache, &runtime);
    if (rc != 0) {
        return rc;
    }
    if (result != NULL && fby_call_sized("result", result) != 0) {
        return fby_call_end(cache, -EINVAL);
    }
    rc = fby_put_publish_with(runtime, put, valid_tokens, put_seal, &full);
    if (rc == 0 && result != NULL) {
        fby_call_output(result, &full, sizeof(full));
    }
    return fby_call_end(cache, fby_call_about(rc, "put", put));
}

/* ---- After ------------------------------------------------------------------------------------------------------ */

static int put_wait(fby_runtime_t *runtime, fby_put_t put, uint64_t timeout_ns, uint64_t *stored, uint64_t *failed)
{
    fby_actions_t actions;
    bool in_time = timeout_ns > 0;
    uint64_t outstanding;
    uint64_t deadline = fby_add_sat(fby_enter(runtime, &actions), timeout_ns);
    int rc;
    for (;;) {
        rc = fby_is_poisoned(runtime) ? FBY_E_POISONED
                                      : fby_core_put_writes(runtime->core, put, &outstanding, stored, failed);
        if (rc != 0 || outstanding == 0) {
            break;
        }
        if (runtime->closing || !in_time) {
            rc = runtime->closing ? FBY_E_CLOSED : -ETIMEDOUT;
            break;
        }
        in_time = fby_wait(runtime, &actions, &runtime->puts_changed, deadline);
    }
    fby_leave(runtime, &actions);
    return rc;
}

int fby_local_put_wait_store(fby_cache_t *cache, fby_put_t put, double timeout_s, uint64_t *stored, uint64_t *failed)
{
    fby_runtime_t *runtime;
    uint64_t timeout_ns, ok = 0, bad = 0;
    int rc = fby_call_begin(cache, &runtime);
    if (rc != 0) {
        return rc;
    }
    if (!fby_call_seconds("timeout_s", timeout_s, true, &timeout_ns)) {
        return fby_call_end(cache, -EINVAL);
    }
    rc = fby_call_about(put_wait(runtime, put, timeout_ns, &ok, &bad), "put", put);
    if (rc == 0 && stored != NULL) {
        *stored = ok;
    }
    if (rc == 0 && failed != NULL) {
        *failed = bad;
    }
    return fby_call_end(cache, rc);
}

int fby_local_put_event_fd(fby_cache_t *cache, fby_put_t put)
{
    fby_runtime_t *runtime;
    fby_actions_t actions;
    fby_event_fd_t *ours = NULL;
    uint64_t outstanding, stored, failed;
    int theirs = -1;
    int rc = fby_call_begin(cache, &runtime);
    if (rc != 0) {
        return rc;
    }
    rc = fby_event_fd_create(&ours, &theirs);
    if (rc != 0) {
        return fby_call_end(cache, fby_call_about(rc, "descriptor for put", put));
    }
    (void)fby_enter(runtime, &actions);
    fby_put_record_t *record = fby_put_record(runtime, put);
    rc = record == NULL ? FBY_E_STALE : fby_core_put_writes(runtime->core, put, &outstanding, &stored, &failed);
    if (rc == 0 && outstanding > 0) {
        rc = fby_event_fds_add(&record->fds, FBY_MOST_EVENT_FDS, &ours, &actions.fds);
    }
    fby_leave(runtime, &actions);
    fby_event_fds_end(ours); /* nothing is outstanding: readable at once */
    if (rc != 0) {
        close(theirs);
        return fby_call_end(cache, fby_call_about(rc, "put", put));
    }
    return fby_call_end(cache, theirs);
}

int fby_local_put_release(fby_cache_t *cache, fby_put_t put)
{
    fby_runtime_t *runtime;
    fby_actions_t actions;
    fby_put_record_t *record = NULL;
    int rc = fby_call_begin(cache, &runtime);
    if (rc != 0) {
        return rc;
    }
    uint64_t now = fby_enter(runtime, &actions);
    rc = put_is_busy(runtime, put);
    if (rc == 0) {
        rc = fby_core_put_end(runtime->core, now, put);
        record = (fby_put_record_t *)(uintptr_t)fby_handles_remove(&runtime->puts, put);
        fby_event_fds_move(&record->fds, &actions.fds);
    }
    fby_leave(runtime, &actions);
    fby_put_record_free(record);
    return fby_call_end(cache, fby_call_about(rc, "put", put));
}

int fby_local_put_abort(fby_cache_t *cache, fby_put_t put)
{
    return fby_local_put_release(cache, put);
}
