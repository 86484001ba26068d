/* top_view.c - asks a server for everything that is shown. */
#include "cli/top_view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum { METRICS_ROOM = 4096 };

/* ---- Limits ------------------------------------------------------------------------------------------------------ */

static uint64_t limit_of(const char *text, const char *budget)
{
    char line[96];
    snprintf(line, sizeof(line), "\nforebay_budget_limit_bytes{budget=\"%s\"} ", budget);
    const char *found = strstr(text, line);
    return found != NULL ? (uint64_t)strtod(found + strlen(line), NULL) : 0;
}

int fby_view_limits_read(fby_cache_t *cache, fby_view_limits_t *out)
{
    size_t needed = 0;
    char *text = NULL;
    int status = fby_cache_metrics(cache, NULL, 0, &needed);
    while (status == -ENOSPC) {
        free(text);
        size_t capacity = needed + METRICS_ROOM;
        text = malloc(capacity);
        status = text != NULL ? fby_cache_metrics(cache, text, capacity, &needed) : -ENOMEM;
    }
    if (status == 0 && text != NULL) {
        *out = (fby_view_limits_t){
            .reserved = limit_of(text, "reserved"),
            .pinned = limit_of(text, "pinned"),
            .hold = limit_of(text, "hold"),
            .write_pinned = limit_of(text, "write_pinned"),
            .quarantine = limit_of(text, "quarantine"),
        };
    }
    free(text);
    return status;
}

/* ---- All of it --------------------------------------------------------------------------------------------------- */

static int by_weight(const void *left, const void *right)
{
    const fby_server_client_t *a = left, *b = right;
    if (a->pinned_bytes != b->pinned_bytes) {
        return a->pinned_bytes > b->pinned_bytes ? -1 : 1;
    }
    return a->client < b->client ? -1 : a->client > b->client;
}

int fby_view_take(fby_cache_t *cache, const fby_view_limits_t *limit, fby_view_t *out)
{
    *out = (fby_view_t){
        .model = {.size = sizeof(out->model)},
        .stats = {.size = sizeof(out->stats)},
        .health = {.size = sizeof(out->health)},
        .server = {.size = sizeof(out->server)},
        .limit = *limit,
    };
    int status = fby_server_info(cache, &out->server, out->client, FBY_VIEW_CLIENTS, &out->clients);
    status = status == 0 ? fby_cache_stats(cache, &out->stats) : status;
    status = status == 0 ? fby_cache_health(cache, &out->health) : status;
    status = status == 0 ? fby_cache_model(cache, &out->model) : status;
    out->taken_ns = fby_clock_now(&fby_clock_monotonic);
    qsort(out->client, out->clients, sizeof(out->client[0]), by_weight);
    return status;
}
