#include "stores/script_rule.h"

#include <stdlib.h>

/* '*' backs up to its latest occurrence only: linear in practice, no recursion. */
static bool glob_matches(const char *glob, const char *text)
{
    const char *star = NULL, *resume = NULL;
    while (*text != '\0') {
        if (*glob == '*') {
            star = ++glob;
            resume = text;
        } else if (*glob == '?' || *glob == *text) {
            glob++;
            text++;
        } else if (star != NULL) {
            glob = star;
            text = ++resume;
        } else {
            return false;
        }
    }
    while (*glob == '*') {
        glob++;
    }
    return *glob == '\0';
}

static bool in_range(const fby_script_range_t *range, uint64_t value)
{
    return value >= range->low && value <= range->high;
}

static bool at_place(fby_place_t place, uint32_t position, uint32_t batch)
{
    switch (place) {
    case FBY_PLACE_FIRST:
        return position == 0;
    case FBY_PLACE_REST:
        return position > 0;
    case FBY_PLACE_TAIL:
        return position >= batch / 2;
    case FBY_PLACE_ANY:
    default:
        return true;
    }
}

/* SplitMix64. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static bool rule_holds(fby_script_t *script, fby_script_rule_t *rule, const fby_script_moment_t *moment)
{
    if ((rule->verbs & (1u << moment->verb)) == 0 || rule->times_left == 0 || !in_range(&rule->nth, moment->nth) ||
        !in_range(&rule->call, moment->call) || !at_place(rule->place, moment->position, moment->batch) ||
        !glob_matches(rule->glob, moment->key)) {
        return false;
    }
    /* Drawn last, so that keys no other condition selects do not move the stream. */
    return rule->chance == FBY_CHANCE_SURE || next_random(&script->random) % FBY_CHANCE_SURE < rule->chance;
}

fby_effect_t fby_script_decide(fby_script_t *script, const fby_script_moment_t *moment)
{
    for (uint32_t i = 0; i < script->count; i++) {
        fby_script_rule_t *rule = &script->rules[i];
        if (rule_holds(script, rule, moment)) {
            if (rule->times_left != UINT64_MAX) {
                rule->times_left--;
            }
            return rule->effect;
        }
    }
    return (fby_effect_t){0};
}

uint64_t fby_script_lease_ns(const fby_script_t *script)
{
    uint64_t shortest = 0;
    for (uint32_t i = 0; i < script->count; i++) {
        uint64_t lease = script->rules[i].effect.lease_ns;
        if (lease > 0 && (shortest == 0 || lease < shortest)) {
            shortest = lease;
        }
    }
    return shortest;
}

bool fby_script_idle(const fby_script_t *script)
{
    return script->count == 0 && script->bandwidth == 0 && script->latency_ns == 0;
}

void fby_script_free(fby_script_t *script)
{
    free(script->rules);
    *script = (fby_script_t){0};
}

const char *fby_verb_name(fby_verb_t verb)
{
    static const char *const names[FBY_VERB_COUNT] = {
#define FBY_X(name, text) [FBY_VERB_##name] = text,
        FBY_VERB_MAP(FBY_X)
#undef FBY_X
    };
    return (unsigned)verb < FBY_VERB_COUNT ? names[verb] : "unknown";
}
