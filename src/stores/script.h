/*
 * script.h - the language in which tests and the fault wrapper say what a store does wrong, and when.
 *
 *   script     := item { ';' item }                     blanks and newlines around any part are ignored
 *   item       := setting | rule
 *   setting    := bandwidth(SIZE) | latency(MS) | seed(N)     bytes per second and direction; per call; of p, random
 *   rule       := verbs ':' keys { ':' condition } ':' effects
 *   verbs      := '*' | verb { '|' verb }               verb: exists, get, put, remove
 *   keys       := glob over the key text: '*' any run, '?' one character
 *   condition  := nth=RANGE                            nth call for that verb and key, from 1, since the script was set
 *               | call=RANGE                            nth batch of that verb, likewise
 *               | times=N                               at most N keys in all
 *               | p=CHANCE                              0 to 1, seeded
 *               | at=first | at=rest | at=tail          place in the batch; tail: its second half, at least one key
 *   RANGE      := N | N- | N-M
 *   effects    := effect { '+' effect }                 at most one of those that give an outcome
 *   effect     := name [ '(' argument { ',' argument } ')' ]   docs/stores.md has the table
 *
 * The first rule whose verb, key and conditions all hold decides; no rule: the operation goes through.
 * A script is not thread-safe: deciding counts `times` and draws from the random stream. The owner's lock guards it.
 */
#ifndef FBY_STORES_SCRIPT_H
#define FBY_STORES_SCRIPT_H

#include "base/base.h"
#include "forebay/store.h"

/* X(name, text) */
#define FBY_VERB_MAP(X) X(EXISTS, "exists") X(GET, "get") X(PUT, "put") X(REMOVE, "remove")
typedef enum fby_verb {
#define FBY_X(name, text) FBY_VERB_##name,
    FBY_VERB_MAP(FBY_X)
#undef FBY_X
        FBY_VERB_COUNT
} fby_verb_t;

/*
 * X(name, text, argument, outcome): what an effect takes, and whether it decides the result of the key (so that two of
 * them in one rule contradict each other).
 */
#define FBY_EFFECT_MAP(X)                                                                                              \
    X(OK, "ok", NOTHING, true)                                                                                         \
    X(MISS, "miss", NOTHING, true)                                                                                     \
    X(ERR, "err", CODE, true)                                                                                          \
    X(REFUSE, "refuse", CODE, true)                                                                                    \
    X(SHORT, "short", BYTES, true)                                                                                     \
    X(ZERO, "zero", NOTHING, true)                                                                                     \
    X(NOT_READY, "not_ready", NOTHING, true)                                                                           \
    X(PROCESSING, "processing", NOTHING, true)                                                                         \
    X(CORRUPT, "corrupt", BIT, true)                                                                                   \
    X(DELAY, "delay", DELAY_MS, false)                                                                                 \
    X(HANG, "hang", NOTHING, false)                                                                                    \
    X(LOST, "lost", NOTHING, false)                                                                                    \
    X(DROP_REPLY, "drop_reply", NOTHING, false)                                                                        \
    X(LEASE, "lease", LEASE_MS, false)                                                                                 \
    X(LEASE_SILENT, "lease_silent", LEASE_MS, false)                                                                   \
    X(REORDER, "reorder", NOTHING, false)                                                                              \
    X(DUPLICATE_REPLY, "duplicate_reply", NOTHING, false)
enum {
#define FBY_X(name, text, argument, outcome) FBY_EFFECT_BIT_##name,
    FBY_EFFECT_MAP(FBY_X)
#undef FBY_X
#define FBY_X(name, text, argument, outcome) FBY_EFFECT_##name = 1 << FBY_EFFECT_BIT_##name,
        FBY_EFFECT_MAP(FBY_X)
#undef FBY_X
};

typedef struct fby_effect {
    uint32_t flags; /* FBY_EFFECT_*; 0: the operation goes through untouched */
    int32_t code;   /* ERR, REFUSE */
    uint64_t bytes; /* SHORT */
    uint64_t bit;   /* CORRUPT; taken modulo the object's bits */
    uint64_t delay_ns, lease_ns;
} fby_effect_t;

typedef struct fby_script_rule fby_script_rule_t;

typedef struct fby_script {
    fby_script_rule_t *rules;
    uint32_t count;
    uint64_t bandwidth; /* bytes per second in each direction; 0: no limit */
    uint64_t latency_ns;
    uint64_t random;
} fby_script_t;

/* One key of one call, as the rules see it. nth and call count from 1. */
typedef struct fby_script_moment {
    fby_verb_t verb;
    const char *key;
    uint64_t nth, call;
    uint32_t position, batch; /* place in the batch, keys of it */
} fby_script_moment_t;

/* "" or NULL: an empty script. 0, -ENOMEM, or FBY_E_CONFIG with a message that names the item, the part and what is
   accepted. *out is untouched on failure; free it with fby_script_free(). */
int fby_script_parse(const char *text, fby_script_t *out, char *error, size_t error_size);
void fby_script_free(fby_script_t *script);
/* Nothing to inject and nothing to model. */
bool fby_script_idle(const fby_script_t *script);
fby_effect_t fby_script_decide(fby_script_t *script, const fby_script_moment_t *moment);
/* Shortest lease of any rule; 0: none. */
uint64_t fby_script_lease_ns(const fby_script_t *script);
/* "get" and so on. */
const char *fby_verb_name(fby_verb_t verb);

#endif
