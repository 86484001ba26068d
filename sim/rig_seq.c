#include "sim/rig.h"

#include <string.h>

#include "sim/memory.h"

rig_seq_t *rig_seq_ids(rig_t *rig, uint32_t name_space, const uint64_t *ids, uint32_t blocks, uint64_t tokens)
{
    rig_seq_t *seq = sim_zeroed(1, sizeof(*seq));
    seq->hashes = sim_zeroed(blocks, sizeof(*seq->hashes));
    seq->nodes = rig->config.model ? sim_zeroed(blocks, sizeof(*seq->nodes)) : NULL;
    seq->blocks = blocks;
    seq->name_space = name_space;
    seq->tokens = tokens;
    seq->epoch = fby_core_epoch(rig->core);
    fby_hash_t previous = chain_root(name_space, seq->epoch);
    for (uint32_t i = 0; i < blocks; i++) {
        previous = seq->hashes[i] = chain_next(&previous, ids[i]);
        if (seq->nodes)
            seq->nodes[i] = chain_intern(&rig->registry, &previous, i ? seq->nodes[i - 1] : FBY_NONE, i);
    }
    if (seq->nodes)
        rig_model_cover(rig);
    seq->next = rig->seqs;
    if (rig->seqs)
        rig->seqs->previous = seq;
    return rig->seqs = seq;
}

static uint64_t salted_id(uint64_t salt, uint32_t block)
{
    return (salt << 32) | block;
}

rig_seq_t *rig_seq(rig_t *rig, uint32_t name_space, uint64_t salt, uint64_t tokens)
{
    uint32_t blocks = (uint32_t)(tokens / rig->config.core.block_tokens);
    uint64_t *ids = sim_zeroed(blocks, sizeof(*ids));
    for (uint32_t i = 0; i < blocks; i++)
        ids[i] = salted_id(salt, i);
    rig_seq_t *seq = rig_seq_ids(rig, name_space, ids, blocks, tokens);
    free(ids);
    return seq;
}

rig_seq_t *rig_seq_fork(rig_t *rig, const rig_seq_t *base, uint32_t shared, uint64_t salt, uint64_t tokens)
{
    rig_seq_t *seq = rig_seq(rig, base->name_space, salt, tokens);
    for (uint32_t i = 0; i < seq->blocks; i++) {
        fby_hash_t root = chain_root(seq->name_space, seq->epoch);
        const fby_hash_t *previous = i ? &seq->hashes[i - 1] : &root;
        seq->hashes[i] = i < shared ? base->hashes[i] : chain_next(previous, salted_id(salt, i));
        if (seq->nodes)
            seq->nodes[i] = chain_intern(&rig->registry, &seq->hashes[i], i ? seq->nodes[i - 1] : FBY_NONE, i);
    }
    if (seq->nodes)
        rig_model_cover(rig);
    return seq;
}

void rig_seq_free(rig_t *rig, rig_seq_t *seq)
{
    if (seq->previous)
        seq->previous->next = seq->next;
    else
        rig->seqs = seq->next;
    if (seq->next)
        seq->next->previous = seq->previous;
    free(seq->hashes);
    free(seq->nodes);
    free(seq);
}

rig_ref_t *rig_ref_new(rig_t *rig, const rig_seq_t *seq, bool present)
{
    size_t hashes = seq->blocks * sizeof(fby_hash_t);
    rig_ref_t *ref = sim_checked(malloc(sizeof(*ref) + hashes + seq->blocks + 1));
    fby_hash_t *copy = (fby_hash_t *)(ref + 1);
    memcpy(copy, seq->hashes, hashes);
    uint8_t *scratch = present ? memset((uint8_t *)(copy + seq->blocks), 0, seq->blocks + 1) : NULL;
    ref->rig = rig;
    ref->count = 1;
    ref->view = (fby_core_seq_t){copy, seq->blocks, seq->tokens, seq->epoch, scratch, ref};
    rig->refs++;
    return ref;
}

void rig_ref_drop(rig_ref_t *ref)
{
    if (!ref->count)
        rig_fail(ref->rig, "a sequence reference was dropped twice");
    if (--ref->count)
        return;
    rig_t *rig = ref->rig;
    rig->refs--;
    memset((void *)(uintptr_t)ref->view.hashes, 0xDD, ref->view.blocks * sizeof(fby_hash_t));
    uint32_t at = rig->dropped_count++ % RIG_DROPPED;
    free(rig->dropped[at]);
    rig->dropped[at] = ref;
}

static void fill_group(rig_t *rig, const rig_seq_t *seq, uint32_t group, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++)
        store_hold(&rig->store, &seq->hashes[i], group);
}

void rig_store_fill(rig_t *rig, const rig_seq_t *seq, uint32_t from, uint32_t to)
{
    for (uint32_t group = 0; group < rig->config.core.groups; group++)
        fill_group(rig, seq, group, from, FBY_MIN(to, seq->blocks));
}
