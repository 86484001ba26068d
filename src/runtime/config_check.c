/* config_check.c - what single values cannot show: missing fields and contradictions. Allocates nothing. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/config.h"
#include "runtime/listen.h"
#include "runtime/settings.h"
#include "stores/object.h"

/* What every check reads. */
typedef struct facts {
    const fby_config_t *config;
    fby_value_t groups;   /* model.groups */
    uint64_t block_bytes; /* slots of one block over all groups, unpadded */
} facts_t;

static uint64_t number(const facts_t *facts, fby_key_id_t id)
{
    fby_value_t value;
    fby_config_value(facts->config, id, &value);
    return value.number;
}

/* "forebay.yaml:9: " for a key that somebody set, else "". */
static const char *head_of(const facts_t *facts, fby_key_id_t id, char out[FBY_WHERE_BYTES])
{
    const fby_entry_t *entry;
    fby_config_text(facts->config, id, &entry);
    return fby_where_head(entry != NULL ? entry->where : "", out);
}

static int contradiction(const facts_t *facts, fby_key_id_t id, const char *what)
{
    char head[FBY_WHERE_BYTES];
    fby_error_set("%s%s: %.160s %s", head_of(facts, id, head), fby_keys[id].name,
                  fby_config_text(facts->config, id, NULL), what);
    return FBY_E_CONFIG;
}

static int check_missing(const fby_config_t *config)
{
    char missing[384] = "";
    for (size_t id = 0; id < FBY_KEY_COUNT; id++) {
        size_t length = strlen(missing);
        if (*fby_config_text(config, (fby_key_id_t)id, NULL) == '\0') {
            snprintf(missing + length, sizeof(missing) - length, "%s%s", length > 0 ? ", " : "", fby_keys[id].name);
        }
    }
    if (*missing != '\0') {
        fby_error_set("missing: %s; accepted: a value for each, since all of them enter the fingerprint", missing);
        return FBY_E_CONFIG;
    }
    return 0;
}

static int check_model(const facts_t *facts)
{
    bool has_all = false;
    for (uint32_t i = 0; i < facts->groups.parts; i++) {
        has_all = has_all || facts->groups.part[i].trailing == 0;
    }
    if (!has_all) {
        return contradiction(facts, FBY_KEY_MODEL_GROUPS, "has no group with rule all; accepted: at least one");
    }
    if (number(facts, FBY_KEY_MODEL_CP_SIZE) > 1) {
        return contradiction(facts, FBY_KEY_MODEL_CP_SIZE,
                             "is refused: no layout of this version supports context parallelism; accepted: 1");
    }
    return 0;
}

static int check_keys(const facts_t *facts)
{
    const char *secret = fby_config_text(facts->config, FBY_KEY_SECRET, NULL);
    bool has_secret = fby_config_is_set(facts->config, FBY_KEY_SECRET);
    if (number(facts, FBY_KEY_HASH) == FBY_HASH_XXH3 && (!has_secret || strlen(secret) < 16)) {
        return contradiction(facts, FBY_KEY_HASH,
                             "needs a deployment secret; accepted: secret of 16 to 64 bytes, or sha256");
    }
    return 0;
}

static bool group_is_known(const facts_t *facts, const char *name)
{
    for (uint32_t i = 0; i < facts->groups.parts; i++) {
        if (strcmp(facts->groups.part[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static int check_group_bytes(const facts_t *facts)
{
    fby_value_t sizes;
    if (!fby_config_is_set(facts->config, FBY_KEY_POOL_GROUP_BYTES)) {
        return 0;
    }
    if (fby_config_is_set(facts->config, FBY_KEY_POOL_BYTES)) {
        return contradiction(facts, FBY_KEY_POOL_GROUP_BYTES, "stands beside pool.bytes; accepted: one of the two");
    }
    fby_config_value(facts->config, FBY_KEY_POOL_GROUP_BYTES, &sizes);
    bool all_known = sizes.parts == facts->groups.parts;
    for (uint32_t i = 0; i < sizes.parts; i++) {
        all_known = all_known && group_is_known(facts, sizes.part[i].name);
    }
    return all_known ? 0
                     : contradiction(facts, FBY_KEY_POOL_GROUP_BYTES,
                                     "does not name the groups of model.groups; accepted: a size for each of them");
}

/* `what` is larger than pool.bytes, or smaller than one block needs. */
static int check_share(const facts_t *facts, fby_key_id_t id, uint64_t at_least, uint64_t at_most, const char *of)
{
    char what[200], low[32], high[32];
    uint64_t bytes = number(facts, id);
    fby_format_size(at_least, low, sizeof(low));
    fby_format_size(at_most, high, sizeof(high));
    if (bytes >= at_least && bytes <= at_most) {
        return 0;
    }
    snprintf(what, sizeof(what), "is %s than %s; accepted: %s to %s", bytes < at_least ? "less" : "more",
             bytes < at_least ? "one block of the model with its trailers" : of, low, high);
    return contradiction(facts, id, what);
}

static int check_pool(const facts_t *facts)
{
    uint64_t pool = number(facts, FBY_KEY_POOL_BYTES);
    int status = check_group_bytes(facts);
    status = status == 0 ? check_share(facts, FBY_KEY_POOL_BYTES, facts->block_bytes, FBY_MOST_BYTES, "") : status;
    status = status == 0 ? check_share(facts, FBY_KEY_POOL_MAX_HOLD_BYTES, 1, pool, "the pool") : status;
    return status == 0 ? check_share(facts, FBY_KEY_POOL_WRITE_PINNED_BYTES, 1, pool, "the pool") : status;
}

/* A session's chunk is clamped to max_reserved / (2 x window): that must leave at least one block. */
static int check_prefetch(const facts_t *facts)
{
    uint64_t reserved = number(facts, FBY_KEY_PREFETCH_MAX_RESERVED_BYTES);
    uint64_t window = number(facts, FBY_KEY_PREFETCH_MAX_INFLIGHT_CHUNKS);
    uint64_t need = fby_mul_sat(facts->block_bytes, 2 * window);
    char what[200], need_text[32];
    if (reserved < need) {
        fby_format_size(need, need_text, sizeof(need_text));
        snprintf(what, sizeof(what),
                 "holds no chunk of one block in each half of a window of %" PRIu64
                 "; accepted: %s or more, or a smaller prefetch.max_inflight_chunks",
                 window, need_text);
        return contradiction(facts, FBY_KEY_PREFETCH_MAX_RESERVED_BYTES, what);
    }
    int status = check_share(facts, FBY_KEY_PREFETCH_MAX_PINNED_BYTES, facts->block_bytes, FBY_MOST_BYTES, "");
    status = status == 0
                 ? check_share(facts, FBY_KEY_PREFETCH_QUARANTINE_LIMIT, 1, reserved, "prefetch.max_reserved_bytes")
                 : status;
    if (status == 0 && number(facts, FBY_KEY_PREFETCH_POLICY) == FBY_POLICY_BREAK_EVEN &&
        !fby_config_is_set(facts->config, FBY_KEY_PREFETCH_RECOMPUTE_TOKENS_PER_S)) {
        return contradiction(facts, FBY_KEY_PREFETCH_POLICY,
                             "needs prefetch.recompute_tokens_per_s, which is unset; accepted: a number above 0 there");
    }
    return status;
}

static int check_store(const facts_t *facts)
{
    if (number(facts, FBY_KEY_STORE_BREAKER_BACKOFF_S) > number(facts, FBY_KEY_STORE_BREAKER_BACKOFF_MAX_S)) {
        return contradiction(facts, FBY_KEY_STORE_BREAKER_BACKOFF_S,
                             "is more than store.breaker_backoff_max_s; accepted: at most that");
    }
    return 0;
}

static int check_metrics(const facts_t *facts)
{
    fby_listen_t listen;
    if (!fby_listen_parse(fby_config_text(facts->config, FBY_KEY_METRICS_LISTEN, NULL), &listen)) {
        return contradiction(facts, FBY_KEY_METRICS_LISTEN, "is no address; accepted: " FBY_LISTEN_ACCEPTED);
    }
    return 0;
}

/* "own" gives no numbers; "any" is not for this function. False: it is no list. */
bool fby_uids_parse(const char *text, uint32_t *uids, uint32_t most, uint32_t *count)
{
    *count = 0;
    if (strcmp(text, "own") == 0) {
        return true;
    }
    do {
        char *end;
        if (*text < '0' || *text > '9' || *count == most) {
            return false;
        }
        unsigned long long uid = strtoull(text, &end, 10);
        if (uid > UINT32_MAX || (*end != ',' && *end != '\0')) {
            return false;
        }
        uids[(*count)++] = (uint32_t)uid;
        text = *end == ',' ? end + 1 : NULL;
    } while (text != NULL);
    return true;
}

static int check_server(const facts_t *facts)
{
    const char *listen = fby_config_text(facts->config, FBY_KEY_SERVER_LISTEN, NULL);
    const char *mode = fby_config_text(facts->config, FBY_KEY_SERVER_MODE, NULL);
    const char *users = fby_config_text(facts->config, FBY_KEY_SERVER_ALLOW_UIDS, NULL);
    uint32_t uids[FBY_MOST_UIDS], count;
    if (strcmp(listen, "off") != 0 && (*listen != '/' || strlen(listen) > FBY_MOST_SOCKET_PATH)) {
        return contradiction(facts, FBY_KEY_SERVER_LISTEN,
                             "is no socket; accepted: off, or an absolute path of at most 91 bytes");
    }
    if (strspn(mode, "01234567") != strlen(mode) || strlen(mode) < 3 || strtoul(mode, NULL, 8) > 0777) {
        return contradiction(facts, FBY_KEY_SERVER_MODE, "is no mode; accepted: octal digits from 000 to 0777");
    }
    if (strcmp(users, "any") != 0 && !fby_uids_parse(users, uids, FBY_MOST_UIDS, &count)) {
        return contradiction(facts, FBY_KEY_SERVER_ALLOW_UIDS,
                             "names no users; accepted: own, any, or up to 16 numbers separated by commas");
    }
    return 0;
}

int fby_config_check(const fby_config_t *config)
{
    static int (*const checks[])(const facts_t *) = {
        check_model, check_keys, check_pool, check_prefetch, check_store, check_server, check_metrics,
    };
    facts_t facts = {.config = config};
    int status = check_missing(config);
    if (status != 0) {
        return status;
    }
    fby_config_value(config, FBY_KEY_MODEL_GROUPS, &facts.groups);
    for (uint32_t i = 0; i < facts.groups.parts; i++) {
        facts.block_bytes += facts.groups.part[i].bytes + FBY_TRAILER_BYTES;
    }
    for (size_t i = 0; i < FBY_ARRAY_LEN(checks) && status == 0; i++) {
        status = checks[i](&facts);
    }
    return status;
}
