/*
 * index_table.c - hash -> node, by chaining.
 *
 * Two buckets per node, sized at init. A chain survives any number of removals without tombstones or moves, costs 12
 * bytes per block (buckets and link), and lets a node of an older generation stay in place until the sweep comes by.
 * What a probe costs is cache misses: one for the bucket, one for each node looked at. Order within a chain never
 * decides anything.
 */
#include "index/internal.h"

uint32_t fby_table_bucket(const fby_index_t *index, const fby_hash_t *hash)
{
    /* The multiplication spreads hashes that are not as uniform as they should be; then the high half scales to the
       number of buckets, which need not be a power of two. */
    uint64_t spread = hash->w[0] * UINT64_C(0x9E3779B97F4A7C15);
    return (uint32_t)(((spread >> 32) * index->bucket_count) >> 32);
}

uint32_t fby_table_find(const fby_index_t *index, const fby_hash_t *hash, bool current)
{
    for (uint32_t link = index->buckets[fby_table_bucket(index, hash)]; link != 0;
         link = index->nodes[link - 1].chain) {
        const fby_node_t *node = &index->nodes[link - 1];
        if (fby_hash_equal(&node->hash, hash) && (node->generation == index->generation) == current) {
            return link - 1;
        }
    }
    return FBY_NONE;
}

void fby_table_add(fby_index_t *index, uint32_t id)
{
    fby_node_t *node = &index->nodes[id];
    uint32_t *bucket = &index->buckets[fby_table_bucket(index, &node->hash)];
    node->chain = *bucket;
    *bucket = id + 1;
    node->flags |= FBY_NODE_HASHED;
}

void fby_table_remove(fby_index_t *index, uint32_t id)
{
    fby_node_t *node = &index->nodes[id];
    uint32_t *link = &index->buckets[fby_table_bucket(index, &node->hash)];
    while (*link != id + 1) {
        link = &index->nodes[*link - 1].chain;
    }
    *link = node->chain;
    node->chain = 0;
    node->flags &= (uint8_t)~FBY_NODE_HASHED;
}
