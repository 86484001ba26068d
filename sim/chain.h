/*
 * chain.h - chain hashes that cost a few multiplications, and a registry of every block that was ever named.
 *
 * The core treats hashes as opaque, so the simulator does not pay for SHA-256: h[i] = mix(h[i-1], id of block i), and
 * the root comes from (namespace, weights epoch). Sequences with equal ids share their prefix's hashes.
 * The registry turns a hash back into (parent, block), which is what the reference model needs.
 */
#ifndef FBY_SIM_CHAIN_H
#define FBY_SIM_CHAIN_H

#include "base/base.h"

typedef struct chain_node {
    fby_hash_t hash;
    uint32_t parent; /* FBY_NONE at block 0 */
    uint32_t block;
} chain_node_t;

typedef struct chain_registry {
    chain_node_t *node;
    uint32_t count, capacity;
    uint32_t *bucket; /* node + 1, or 0; twice as many as nodes */
    uint32_t mask;
} chain_registry_t;

fby_hash_t chain_root(uint32_t name_space, uint64_t epoch);
fby_hash_t chain_next(const fby_hash_t *previous, uint64_t id);
/* What the payload of (hash, group) must read as: any wrong, stale or shifted payload differs. Never SIM_PAINT. */
uint64_t chain_content(const fby_hash_t *hash, uint32_t group);

void chain_registry_free(chain_registry_t *registry);
/* FBY_NONE when the hash was never interned. */
uint32_t chain_find(const chain_registry_t *registry, const fby_hash_t *hash);
/* Index of the node, made when it is new. Aborts the process without memory. */
uint32_t chain_intern(chain_registry_t *registry, const fby_hash_t *hash, uint32_t parent, uint32_t block);

#endif
