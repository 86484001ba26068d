/*
 * negative.c - keys that a store promised and did not deliver: believed absent for a short while, so that later sessions
 * do not repeat the read. Direct-mapped: a collision forgets the older one, which costs one more attempt.
 */
#include "core/internal.h"

static fby_negative_t *negative_at(const fby_core_t *core, const fby_hash_t *hash)
{
    return &core->negative[hash->w[1] % FBY_NEGATIVE_SLOTS];
}

static bool negative_is(const fby_negative_t *n, const fby_hash_t *hash, uint32_t group)
{
    return n->used && n->group == group && fby_hash_equal(&n->hash, hash);
}

bool fby_negative_has(const fby_core_t *core, const fby_hash_t *hash, uint32_t group)
{
    if (!core->negative_seen)
        return false;
    const fby_negative_t *n = negative_at(core, hash);
    return negative_is(n, hash, group) && core->now < n->until;
}

void fby_negative_add(fby_core_t *core, const fby_hash_t *hash, uint32_t group)
{
    if (core->config.negative_ttl_ns == 0)
        return;
    uint64_t until = fby_add_sat(core->now, core->config.negative_ttl_ns);
    core->negative_seen = true;
    *negative_at(core, hash) = (fby_negative_t){.hash = *hash, .until = until, .group = (uint8_t)group, .used = 1};
}

/* The key was read or written: it is there. */
void fby_negative_clear(fby_core_t *core, const fby_hash_t *hash, uint32_t group)
{
    if (!core->negative_seen)
        return;
    fby_negative_t *n = negative_at(core, hash);
    if (negative_is(n, hash, group))
        n->used = 0;
}
