/* kinds.c - the configurations that the simulator runs, each then varied by the seed. */
#include "sim/random.h"
#include "sim/sim.h"

#define BLOCK UINT64_C(4096)

static void budgets(rig_config_t *config, uint32_t reserved, uint32_t pinned, uint32_t holds, uint32_t writes)
{
    config->core.max_reserved_bytes = reserved * BLOCK;
    config->core.max_pinned_bytes = pinned * BLOCK;
    config->core.max_hold_bytes = holds * BLOCK;
    config->core.write_pinned_bytes = writes * BLOCK;
    config->core.quarantine_limit_bytes = reserved * BLOCK / 2;
}

static void vary(rig_config_t *config, uint64_t *random)
{
    fby_core_config_t *core = &config->core;
    core->chunk_max_blocks = 1 + sim_below(random, 6);
    core->max_inflight_chunks = 1 + sim_below(random, 4);
    core->query_batch_blocks = sim_one_in(random, 2) ? 256 : 1 + sim_below(random, 8);
    core->timeout_base_ns = RIG_MS * (1 + sim_below(random, 100));
    core->timeout_per_ki_token_ns = RIG_MS;
    core->timeout_max_ns = 200 * RIG_MS;
    core->result_ttl_ns = RIG_MS * (1 + sim_below(random, 200));
    core->query_timeout_ns = RIG_MS * (5 + sim_below(random, 50));
    core->io_timeout_ns = RIG_MS * (10 + sim_below(random, 100));
    core->no_progress_ns = RIG_MS * (5 + sim_below(random, 50));
    core->drain_limit_ns = RIG_MS * (5 + sim_below(random, 100));
    core->negative_ttl_ns = RIG_MS * sim_below(random, 20);
    core->recompute_tokens_per_s = 1000.0 * (1 + sim_below(random, 1000));
    core->writes = (fby_write_mode_t)sim_below(random, 3);
    core->predictive = sim_one_in(random, 4);
    if (sim_one_in(random, 4)) {
        core->evict_start = 0.5 + 0.1 * (double)sim_below(random, 5);
        core->evict_ratio = 0.05 * (double)sim_below(random, 5);
    }
    config->eviction = (fby_eviction_t)sim_below(random, FBY_EVICTION_COUNT);
    config->part_blocks = 1 + sim_below(random, 8);
}

static void set_plain(rig_config_t *config, uint64_t *random)
{
    vary(config, random);
}

static void set_tight(rig_config_t *config, uint64_t *random)
{
    vary(config, random);
    config->pool[0] = 16;
    budgets(config, 16, 16, 16, 4);
}

static void set_starved(rig_config_t *config, uint64_t *random)
{
    vary(config, random);
    config->pool[0] = 12 + sim_below(random, 8);
    config->core.max_inflight_chunks = 1;
    budgets(config, 2 + sim_below(random, 4), 6 + sim_below(random, 6), 4 + sim_below(random, 8),
            1 + sim_below(random, 3));
}

static void set_crowd(rig_config_t *config, uint64_t *random)
{
    vary(config, random);
    config->pool[0] = 256;
    config->core.max_sessions = 64;
    config->core.session_slots = 96;
    budgets(config, 64, 192, 128, 64);
}

static void set_window(rig_config_t *config, uint64_t *random)
{
    vary(config, random);
    config->core.groups = 2;
    config->core.trailing[1] = 1 + sim_below(random, 5);
    config->core.slot_bytes[1] = BLOCK;
    config->pool[1] = 16 + sim_below(random, 32);
    budgets(config, 48, 64, 64, 32);
}

static void set_state(rig_config_t *config, uint64_t *random)
{
    vary(config, random);
    config->core.groups = 3;
    config->core.trailing[2] = 1;
    config->core.slot_bytes[1] = BLOCK / 2;
    config->core.slot_bytes[2] = 4 * BLOCK;
    config->pool[1] = 64;
    config->pool[2] = 8 + sim_below(random, 8);
    budgets(config, 96, 128, 128, 64);
}

static void set_whole(rig_config_t *config, uint64_t *random)
{
    vary(config, random);
    config->core.chunk_runtime = false;
    config->core.predictive = false;
    config->pool[0] = 48;
    budgets(config, 12 + sim_below(random, 24), 48, 48, 8);
}

static void set_parked(rig_config_t *config, uint64_t *random)
{
    vary(config, random);
    config->core.max_sessions = 1 + sim_below(random, 3);
    config->core.session_slots = 24;
}

static void set_deep(rig_config_t *config, uint64_t *random)
{
    vary(config, random);
    config->pool[0] = 1500;
    config->core.chunk_max_blocks = 64u << sim_below(random, 4);
    config->part_blocks = 256;
    config->core.query_batch_blocks = 256;
    budgets(config, 1200, 1500, 1500, 700);
}

static void set_local(rig_config_t *config, uint64_t *random)
{
    vary(config, random);
    config->core.store = sim_one_in(random, 2);
    config->core.writes = config->core.store ? FBY_WRITE_BACK : FBY_WRITE_OFF;
    config->pool[0] = 32;
    budgets(config, 8, 32, 16, 16);
}

static void set_tables(rig_config_t *config, uint64_t *random)
{
    if (sim_one_in(random, 2))
        set_window(config, random);
    else
        vary(config, random);
    fby_core_config_t *core = &config->core;
    core->max_sessions = 4 + sim_below(random, 12);
    core->session_slots = 24;
    core->entry_slots = 2 + sim_below(random, 8);
    core->part_slots = 1 + sim_below(random, 4);
    core->hold_slots = 1 + sim_below(random, 3);
    core->put_slots = 1 + sim_below(random, 3);
}

const sim_kind_t sim_kinds[] = {
    {"plain", "one group, room for all", set_plain},
    {"tight", "a pool of 16 blocks", set_tight},
    {"starved", "budgets of a few blocks", set_starved},
    {"crowd", "64 sessions over 256 blocks", set_crowd},
    {"window", "all + trailing(n)", set_window},
    {"state", "two all groups + trailing(1)", set_state},
    {"whole", "no chunk runtime: one graph per plan", set_whole},
    {"parked", "more sessions than may run", set_parked},
    {"deep", "chains beyond one step of 256 blocks", set_deep},
    {"tables", "tables of a few entries, parts, holds and puts", set_tables},
    {"local", "little store traffic, many puts", set_local},
};
const uint32_t sim_kind_count = FBY_ARRAY_LEN(sim_kinds);
