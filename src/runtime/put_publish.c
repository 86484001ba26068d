#include "runtime/put_publish.h"

#include <errno.h>

static int publish(fby_runtime_t *runtime, fby_put_t put, uint32_t valid, fby_put_result_t *result)
{
    int rc;
    do {
        fby_actions_t actions;
        uint64_t now = fby_enter(runtime, &actions);
        rc = fby_core_put_commit(runtime->core, now, put, valid, result);
        fby_leave(runtime, &actions);
    } while (rc == -EAGAIN);
    return rc;
}

/* Marks the put as being committed, so that nothing else is done to it; or why that cannot be. */
static int claim(fby_runtime_t *runtime, fby_put_t put, fby_put_record_t **out)
{
    pthread_mutex_lock(&runtime->lock);
    fby_put_record_t *record = fby_put_record(runtime, put);
    int rc = record == NULL ? FBY_E_STALE : record->busy ? FBY_E_STATE : 0;
    if (rc == 0) {
        record->busy = true;
    }
    pthread_mutex_unlock(&runtime->lock);
    *out = record;
    return rc;
}

int fby_put_publish_sealed(fby_runtime_t *runtime, fby_put_t put, uint64_t valid_tokens, fby_put_result_t *result)
{
    return fby_put_publish_with(runtime, put, valid_tokens, NULL, result);
}

int fby_put_publish_with(fby_runtime_t *runtime, fby_put_t put, uint64_t valid_tokens, fby_put_seal_t *seal,
                         fby_put_result_t *result)
{
    fby_put_record_t *record;
    uint64_t blocks = valid_tokens / runtime->settings.model.block_tokens;
    uint32_t valid = (uint32_t)FBY_MIN(blocks, (uint64_t)FBY_NONE - 1);
    int rc = claim(runtime, put, &record);
    if (rc != 0) {
        return rc;
    }
    *result = (fby_put_result_t){.size = sizeof(*result)};
    rc = seal != NULL ? seal(runtime, put, record, valid) : 0;
    rc = rc == 0 ? publish(runtime, put, valid, result) : rc;
    pthread_mutex_lock(&runtime->lock);
    record->busy = false;
    pthread_mutex_unlock(&runtime->lock);
    return rc;
}

/* ---- Fence ------------------------------------------------------------------------------------------------------ */

int fby_put_abandon(fby_runtime_t *runtime, fby_put_t put, uint64_t *bytes)
{
    fby_actions_t actions;
    uint64_t now = fby_enter(runtime, &actions);
    fby_put_record_t *record = fby_put_record(runtime, put);
    int rc = record == NULL ? FBY_E_STALE : record->busy ? FBY_E_STATE : 0;
    if (rc == 0) {
        rc = fby_core_put_abandon(runtime->core, now, put, bytes);
        record = (fby_put_record_t *)(uintptr_t)fby_handles_remove(&runtime->puts, put);
        fby_event_fds_move(&record->fds, &actions.fds);
    }
    fby_leave(runtime, &actions);
    if (rc == 0) {
        fby_put_record_free(record);
    }
    return rc;
}

int fby_put_fenced(fby_runtime_t *runtime, fby_put_t put)
{
    fby_actions_t actions;
    uint64_t now = fby_enter(runtime, &actions);
    int rc = fby_core_put_fenced(runtime->core, now, put);
    fby_leave(runtime, &actions);
    return rc;
}
