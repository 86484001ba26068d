#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/replay_payload.h"
#include "keys/keys.h"
#include "live/probe.h"

/* ---- Sessions ---------------------------------------------------------------------------------------------------- */

static int word_index(const char *text, const char *(*name)(int), int count)
{
    for (int i = 0; text != NULL && i < count; i++) {
        if (strcmp(text, name(i)) == 0) {
            return i;
        }
    }
    return FBY_UNSET;
}

static const char *policy_name(int i)
{
    return fby_policy_name((fby_policy_t)i);
}

static const char *mode_name(int i)
{
    return fby_stop_mode_name((fby_stop_mode_t)i);
}

int probe_start(probe_t *probe, const probe_command_t *command)
{
    probe_cache_t *owner = probe_find_cache(probe, command);
    fby_session_options_t options = FBY_SESSION_OPTIONS_INIT;
    fby_session_t session = 0;
    fby_seq_t *seq = NULL;
    if (owner == NULL) {
        return -ENOENT;
    }
    options.policy = word_index(probe_text(command, "policy", NULL), policy_name, FBY_POLICY_COUNT);
    options.stop_mode = word_index(probe_text(command, "mode", NULL), mode_name, FBY_STOP_MODE_COUNT);
    options.timeout_budget_s = probe_real(command, "budget", -1);
    int rc = probe_seq(owner, command, &seq);
    if (rc != 0) {
        return rc;
    }
    rc = fby_session_start(owner->cache, seq, &options, &session);
    if (rc == 0) {
        rc = probe_keep(probe, owner, "session", session, seq);
    }
    if (rc != 0) {
        fby_seq_unref(seq);
    }
    return rc;
}

#define SNAPSHOT_NUMBER_MAP(X)                                                                                         \
    X(answered)                                                                                                        \
    X(lease_valid)                                                                                                     \
    X(planned_final)                                                                                                   \
    X(found_tokens)                                                                                                    \
    X(planned_tokens)                                                                                                  \
    X(loaded_tokens)                                                                                                   \
    X(delivered_tokens)                                                                                                \
    X(delivered_blocks)                                                                                                \
    X(committed_blocks)                                                                                                \
    X(cursor_blocks)                                                                                                   \
    X(inflight_chunks)                                                                                                 \
    X(inflight_bytes)                                                                                                  \
    X(submitted)                                                                                                       \
    X(sealed_submit_seq)                                                                                               \
    X(created_ns)                                                                                                      \
    X(sealed_ns)                                                                                                       \
    X(answered_ns)                                                                                                     \
    X(terminal_ns)

static void write_snapshot(fby_json_t *json, const fby_snapshot_t *snapshot)
{
    fby_json_text(json, "state", fby_state_name(snapshot->state));
    fby_json_text(json, "outcome", fby_outcome_name(snapshot->outcome));
    fby_json_text(json, "reason", fby_reason_name(snapshot->reason));
    fby_json_text(json, "error", snapshot->error == 0 ? "" : fby_errname(snapshot->error));
#define FBY_X(name) fby_json_u64(json, #name, snapshot->name);
    SNAPSHOT_NUMBER_MAP(FBY_X)
#undef FBY_X
}

int probe_poll(probe_t *probe, const probe_command_t *command)
{
    probe_item_t *item = probe_find_item(probe, command, "session");
    fby_snapshot_t snapshot = {.size = sizeof(snapshot)};
    int rc = item == NULL ? -ENOENT : fby_session_poll(item->owner->cache, item->handle, &snapshot);
    if (rc == 0) {
        write_snapshot(&probe->json, &snapshot);
    }
    return rc;
}

int probe_wait(probe_t *probe, const probe_command_t *command)
{
    probe_item_t *item = probe_find_item(probe, command, "session");
    fby_snapshot_t snapshot = {.size = sizeof(snapshot)};
    if (item == NULL) {
        return -ENOENT;
    }
    int rc = fby_session_wait(item->owner->cache, item->handle, probe_real(command, "limit", 10), &snapshot);
    if (rc == 0) {
        write_snapshot(&probe->json, &snapshot);
    }
    return rc;
}

static int session_call(probe_t *probe, const probe_command_t *command, int (*call)(fby_cache_t *, fby_session_t))
{
    probe_item_t *item = probe_find_item(probe, command, "session");
    return item == NULL ? -ENOENT : call(item->owner->cache, item->handle);
}

int probe_demand(probe_t *probe, const probe_command_t *command)
{
    return session_call(probe, command, fby_session_demand);
}

int probe_stop(probe_t *probe, const probe_command_t *command)
{
    return session_call(probe, command, fby_session_stop);
}

int probe_release(probe_t *probe, const probe_command_t *command)
{
    return session_call(probe, command, fby_session_release);
}

/* ---- Holds ------------------------------------------------------------------------------------------------------- */

/* Keeps the hold and says how long it is; ends it when it cannot be kept. */
static int hold_keep(probe_t *probe, probe_cache_t *owner, fby_hold_t hold, fby_seq_t *seq)
{
    uint64_t blocks = 0;
    int rc = fby_hold_info(owner->cache, hold, NULL, &blocks, NULL);
    rc = rc == 0 ? probe_keep(probe, owner, "hold", hold, seq) : rc;
    if (rc != 0) {
        fby_hold_release(owner->cache, hold);
        return rc;
    }
    fby_json_u64(&probe->json, "blocks", blocks);
    return 0;
}

int probe_take(probe_t *probe, const probe_command_t *command)
{
    probe_item_t *item = probe_find_item(probe, command, "session");
    fby_hold_t hold = 0;
    int rc = item == NULL ? -ENOENT : fby_session_take(item->owner->cache, item->handle, &hold);
    if (rc != 0) {
        return rc;
    }
    rc = hold_keep(probe, item->owner, hold, fby_seq_ref(item->seq));
    if (rc != 0) {
        fby_seq_unref(item->seq);
    }
    return rc;
}

int probe_lookup(probe_t *probe, const probe_command_t *command)
{
    probe_cache_t *owner = probe_find_cache(probe, command);
    fby_seq_t *seq = NULL;
    fby_hold_t hold = 0;
    if (owner == NULL) {
        return -ENOENT;
    }
    int rc = probe_seq(owner, command, &seq);
    if (rc != 0) {
        return rc;
    }
    rc = fby_lookup(owner->cache, seq, 0, &hold, NULL);
    rc = rc == 0 ? hold_keep(probe, owner, hold, seq) : rc;
    if (rc != 0) {
        fby_seq_unref(seq);
    }
    return rc;
}

static int count_wrong(const probe_item_t *item, uint64_t blocks, uint8_t *copy, uint64_t *wrong)
{
    int rc = 0;
    for (uint64_t block = 0; block < blocks && rc == 0; block++) {
        const void *payload = NULL;
        fby_hash_t hash;
        rc = probe_hash(item->seq, block, &hash);
        rc = rc == 0 ? fby_hold_slots(item->owner->cache, item->handle, 0, block, block + 1, &payload) : rc;
        *wrong += rc == 0 && !fby_payload_copy(copy, payload, item->owner->payload_bytes, &hash, 0);
    }
    return rc;
}

int probe_verify(probe_t *probe, const probe_command_t *command)
{
    probe_item_t *item = probe_find_item(probe, command, "hold");
    uint64_t blocks = 0, wrong = 0;
    int rc = item == NULL ? -ENOENT : fby_hold_info(item->owner->cache, item->handle, NULL, &blocks, NULL);
    if (rc != 0) {
        return rc;
    }
    uint8_t *copy = malloc(item->owner->payload_bytes);
    rc = copy == NULL ? -ENOMEM : count_wrong(item, blocks, copy, &wrong);
    free(copy);
    fby_json_u64(&probe->json, "blocks", blocks);
    fby_json_u64(&probe->json, "wrong", wrong);
    return rc;
}

int probe_drop(probe_t *probe, const probe_command_t *command)
{
    probe_item_t *item = probe_find_item(probe, command, "hold");
    int rc = item == NULL ? -ENOENT : fby_hold_release(item->owner->cache, item->handle);
    if (item != NULL) {
        probe_forget(item);
    }
    return rc;
}
