/*
 * probe.h - live_probe: an engine without a model, driven by lines on stdin, so that a story can play it.
 *
 * One command a line, `verb name=value name=value`, no blanks inside a value; one JSON object a line in return. Every
 * reply ends with "status": "ok" or the name of an error, and then "detail".
 *
 *   open cache= store= [KEY=VALUE...]     KEY: a configuration key, later ones win; store: as --store takes it
 *   close cache= limit=                   seconds
 *   put cache= prompt= blocks=            fills, commits; the store's writes follow on their own
 *   stored put= limit=                    waits for these writes; ends the put when they are over
 *   evict cache= limit=                   forgets every resident block (fby_cache_reset)
 *   start cache= prompt= blocks= [policy= mode= budget=]
 *   poll session=    wait session= limit=    demand session=    stop session=    release session=
 *   take session=                         the result becomes a hold
 *   lookup cache= prompt= blocks=         likewise what is resident
 *   verify hold=                          compares every byte of every held block with what it must be
 *   drop hold=
 *   stats cache=    health cache=    keys cache= prompt= blocks=
 *   quiet cache= limit=                   waits until nothing is reserved, pinned, in flight, held or running; then
 *                                         checks every invariant
 *   scan cache=                           looks at every slot: free ones must be paint, resident ones what they must be
 *   digest cache=                         of the whole pool, whoever owns the slots
 *
 * Prompt "p" of n blocks has n x 16 + 1 tokens that follow from the name alone; the same name with fewer blocks is a
 * prefix of it. The bytes of a block follow from its chain hash (replay_payload.h).
 */
#ifndef FBY_TESTS_LIVE_PROBE_H
#define FBY_TESTS_LIVE_PROBE_H

#include "cli/json.h"
#include "forebay/forebay.h"

enum { PROBE_CACHES = 4, PROBE_ITEMS = 4096, PROBE_WORDS = 64, PROBE_BLOCK_TOKENS = 16, PROBE_MOST_BLOCKS = 65536 };

typedef struct probe_cache {
    char name[32];
    fby_cache_t *cache; /* NULL: no such cache */
    uint32_t payload_bytes;
} probe_cache_t;

/* A session, a hold or a put with what it is about. Two caches may use the same handle: it has a name of ours. */
typedef struct probe_item {
    uint64_t id; /* 0: unused */
    uint64_t handle;
    fby_seq_t *seq;
    probe_cache_t *owner;
} probe_item_t;

/* What is being asked. */
typedef struct probe_command {
    const char *verb;
    struct {
        const char *name, *value;
    } word[PROBE_WORDS];
    uint32_t words;
} probe_command_t;

typedef struct probe {
    probe_cache_t cache[PROBE_CACHES];
    probe_item_t item[PROBE_ITEMS];
    uint64_t last_id;
    fby_json_t json;
} probe_t;

/* 0 or a code with the detail set; members of the reply go to probe->json. */
typedef int probe_verb_fn(probe_t *probe, const probe_command_t *command);

/* probe.c */
const char *probe_text(const probe_command_t *command, const char *name, const char *missing);
double probe_real(const probe_command_t *command, const char *name, double missing);
probe_cache_t *probe_find_cache(probe_t *probe, const probe_command_t *command);
/* The item that the command names as `kind`. */
probe_item_t *probe_find_item(probe_t *probe, const probe_command_t *command, const char *kind);
/* Takes over one reference to seq, tells the item's name as `kind`. -EBUSY: too many; then seq stays the caller's. */
int probe_keep(probe_t *probe, probe_cache_t *owner, const char *kind, uint64_t handle, fby_seq_t *seq);
void probe_forget(probe_item_t *item);
/* The sequence of `prompt` and `blocks`. */
int probe_seq(probe_cache_t *owner, const probe_command_t *command, fby_seq_t **out);
/* Of block i, from its key. */
int probe_hash(const fby_seq_t *seq, size_t block, fby_hash_t *out);

/* probe_cache.c */
probe_verb_fn probe_open, probe_close, probe_put, probe_stored, probe_evict, probe_keys;
/* probe_watch.c */
probe_verb_fn probe_stats, probe_health, probe_quiet, probe_scan, probe_digest;
/* probe_session.c */
probe_verb_fn probe_start, probe_poll, probe_wait, probe_demand, probe_stop, probe_release, probe_take;
probe_verb_fn probe_lookup, probe_verify, probe_drop;

#endif
