#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

#include "api/call.h"
#include "base/log.h"
#include "cli/replay_payload.h"
#include "live/probe.h"
#include "stores/object.h"

enum { PAINT = 0xEE };

/* ---- Figures ----------------------------------------------------------------------------------------------------- */

static void write_stats(fby_json_t *json, const fby_stats_t *stats)
{
#define FBY_X(name) fby_json_u64(json, #name, stats->name);
    FBY_STAT_MAP(FBY_X)
#undef FBY_X
    fby_json_object(json, "reasons");
    for (int i = 0; i < FBY_REASON_COUNT; i++) {
        fby_json_u64(json, fby_reason_name((fby_reason_t)i), stats->sessions_by_reason[i]);
    }
    fby_json_end(json);
}

int probe_stats(probe_t *probe, const probe_command_t *command)
{
    probe_cache_t *owner = probe_find_cache(probe, command);
    fby_stats_t stats = {.size = sizeof(stats)};
    int rc = owner == NULL ? -ENOENT : fby_cache_stats(owner->cache, &stats);
    if (rc == 0) {
        write_stats(&probe->json, &stats);
    }
    return rc;
}

int probe_health(probe_t *probe, const probe_command_t *command)
{
    probe_cache_t *owner = probe_find_cache(probe, command);
    fby_health_t health = {.size = sizeof(health)};
    int rc = owner == NULL ? -ENOENT : fby_cache_health(owner->cache, &health);
    if (rc != 0) {
        return rc;
    }
    fby_json_bool(&probe->json, "healthy", health.healthy != 0);
    fby_json_u64(&probe->json, "oldest_operation_ns", health.oldest_operation_ns);
    fby_json_u64(&probe->json, "oldest_draining_ns", health.oldest_draining_ns);
    fby_json_u64(&probe->json, "quarantined_bytes", health.quarantined_bytes);
    fby_json_u64(&probe->json, "breaker", health.breaker);
    fby_json_u64(&probe->json, "breaker_retry_ns", health.breaker_retry_ns);
    fby_json_text(&probe->json, "message", health.message);
    return 0;
}

/* ---- Quiet ------------------------------------------------------------------------------------------------------- */

static bool is_quiet(const fby_stats_t *s)
{
    return s->reserved_bytes_gauge == 0 && s->pinned_bytes_gauge == 0 && s->hold_bytes_gauge == 0 &&
           s->write_pinned_bytes_gauge == 0 && s->quarantine_bytes_gauge == 0 && s->retired_bytes_gauge == 0 &&
           s->inflight_graphs_gauge == 0 && s->sessions_running_gauge == 0 && s->sessions_parked_gauge == 0 &&
           s->leases_gauge == 0 && s->holds_gauge == 0 && s->puts_gauge == 0 &&
           s->free_blocks_gauge + s->resident_blocks_gauge == s->pool_blocks_gauge;
}

int probe_quiet(probe_t *probe, const probe_command_t *command)
{
    probe_cache_t *owner = probe_find_cache(probe, command);
    fby_stats_t stats = {.size = sizeof(stats)};
    int rc = owner == NULL ? -ENOENT : fby_cache_stats(owner->cache, &stats);
    uint64_t limit = fby_add_sat(fby_clock_now(&fby_clock_monotonic), fby_ns_from_s(probe_real(command, "limit", 10)));
    while (rc == 0 && !is_quiet(&stats) && fby_clock_now(&fby_clock_monotonic) < limit) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        rc = fby_cache_stats(owner->cache, &stats);
    }
    if (rc != 0) {
        return rc;
    }
    fby_json_bool(&probe->json, "quiet", is_quiet(&stats));
    write_stats(&probe->json, &stats);
    return fby_cache_check(owner->cache);
}

/* ---- Bytes of the pool ------------------------------------------------------------------------------------------- */

typedef struct scan {
    uint64_t in_state[FBY_SLOT_STATE_COUNT];
    uint64_t free_wrong, resident_wrong;
    uint8_t *copy, *paint;
} scan_t;

static void scan_slot(scan_t *scan, const fby_region_t *region, const fby_slot_t *slot, uint32_t id, uint32_t payload)
{
    const uint8_t *at = fby_region_slot(region, slot->group, id);
    scan->in_state[slot->state]++;
    if (slot->state == FBY_SLOT_FREE) {
        scan->free_wrong += memcmp(at, scan->paint, region->slot_bytes[slot->group]) != 0;
    } else if (slot->state == FBY_SLOT_RESIDENT) {
        fby_object_id_t id_there;
        uint64_t checksum;
        uint8_t flags;
        bool is_whole = fby_trailer_parse(at + payload, &id_there, &checksum, &flags) == FBY_OBJECT_OK;
        scan->resident_wrong += !is_whole || !fby_payload_copy(scan->copy, at, payload, &id_there.hash, 0);
    }
}

int probe_scan(probe_t *probe, const probe_command_t *command)
{
    probe_cache_t *owner = probe_find_cache(probe, command);
    fby_runtime_t *runtime = NULL;
    int rc = owner == NULL ? -ENOENT : fby_call_begin(owner->cache, &runtime);
    if (rc != 0) {
        return rc;
    }
    uint32_t slot_bytes = runtime->region.slot_bytes[0];
    scan_t scan = {.copy = malloc(owner->payload_bytes), .paint = malloc(slot_bytes)};
    rc = scan.copy == NULL || scan.paint == NULL ? -ENOMEM : 0;
    if (rc == 0) {
        memset(scan.paint, PAINT, slot_bytes);
        pthread_mutex_lock(&runtime->lock);
        for (uint32_t id = 0; id < runtime->slots.total; id++) {
            scan_slot(&scan, &runtime->region, &runtime->slots.slot[id], id, owner->payload_bytes);
        }
        pthread_mutex_unlock(&runtime->lock);
        for (int state = 0; state < FBY_SLOT_STATE_COUNT; state++) {
            fby_json_u64(&probe->json, fby_slot_state_name((fby_slot_state_t)state), scan.in_state[state]);
        }
        fby_json_u64(&probe->json, "free_wrong", scan.free_wrong);
        fby_json_u64(&probe->json, "resident_wrong", scan.resident_wrong);
    }
    free(scan.copy);
    free(scan.paint);
    return fby_call_end(owner->cache, rc);
}

int probe_digest(probe_t *probe, const probe_command_t *command)
{
    probe_cache_t *owner = probe_find_cache(probe, command);
    fby_runtime_t *runtime = NULL;
    int rc = owner == NULL ? -ENOENT : fby_call_begin(owner->cache, &runtime);
    if (rc != 0) {
        return rc;
    }
    pthread_mutex_lock(&runtime->lock);
    uint64_t digest = XXH3_64bits(runtime->region.base, runtime->region.bytes);
    pthread_mutex_unlock(&runtime->lock);
    char text[17];
    snprintf(text, sizeof(text), "%016llx", (unsigned long long)digest);
    fby_json_text(&probe->json, "digest", text);
    return fby_call_end(owner->cache, rc);
}
