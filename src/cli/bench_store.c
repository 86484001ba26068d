#include "cli/bench_store.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

#define WRAPPER "fault:"

static const char *inner_driver(const fby_store_text_t *store)
{
    bool is_wrapped = strncmp(store->driver, WRAPPER, strlen(WRAPPER)) == 0;
    return is_wrapped ? store->driver + strlen(WRAPPER) : store->driver;
}

static bool has_option(const fby_store_text_t *store, const char *name)
{
    for (uint32_t i = 0; i < store->options; i++) {
        if (strcmp(store->option[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static int add_option(fby_store_text_t *store, const char *name, const char *value)
{
    if (store->options == FBY_STORE_TEXT_OPTIONS) {
        fby_error_set("store %s: no room for one more option, %s=%s", store->text, name, value);
        return FBY_E_CONFIG;
    }
    store->option[store->options].name = name;
    store->option[store->options++].value = value;
    return 0;
}

bool fby_bench_is_directory(const fby_store_text_t *store)
{
    return strcmp(inner_driver(store), "file") == 0;
}

int fby_bench_store_share(fby_store_text_t *store)
{
    bool is_memory = strcmp(inner_driver(store), "mem") == 0;
    return is_memory && !has_option(store, "name") ? add_option(store, "name", "forebay-bench") : 0;
}

int fby_bench_store_readonly(fby_store_text_t *store)
{
    return fby_bench_is_directory(store) ? add_option(store, "readonly", "true") : 0;
}

bool fby_bench_can_slow(const fby_store_text_t *store)
{
    return strcmp(store->driver, "mooncake") != 0 && strchr(store->driver, '/') == NULL;
}

int fby_bench_slow_open(const fby_store_text_t *store, const char *given, uint64_t bytes_per_s,
                        fby_bench_slow_store_t *out)
{
    *out = (fby_bench_slow_store_t){.owned = given != NULL};
    if (given != NULL) {
        int status = fby_store_text_parse(given, &out->text);
        status = status == 0 ? fby_bench_store_share(&out->text) : status;
        return status == 0 ? fby_bench_store_readonly(&out->text) : status;
    }
    if (!fby_bench_can_slow(store)) {
        fby_error_set(
            "store driver %s cannot be slowed from here; accepted: --slow STORE, the same store behind a slow "
            "link, or --stops 0",
            store->driver);
        return FBY_E_CONFIG;
    }
    out->text = *store;
    snprintf(out->driver, sizeof(out->driver), WRAPPER "%s", inner_driver(store));
    snprintf(out->bandwidth, sizeof(out->bandwidth), "%" PRIu64, bytes_per_s);
    out->text.driver = out->driver;
    return add_option(&out->text, "bandwidth", out->bandwidth);
}

void fby_bench_slow_close(fby_bench_slow_store_t *slow)
{
    if (slow->owned) {
        fby_store_text_free(&slow->text);
    }
    *slow = (fby_bench_slow_store_t){0};
}
