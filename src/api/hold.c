/* hold.c - the public calls on holds. */
#include <errno.h>

#include "api/call.h"
#include "api/calls.h"
#include "api/sequence.h"

static int lookup(fby_runtime_t *runtime, fby_seq_t *seq, unsigned flags, fby_hold_t *hold, uint64_t *tokens)
{
    fby_core_seq_t view;
    fby_actions_t actions;
    fby_hold_t made = 0;
    uint64_t length = 0;
    int rc = fby_seq_view(seq, false, &view);
    if (rc != 0) {
        return rc;
    }
    uint64_t now = fby_enter(runtime, &actions);
    rc = fby_core_lookup(runtime->core, now, &view, flags, (flags & FBY_LOOKUP_ADVISORY) ? NULL : &made, &length);
    if (rc == 0 && made != 0) {
        (void)fby_handles_set(&runtime->holds, made, FBY_HOLD_LOOKED_UP);
    }
    fby_leave(runtime, &actions);
    if (rc != 0 || made == 0) {
        fby_seq_data_unref(view.ref);
    }
    if (rc != 0) {
        return fby_call_about(rc, "lookup of epoch", view.epoch);
    }
    if (hold != NULL) {
        *hold = made;
    }
    if (tokens != NULL) {
        *tokens = length;
    }
    return 0;
}

int fby_local_lookup(fby_cache_t *cache, fby_seq_t *seq, unsigned flags, fby_hold_t *hold, uint64_t *tokens)
{
    fby_runtime_t *runtime;
    int rc = fby_call_begin(cache, &runtime);
    if (rc != 0) {
        return rc;
    }
    if ((flags & ~(unsigned)FBY_LOOKUP_ADVISORY) != 0) {
        fby_error_set("flags is 0x%x; accepted: 0 or FBY_LOOKUP_ADVISORY", flags);
        rc = -EINVAL;
    } else if (hold == NULL && !(flags & FBY_LOOKUP_ADVISORY)) {
        rc = fby_call_null("hold");
    }
    rc = rc == 0 ? fby_sequence_check(runtime, seq) : rc;
    rc = rc == 0 ? lookup(runtime, seq, flags, hold, tokens) : rc;
    return fby_call_end(cache, rc);
}

static int hold_info(fby_runtime_t *runtime, fby_hold_t hold, fby_core_hold_info_t *info)
{
    pthread_mutex_lock(&runtime->lock);
    int rc = fby_core_hold_info(runtime->core, hold, info);
    pthread_mutex_unlock(&runtime->lock);
    return fby_call_about(rc, "hold", hold);
}

int fby_local_hold_info(fby_cache_t *cache, fby_hold_t hold, uint64_t *tokens, uint64_t *blocks, uint64_t *first_block)
{
    fby_runtime_t *runtime;
    fby_core_hold_info_t info;
    int rc = fby_call_begin(cache, &runtime);
    if (rc != 0) {
        return rc;
    }
    rc = hold_info(runtime, hold, &info);
    if (rc == 0) {
        uint64_t *outs[] = {tokens, blocks, first_block};
        uint64_t values[] = {info.tokens, info.blocks, info.first_block};
        for (size_t i = 0; i < FBY_ARRAY_LEN(outs); i++) {
            if (outs[i] != NULL) {
                *outs[i] = values[i];
            }
        }
    }
    return fby_call_end(cache, rc);
}

/* Blocks of a taken result count as consumed when their addresses are first asked for. Under the lock. */
static void count_consumed(fby_runtime_t *runtime, fby_hold_t hold, uint32_t group, uint32_t from, uint32_t to)
{
    uint64_t *used_to = group == 0 ? fby_handles_find(&runtime->holds, hold) : NULL;
    if (used_to != NULL && to > *used_to) {
        fby_core_consumed(runtime->core, to - FBY_MAX(from, (uint32_t)*used_to));
        *used_to = to;
    }
}

static int hold_slots(fby_runtime_t *runtime, fby_hold_t hold, uint32_t group, uint32_t from, uint32_t to,
                      const void **out)
{
    uint32_t slots[FBY_STEP_BLOCKS];
    for (uint32_t at = from; at < to;) {
        uint32_t end = FBY_MIN(to, at + FBY_STEP_BLOCKS);
        pthread_mutex_lock(&runtime->lock);
        int rc = fby_core_hold_slots(runtime->core, hold, group, at, end, slots);
        if (rc == 0) {
            count_consumed(runtime, hold, group, at, end);
        }
        pthread_mutex_unlock(&runtime->lock);
        if (rc != 0) {
            return fby_call_about(rc, "hold", hold);
        }
        for (uint32_t i = at; i < end; i++) {
            uint32_t slot = slots[i - at];
            out[i - from] = slot == FBY_NONE ? NULL : fby_region_slot(&runtime->region, group, slot);
        }
        at = end;
    }
    return 0;
}

int fby_local_hold_slots(fby_cache_t *cache, fby_hold_t hold, uint32_t group, uint64_t from, uint64_t to,
                         const void **out)
{
    fby_runtime_t *runtime;
    fby_core_hold_info_t info;
    int rc = fby_call_begin(cache, &runtime);
    if (rc != 0) {
        return rc;
    }
    rc = hold_info(runtime, hold, &info);
    if (rc != 0) {
        return fby_call_end(cache, rc);
    }
    if (group >= runtime->settings.model.groups || from > to || to > info.blocks || from < info.first_block) {
        fby_error_set("blocks [%llu, %llu) of group %u: the hold has blocks [%u, %u), the model %u groups",
                      (unsigned long long)from, (unsigned long long)to, group, info.first_block, info.blocks,
                      runtime->settings.model.groups);
        return fby_call_end(cache, -EINVAL);
    }
    if (out == NULL && to > from) {
        return fby_call_end(cache, fby_call_null("out"));
    }
    return fby_call_end(cache, hold_slots(runtime, hold, group, (uint32_t)from, (uint32_t)to, out));
}

int fby_local_hold_trim(fby_cache_t *cache, fby_hold_t hold, uint64_t tokens, uint64_t *now_tokens)
{
    fby_runtime_t *runtime;
    fby_actions_t actions;
    uint64_t length = 0;
    int rc = fby_call_begin(cache, &runtime);
    if (rc != 0) {
        return rc;
    }
    uint64_t now = fby_enter(runtime, &actions);
    rc = fby_core_hold_trim(runtime->core, now, hold, tokens, &length);
    fby_leave(runtime, &actions);
    if (rc == 0 && now_tokens != NULL) {
        *now_tokens = length;
    }
    return fby_call_end(cache, fby_call_about(rc, "hold", hold));
}

int fby_local_hold_readers(fby_cache_t *cache, fby_hold_t hold, uint32_t add)
{
    fby_runtime_t *runtime;
    int rc = fby_call_begin(cache, &runtime);
    if (rc != 0) {
        return rc;
    }
    pthread_mutex_lock(&runtime->lock);
    rc = fby_core_hold_readers(runtime->core, hold, add);
    pthread_mutex_unlock(&runtime->lock);
    return fby_call_end(cache, fby_call_about(rc, "hold", hold));
}

int fby_local_hold_release(fby_cache_t *cache, fby_hold_t hold)
{
    fby_runtime_t *runtime;
    fby_actions_t actions;
    int rc = fby_call_begin(cache, &runtime);
    if (rc != 0) {
        return rc;
    }
    uint64_t now = fby_enter(runtime, &actions);
    rc = fby_core_hold_release(runtime->core, now, hold);
    if (rc == 0 && fby_core_hold_fewer(runtime->core, hold, 0) != 0) { /* no reader is left, of any generation */
        (void)fby_handles_remove(&runtime->holds, hold);
    }
    fby_leave(runtime, &actions);
    return fby_call_end(cache, fby_call_about(rc, "hold", hold));
}
