#include "story.h"

void story_traces(rig_config_t *config)
{
    rig_config_defaults(config);
    config->core.chunk_max_blocks = 2;
}

void story_trailing(rig_config_t *config, uint32_t n, uint32_t slots)
{
    uint32_t group = config->core.groups++;
    config->core.trailing[group] = n;
    config->core.slot_bytes[group] = BLOCK;
    config->pool[group] = slots;
    config->core.max_pinned_bytes += (uint64_t)slots * BLOCK;
    config->core.max_hold_bytes += (uint64_t)slots * BLOCK;
}

void story_settle(rig_t *rig)
{
    for (unsigned i = 0; fby_core_next_deadline(rig->core) <= rig->now; i++) {
        assert_true(i < 10000);
        rig_tick(rig);
    }
}

void story_at(rig_t *rig, uint64_t ms)
{
    uint64_t until = RIG_S + ms * RIG_MS, deadline;
    story_settle(rig);
    while ((deadline = fby_core_next_deadline(rig->core)) <= until) {
        rig->now = FBY_MAX(rig->now, deadline);
        story_settle(rig);
    }
    rig->now = until;
}

void story_answer_checkpoints(rig_t *rig, uint32_t blocks, uint64_t checkpoints)
{
    fby_core_query_t query;
    static uint8_t present[4096];
    story_settle(rig);
    while (rig_next_query(rig, &query)) {
        for (uint32_t b = query.from; b < query.to; b++) {
            bool boundary = b >= 64 || (checkpoints >> b & 1);
            present[b - query.from] = b >= blocks ? 0 : boundary ? 0xff : 0;
            for (uint32_t g = 0; b < blocks && g < rig->config.core.groups; g++)
                if (!rig->config.core.trailing[g])
                    present[b - query.from] |= (uint8_t)(1u << g);
        }
        rig_query_done(rig, &query, 0, present, FBY_NEVER);
        story_settle(rig);
    }
}

void story_answer(rig_t *rig, uint32_t blocks)
{
    story_answer_checkpoints(rig, blocks, UINT64_MAX);
}

uint32_t story_begin(rig_t *rig)
{
    uint32_t begun = 0;
    while (rig_begin(rig, false, FBY_STEP_BLOCKS) != FBY_NONE)
        begun++;
    return begun;
}

uint32_t story_part(rig_t *rig, const rig_seq_t *seq, uint32_t block)
{
    for (uint32_t i = 0; i < rig->live_count[0]; i++) {
        const rig_part_t *part = &rig->part[rig->live[0][i]];
        for (uint32_t k = 0; k < part->count; k++)
            if (part->io[k].group == 0 && fby_hash_equal(&part->io[k].hash, &seq->hashes[block]))
                return rig->live[0][i];
    }
    return FBY_NONE;
}

void story_ok(rig_t *rig, const rig_seq_t *seq, uint32_t block)
{
    story_bad(rig, seq, block, FBY_NONE, 0);
}

void story_bad(rig_t *rig, const rig_seq_t *seq, uint32_t block, uint32_t bad, int32_t code)
{
    uint32_t id = story_part(rig, seq, block);
    assert_int_not_equal(id, FBY_NONE);
    int32_t results[FBY_STEP_BLOCKS] = {0};
    for (uint32_t i = 0; i < rig->part[id].count; i++)
        results[i] = rig->part[id].io[i].block == bad ? code : 0;
    rig_end(rig, id, results);
    story_settle(rig);
}

void story_resident(rig_t *rig, const rig_seq_t *seq, uint32_t n)
{
    fby_put_t put;
    assert_int_equal(rig_put_begin(rig, seq, 0, n, &put), 0);
    fby_put_result_t result = rig_put_commit(rig, put, n);
    assert_int_equal(result.resident_tokens, n * rig->config.core.block_tokens);
    assert_int_equal(rig_put_end(rig, put), 0);
    story_settle(rig);
}

void story_quiesce(rig_t *rig)
{
    while (rig->holds)
        rig_hold_release(rig, rig->hold[0].handle);
    while (rig->puts)
        rig->put[0].abandoned ? rig_put_fenced(rig, rig->put[0].handle) : rig_put_end(rig, rig->put[0].handle);
    for (uint32_t i = 0; i < rig->config.core.session_slots; i++)
        if (rig->session[i].handle && !rig->session[i].ended && rig->session[i].generation == rig->generation)
            rig_release(rig, rig->session[i].handle);
    story_settle(rig);
    rig_quiescent(rig);
}

void story_script(rig_t *rig, const rig_seq_t *seq, store_op_t op, uint32_t from, uint32_t to, uint32_t nth,
                  store_fault_kind_t kind, int64_t arg)
{
    for (uint32_t b = from; b < to; b++)
        store_script(&rig->store, &(store_fault_t){op, seq->hashes[b], 0, nth, kind, arg});
}

uint32_t story_calls(rig_t *rig, const rig_seq_t *seq, store_op_t op, uint32_t from, uint32_t to)
{
    uint32_t calls = 0;
    for (uint32_t b = from; b < to; b++)
        calls += store_calls(&rig->store, op, &seq->hashes[b], 0);
    return calls;
}

rig_seq_t *story_p32(rig_t *rig, uint32_t name_space)
{
    rig_seq_t *seq = rig_seq(rig, name_space, 32, 513);
    rig_store_fill(rig, seq, 0, seq->blocks);
    return seq;
}

fby_stats_t story_stats(rig_t *rig)
{
    fby_stats_t stats = {.size = sizeof(stats)};
    fby_core_stats(rig->core, &stats);
    return stats;
}

uint32_t story_free(const rig_t *rig)
{
    return fby_slots_free(&rig->slots, 0);
}

uint64_t story_lookup(rig_t *rig, const rig_seq_t *seq)
{
    uint64_t tokens = 0;
    assert_int_equal(rig_probe(rig, seq, &tokens), 0);
    return tokens;
}

uint32_t story_events(const rig_t *rig, fby_core_event_type_t type, uint64_t handle)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < rig->logged; i++)
        n += rig->log[i].type == type && rig->log[i].handle == handle;
    return n;
}
