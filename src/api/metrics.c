/* metrics.c - the metrics of a cache as Prometheus text, format 0.0.4. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "api/call.h"
#include "api/calls.h"
#include "api/metrics_table.h"
#include "api/moment.h"

#define PREFIX "forebay_"
#define AT(field) offsetof(fby_moment_t, field)

/* Without text it only counts. */
typedef struct page {
    char *text;
    size_t capacity, length; /* length: of all there is to say, the NUL not included */
} page_t;

typedef struct metric {
    const char *name, *type, *help;
    void (*write)(page_t *page, const fby_moment_t *moment, const struct metric *metric);
    size_t at;
} metric_t;

typedef void write_fn(page_t *page, const fby_moment_t *moment, const metric_t *metric);

static const char *const operations[FBY_LANE_KINDS] = {
    [FBY_LANE_QUERY] = "query", [FBY_LANE_READ] = "read", [FBY_LANE_WRITE] = "write"};

static void FBY_PRINTF(2, 3) say(page_t *page, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    bool fits = page->length < page->capacity;
    int n =
        vsnprintf(fits ? page->text + page->length : NULL, fits ? page->capacity - page->length : 0, format, arguments);
    va_end(arguments);
    page->length += n > 0 ? (size_t)n : 0;
}

/* ---- Samples of any metric -------------------------------------------------------------------------------------- */

static uint64_t field(const fby_moment_t *moment, size_t at)
{
    uint64_t value;
    memcpy(&value, (const char *)moment + at, sizeof(value));
    return value;
}

static void say_seconds(page_t *page, uint64_t ns)
{
    say(page, "%" PRIu64 ".%09" PRIu64 "\n", ns / FBY_SECOND, ns % FBY_SECOND);
}

static void write_number(page_t *page, const fby_moment_t *moment, const metric_t *metric)
{
    say(page, PREFIX "%s %" PRIu64 "\n", metric->name, field(moment, metric->at));
}

static void write_seconds(page_t *page, const fby_moment_t *moment, const metric_t *metric)
{
    say(page, PREFIX "%s ", metric->name);
    say_seconds(page, field(moment, metric->at));
}

static void write_labelled(page_t *page, const fby_moment_t *moment, const metric_t *metric)
{
    static const struct {
        const char *name, *label, *value;
        size_t at;
    } rows[] = {
#define FBY_X(metric, label, value, at) {#metric, label, value, at},
        FBY_METRIC_LABELLED_MAP(FBY_X)
#undef FBY_X
    };
    for (size_t i = 0; i < FBY_ARRAY_LEN(rows); i++) {
        if (strcmp(rows[i].name, metric->name) == 0) {
            say(page, PREFIX "%s{%s=\"%s\"} %" PRIu64 "\n", metric->name, rows[i].label, rows[i].value,
                field(moment, rows[i].at));
        }
    }
}

/* `label`: "" or `key="value"`. */
static void say_histogram(page_t *page, const char *name, const char *label, const fby_histogram_t *histogram)
{
    uint64_t count = 0;
    const char *comma = *label != '\0' ? "," : "";
    const char *open = *label != '\0' ? "{" : "", *close = *label != '\0' ? "}" : "";
    for (unsigned i = 0; i <= FBY_HISTOGRAM_BOUNDS; i++) {
        count += histogram->bucket[i];
        say(page, PREFIX "%s_bucket{%s%sle=\"%s\"} %" PRIu64 "\n", name, label, comma, fby_histogram_bound(i), count);
    }
    say(page, PREFIX "%s_sum%s%s%s ", name, open, label, close);
    say_seconds(page, histogram->sum_ns);
    say(page, PREFIX "%s_count%s%s%s %" PRIu64 "\n", name, open, label, close, count);
}

static void write_histogram(page_t *page, const fby_moment_t *moment, const metric_t *metric)
{
    const void *histogram = (const char *)moment + metric->at;
    say_histogram(page, metric->name, "", histogram);
}

/* ---- Samples of one metric -------------------------------------------------------------------------------------- */

static void write_build_info(page_t *page, const fby_moment_t *moment, const metric_t *metric)
{
    say(page, PREFIX "%s{version=\"%s\"} 1\n", metric->name, fby_version());
}

/* Most of these cannot be: what never was is left out. */
static void write_sessions(page_t *page, const fby_moment_t *moment, const metric_t *metric)
{
    for (unsigned i = 0; i < FBY_POLICY_COUNT * FBY_REASON_COUNT * FBY_OUTCOME_COUNT; i++) {
        unsigned outcome = i % FBY_OUTCOME_COUNT, reason = i / FBY_OUTCOME_COUNT % FBY_REASON_COUNT;
        unsigned policy = i / FBY_OUTCOME_COUNT / FBY_REASON_COUNT;
        uint64_t count = moment->counted.sessions[policy][reason][outcome];
        if (count > 0) {
            say(page, PREFIX "%s{policy=\"%s\",reason=\"%s\",outcome=\"%s\"} %" PRIu64 "\n", metric->name,
                fby_policy_name((fby_policy_t)policy), fby_reason_name((fby_reason_t)reason),
                fby_outcome_name((fby_outcome_t)outcome), count);
        }
    }
}

static void write_tokens_lost(page_t *page, const fby_moment_t *moment, const metric_t *metric)
{
    say(page, PREFIX "%s{reason=\"checkpoint\"} %" PRIu64 "\n", metric->name, moment->counted.lost_checkpoint);
    for (unsigned reason = FBY_REASON_NONE + 1; reason < FBY_REASON_COUNT; reason++) {
        say(page, PREFIX "%s{reason=\"%s\"} %" PRIu64 "\n", metric->name, fby_reason_name((fby_reason_t)reason),
            moment->counted.lost[reason]);
    }
}

static void write_verify_failures(page_t *page, const fby_moment_t *moment, const metric_t *metric)
{
    for (unsigned kind = FBY_OBJECT_OK + 1; kind < FBY_OBJECT_FAULT_COUNT; kind++) {
        say(page, PREFIX "%s{kind=\"%s\"} %" PRIu64 "\n", metric->name, fby_object_fault_name((fby_object_fault_t)kind),
            moment->object_faults[kind]);
    }
}

static void write_pool_slots(page_t *page, const fby_moment_t *moment, const metric_t *metric)
{
    for (uint32_t g = 0; g < moment->groups; g++) {
        for (unsigned state = 0; state < FBY_SLOT_STATE_COUNT; state++) {
            say(page, PREFIX "%s{group=\"%u\",state=\"%s\"} %u\n", metric->name, g,
                fby_slot_state_name((fby_slot_state_t)state), moment->slots[g][state]);
        }
    }
}

static void write_pool_slot_bytes(page_t *page, const fby_moment_t *moment, const metric_t *metric)
{
    for (uint32_t g = 0; g < moment->groups; g++) {
        say(page, PREFIX "%s{group=\"%u\"} %u\n", metric->name, g, moment->slot_bytes[g]);
    }
}

static void write_calls(page_t *page, const fby_moment_t *moment, const metric_t *metric)
{
    static const char *const results[] = {
#define FBY_X(name, text) text,
        FBY_CALL_RESULT_MAP(FBY_X)
#undef FBY_X
    };
    for (unsigned kind = 0; kind < FBY_LANE_KINDS; kind++) {
        for (unsigned result = 0; result < FBY_CALL_RESULT_COUNT; result++) {
            say(page, PREFIX "%s{operation=\"%s\",result=\"%s\"} %" PRIu64 "\n", metric->name, operations[kind],
                results[result], moment->counted.calls[kind][result]);
        }
    }
}

static void write_call_seconds(page_t *page, const fby_moment_t *moment, const metric_t *metric)
{
    char label[40];
    for (unsigned kind = 0; kind < FBY_LANE_KINDS; kind++) {
        snprintf(label, sizeof(label), "operation=\"%s\"", operations[kind]);
        say_histogram(page, metric->name, label, &moment->counted.call[kind]);
    }
}

static void write_lanes(page_t *page, const fby_moment_t *moment, const metric_t *metric)
{
    for (unsigned kind = 0; kind < FBY_LANE_KINDS; kind++) {
        uint32_t idle = moment->lanes[kind].idle, stuck = moment->lanes[kind].stuck;
        const struct {
            const char *state;
            uint32_t count;
        } rows[] = {{"idle", idle}, {"stuck", stuck}, {"busy", moment->lanes[kind].alive - idle - stuck}};
        for (size_t i = 0; i < FBY_ARRAY_LEN(rows); i++) {
            say(page, PREFIX "%s{operation=\"%s\",state=\"%s\"} %u\n", metric->name, operations[kind], rows[i].state,
                rows[i].count);
        }
    }
}

static void write_breaker_state(page_t *page, const fby_moment_t *moment, const metric_t *metric)
{
    static const char *const states[] = {
        [FBY_BREAKER_CLOSED] = "closed", [FBY_BREAKER_OPEN] = "open", [FBY_BREAKER_PROBING] = "probing"};
    for (unsigned state = 0; state < FBY_ARRAY_LEN(states); state++) {
        say(page, PREFIX "%s{state=\"%s\"} %d\n", metric->name, states[state], moment->health.breaker == state);
    }
}

/* ---- All of them ------------------------------------------------------------------------------------------------ */

#define GAUGE "gauge"
#define COUNTER "counter"
#define HISTOGRAM "histogram"

static const metric_t metrics[] = {
#define FBY_X(name, type, write, at, help) {#name, type, help, write_##write, at},
    FBY_METRIC_MAP(FBY_X)
#undef FBY_X
};

static void say_all(page_t *page, const fby_moment_t *moment)
{
    for (size_t i = 0; i < FBY_ARRAY_LEN(metrics); i++) {
        const metric_t *metric = &metrics[i];
        say(page, "# HELP " PREFIX "%s %s.\n# TYPE " PREFIX "%s %s\n", metric->name, metric->help, metric->name,
            metric->type);
        metric->write(page, moment, metric);
    }
}

static int moment_text(const fby_moment_t *moment, char *text, size_t capacity, size_t *needed)
{
    page_t page = {0};
    say_all(&page, moment);
    size_t bytes = page.length + 1;
    if (needed != NULL) {
        *needed = bytes;
    }
    if (bytes > capacity) {
        fby_error_set("capacity is %zu; accepted: %zu or more now, and more as figures grow", capacity, bytes);
        return -ENOSPC;
    }
    page = (page_t){.text = text, .capacity = capacity};
    say_all(&page, moment);
    return 0;
}

int fby_local_cache_metrics(fby_cache_t *cache, char *text, size_t capacity, size_t *needed)
{
    fby_runtime_t *runtime;
    fby_moment_t moment;
    int rc = fby_call_begin_any(cache, &runtime);
    if (rc != 0) {
        return rc;
    }
    if (text == NULL && capacity > 0) {
        return fby_call_end(cache, fby_call_null("text"));
    }
    fby_moment_take(runtime, &moment);
    fby_cache_server_counters(cache, &moment);
    return fby_call_end(cache, moment_text(&moment, text, capacity, needed));
}
