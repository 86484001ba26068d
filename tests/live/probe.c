#include "live/probe.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "keys/keys.h"

#define PROBE_VERB_MAP(X)                                                                                              \
    X(open)                                                                                                            \
    X(close)                                                                                                           \
    X(put)                                                                                                             \
    X(stored)                                                                                                          \
    X(evict)                                                                                                           \
    X(keys)                                                                                                            \
    X(stats)                                                                                                           \
    X(health)                                                                                                          \
    X(quiet)                                                                                                           \
    X(scan)                                                                                                            \
    X(digest)                                                                                                          \
    X(start)                                                                                                           \
    X(poll)                                                                                                            \
    X(wait)                                                                                                            \
    X(demand)                                                                                                          \
    X(stop)                                                                                                            \
    X(release)                                                                                                         \
    X(take)                                                                                                            \
    X(lookup)                                                                                                          \
    X(verify)                                                                                                          \
    X(drop)

static const struct {
    const char *name;
    probe_verb_fn *run;
} verbs[] = {
#define FBY_X(name) {#name, probe_##name},
    PROBE_VERB_MAP(FBY_X)
#undef FBY_X
};

/* ---- Words of a command ------------------------------------------------------------------------------------------ */

const char *probe_text(const probe_command_t *command, const char *name, const char *missing)
{
    for (uint32_t i = 0; i < command->words; i++) {
        if (strcmp(command->word[i].name, name) == 0) {
            return command->word[i].value;
        }
    }
    return missing;
}

double probe_real(const probe_command_t *command, const char *name, double missing)
{
    const char *text = probe_text(command, name, NULL);
    return text == NULL ? missing : strtod(text, NULL);
}

/* Cuts the line in place. */
static int command_cut(char *line, probe_command_t *command)
{
    char *rest = NULL;
    *command = (probe_command_t){.verb = strtok_r(line, " \n", &rest)};
    for (char *word; command->verb != NULL && (word = strtok_r(NULL, " \n", &rest)) != NULL;) {
        char *equals = strchr(word, '=');
        if (equals == NULL || command->words == PROBE_WORDS) {
            fby_error_set("%s: \"%s\" is not name=value, or one too many", command->verb, word);
            return -EINVAL;
        }
        *equals = '\0';
        command->word[command->words].name = word;
        command->word[command->words++].value = equals + 1;
    }
    return 0;
}

/* ---- What commands refer to -------------------------------------------------------------------------------------- */

probe_cache_t *probe_find_cache(probe_t *probe, const probe_command_t *command)
{
    const char *name = probe_text(command, "cache", "");
    for (uint32_t i = 0; i < PROBE_CACHES; i++) {
        if (probe->cache[i].cache != NULL && strcmp(probe->cache[i].name, name) == 0) {
            return &probe->cache[i];
        }
    }
    fby_error_set("there is no cache \"%s\"", name);
    return NULL;
}

probe_item_t *probe_find_item(probe_t *probe, const probe_command_t *command, const char *kind)
{
    uint64_t id = strtoull(probe_text(command, kind, "0"), NULL, 10);
    for (uint32_t i = 0; i < PROBE_ITEMS && id != 0; i++) {
        if (probe->item[i].id == id) {
            return &probe->item[i];
        }
    }
    fby_error_set("there is no %s %" PRIu64, kind, id);
    return NULL;
}

int probe_keep(probe_t *probe, probe_cache_t *owner, const char *kind, uint64_t handle, fby_seq_t *seq)
{
    for (uint32_t i = 0; i < PROBE_ITEMS; i++) {
        if (probe->item[i].id == 0) {
            probe->item[i] = (probe_item_t){++probe->last_id, handle, seq, owner};
            fby_json_u64(&probe->json, kind, probe->last_id);
            return 0;
        }
    }
    fby_error_set("there are %d sessions, holds and puts already", PROBE_ITEMS);
    return -EBUSY;
}

void probe_forget(probe_item_t *item)
{
    fby_seq_unref(item->seq);
    *item = (probe_item_t){0};
}

/* ---- Prompts ----------------------------------------------------------------------------------------------------- */

int probe_seq(probe_cache_t *owner, const probe_command_t *command, fby_seq_t **out)
{
    const char *name = probe_text(command, "prompt", "");
    double blocks = probe_real(command, "blocks", 0);
    if (*name == '\0' || !(blocks >= 1 && blocks <= PROBE_MOST_BLOCKS)) {
        fby_error_set("accepted: prompt=NAME blocks=1..%d", PROBE_MOST_BLOCKS);
        return -EINVAL;
    }
    size_t count = (size_t)blocks * PROBE_BLOCK_TOKENS + 1;
    uint32_t *tokens = malloc(count * sizeof(*tokens)), state = UINT32_C(2166136261);
    if (tokens == NULL) {
        return -ENOMEM;
    }
    for (const char *c = name; *c != '\0'; c++) {
        state = (state ^ (uint8_t)*c) * UINT32_C(16777619);
    }
    for (size_t i = 0; i < count; i++) {
        state = state * UINT32_C(1664525) + UINT32_C(1013904223);
        tokens[i] = state;
    }
    int rc = fby_seq_create(owner->cache, tokens, count, NULL, 0, out);
    free(tokens);
    return rc;
}

int probe_hash(const fby_seq_t *seq, size_t block, fby_hash_t *out)
{
    char key[FBY_KEY_TEXT_BYTES];
    uint32_t group;
    int rc = fby_seq_key(seq, block, 0, key, sizeof(key));
    if (rc == 0 && !fby_key_parse(key, out, &group)) {
        fby_error_set("\"%s\" is not a key", key);
        rc = FBY_E_FORMAT;
    }
    return rc;
}

/* ---- Main -------------------------------------------------------------------------------------------------------- */

static int run(probe_t *probe, char *line)
{
    probe_command_t command;
    int rc = command_cut(line, &command);
    for (size_t i = 0; i < FBY_ARRAY_LEN(verbs) && rc == 0; i++) {
        if (command.verb != NULL && strcmp(verbs[i].name, command.verb) == 0) {
            return verbs[i].run(probe, &command);
        }
    }
    if (rc == 0) {
        fby_error_set("\"%s\" is not known", command.verb == NULL ? "" : command.verb);
        rc = -EINVAL;
    }
    return rc;
}

int main(void)
{
    static probe_t probe;
    char *line = NULL;
    size_t capacity = 0;
    fby_json_init(&probe.json, stdout);
    while (getline(&line, &capacity, stdin) > 0) {
        fby_json_object(&probe.json, NULL);
        int rc = run(&probe, line);
        fby_json_u64(&probe.json, "now_ns", fby_clock_now(&fby_clock_monotonic));
        fby_json_text(&probe.json, "status", rc == 0 ? "ok" : fby_errname(rc));
        if (rc != 0) {
            fby_json_text(&probe.json, "detail", fby_last_error());
        }
        fby_json_end(&probe.json);
        fflush(stdout);
    }
    free(line);
    for (uint32_t i = 0; i < PROBE_ITEMS; i++) {
        probe_forget(&probe.item[i]);
    }
    for (uint32_t i = 0; i < PROBE_CACHES; i++) {
        if (probe.cache[i].cache != NULL) {
            fby_cache_close(probe.cache[i].cache, 2, NULL);
        }
    }
    return ferror(stdout) ? 1 : 0;
}
