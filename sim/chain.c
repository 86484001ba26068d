#include "sim/chain.h"

#include <stdlib.h>
#include <string.h>

#include "sim/memory.h"
#include "sim/random.h"

fby_hash_t chain_root(uint32_t name_space, uint64_t epoch)
{
    uint64_t seed = sim_mix(((uint64_t)name_space << 32) + epoch + 1);
    return (fby_hash_t){{sim_mix(seed + 1), sim_mix(seed + 2)}};
}

fby_hash_t chain_next(const fby_hash_t *previous, uint64_t id)
{
    uint64_t a = sim_mix(previous->w[0] + sim_mix(id + 1));
    return (fby_hash_t){{a, sim_mix(previous->w[1] ^ (a + UINT64_C(0x9E3779B97F4A7C15)))}};
}

uint64_t chain_content(const fby_hash_t *hash, uint32_t group)
{
    return sim_mix(hash->w[0] ^ sim_mix(hash->w[1] + group)) | 1;
}

static void rehash(chain_registry_t *registry)
{
    uint32_t buckets = registry->capacity * 2;
    registry->mask = buckets - 1;
    free(registry->bucket);
    registry->bucket = sim_zeroed(buckets, sizeof(*registry->bucket));
    for (uint32_t i = 0; i < registry->count; i++) {
        uint32_t at = (uint32_t)registry->node[i].hash.w[0] & registry->mask;
        while (registry->bucket[at])
            at = (at + 1) & registry->mask;
        registry->bucket[at] = i + 1;
    }
}

static void grow(chain_registry_t *registry)
{
    registry->capacity = registry->capacity ? registry->capacity * 2 : 1024;
    registry->node = sim_resized(registry->node, registry->capacity, sizeof(*registry->node));
    rehash(registry);
}

void chain_registry_free(chain_registry_t *registry)
{
    free(registry->node);
    free(registry->bucket);
    memset(registry, 0, sizeof(*registry));
}

uint32_t chain_find(const chain_registry_t *registry, const fby_hash_t *hash)
{
    if (!registry->count)
        return FBY_NONE;
    for (uint32_t at = (uint32_t)hash->w[0] & registry->mask; registry->bucket[at]; at = (at + 1) & registry->mask)
        if (fby_hash_equal(&registry->node[registry->bucket[at] - 1].hash, hash))
            return registry->bucket[at] - 1;
    return FBY_NONE;
}

uint32_t chain_intern(chain_registry_t *registry, const fby_hash_t *hash, uint32_t parent, uint32_t block)
{
    uint32_t known = chain_find(registry, hash);
    if (known != FBY_NONE)
        return known;
    if (registry->count == registry->capacity)
        grow(registry);
    uint32_t at = (uint32_t)hash->w[0] & registry->mask;
    while (registry->bucket[at])
        at = (at + 1) & registry->mask;
    registry->node[registry->count] = (chain_node_t){*hash, parent, block};
    registry->bucket[at] = ++registry->count;
    return registry->count - 1;
}
