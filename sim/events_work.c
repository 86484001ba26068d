/* events_work.c - what lanes and the clock do: queries, reads, writes, ticks, time. */
#include <errno.h>

#include "sim/random.h"
#include "sim/sim.h"

void sim_event_QUERY_BEGIN(sim_t *sim, uint64_t random)
{
    (void)random;
    fby_core_query_t *query = &sim->query[sim->queries];
    if (sim->queries == SIM_QUERIES || !rig_next_query(sim->rig, query)) {
        sim->idle_steps++;
        return;
    }
    sim->queries++;
    sim_say(sim, "query_begin [%u,%u) ticket %llx\n", query->from, query->to, (unsigned long long)query->ticket);
}

/* Presence is a function of the key, so that a store seems to hold what it holds; holes come on top. */
static void fill_presence(sim_t *sim, const fby_core_query_t *query, uint64_t *r, uint8_t *present)
{
    uint32_t n = query->to - query->from, end = n;
    if (sim->mood.query_short && sim_one_in(r, sim->mood.query_short))
        end = sim_below(r, n + 1);
    uint8_t every = (uint8_t)((1u << sim->rig->config.core.groups) - 1);
    for (uint32_t i = 0; i < n; i++) {
        present[i] = i < end ? every : 0;
        for (uint32_t g = 0; g < sim->rig->config.core.groups; g++)
            if (sim->mood.trailing_hole && sim->rig->config.core.trailing[g] &&
                sim_mix(query->hashes[i].w[0] + sim->seed) % sim->mood.trailing_hole == 0)
                present[i] &= (uint8_t) ~(1u << g);
    }
}

void sim_event_QUERY_END(sim_t *sim, uint64_t random)
{
    static uint8_t present[1 << 16];
    rig_t *rig = sim->rig;
    if (!sim->queries) {
        sim->idle_steps++;
        return;
    }
    uint64_t r = random;
    uint32_t index = sim_below(&r, sim->queries);
    fby_core_query_t query = sim->query[index];
    sim->query[index] = sim->query[--sim->queries];
    int status = sim->mood.query_error && sim_one_in(&r, sim->mood.query_error) ? FBY_E_CONNECTION : 0;
    fill_presence(sim, &query, &r, present);
    uint64_t lease = FBY_NEVER;
    if (sim->mood.lease)
        lease = rig->now + RIG_MS * sim_below(&r, sim->mood.lease);
    sim_say(sim, "query_end [%u,%u) ticket %llx: %s\n", query.from, query.to, (unsigned long long)query.ticket,
            fby_errname(status));
    rig_query_done(rig, &query, status, present, lease);
}

static void say_part(sim_t *sim, const char *what, uint32_t id)
{
    if (!sim->trace)
        return;
    const rig_part_t *part = &sim->rig->part[id];
    sim_say(sim, "%s part %u:", what, id);
    for (uint32_t i = 0, run; i < part->count; i += run) {
        const fby_core_io_t *io = &part->io[i];
        for (run = 1; i + run < part->count && io[run].group == io->group && io[run].block == io->block + run; run++)
            continue;
        sim_say(sim, run == 1 ? " %u" : " [%u,%u)", io->block, io->block + run);
        sim_say(sim, "/g%u@%u", io->group, io->slot);
    }
    sim_say(sim, "\n");
}

static void begin(sim_t *sim, bool write, uint64_t random)
{
    uint32_t id = rig_begin(sim->rig, write, 1 + sim_below(&random, sim->rig->config.part_blocks));
    if (id == FBY_NONE)
        sim->idle_steps++;
    else
        say_part(sim, write ? "write_begin" : "read_begin", id);
}

void sim_event_READ_BEGIN(sim_t *sim, uint64_t random)
{
    begin(sim, false, random);
}

void sim_event_WRITE_BEGIN(sim_t *sim, uint64_t random)
{
    begin(sim, true, random);
}

/* A stuck part does not end before its limit has fired. */
static bool is_stuck(const sim_t *sim, const rig_part_t *part)
{
    return sim->mood.stuck && !part->fenced && sim_mix(part->order + sim->seed) % sim->mood.stuck == 0;
}

static void end(sim_t *sim, bool write, uint32_t fault, uint64_t random)
{
    static const int32_t codes[] = {FBY_E_MISSING, FBY_E_NOT_READY,  FBY_E_SIZE, FBY_E_CHECKSUM, FBY_E_LEASE,
                                    FBY_E_TIMEOUT, FBY_E_CONNECTION, -EAGAIN,    -EINVAL};
    static const int32_t write_codes[] = {FBY_E_EXISTS, FBY_E_FULL, FBY_E_CONNECTION, FBY_E_NOT_READY};
    static int32_t results[FBY_STEP_BLOCKS * FBY_MAX_GROUPS];
    rig_t *rig = sim->rig;
    uint64_t r = random;
    if (!rig->live_count[write]) {
        sim->idle_steps++;
        return;
    }
    uint32_t id = rig->live[write][sim_below(&r, rig->live_count[write])];
    const rig_part_t *part = &rig->part[id];
    if (is_stuck(sim, part))
        return;
    bool faulty = fault && sim_one_in(&r, fault);
    for (uint32_t i = 0; i < part->count; i++) {
        results[i] = 0;
        if (faulty && sim_one_in(&r, 2))
            results[i] = write ? write_codes[sim_below(&r, FBY_ARRAY_LEN(write_codes))]
                               : codes[sim_below(&r, FBY_ARRAY_LEN(codes))];
    }
    say_part(sim, write ? "write_end" : "read_end", id);
    if (faulty)
        for (uint32_t i = 0; i < part->count; i++)
            sim_say(sim, "    %u: %s\n", part->io[i].block, fby_errname(results[i]));
    rig_end(rig, id, results);
}

void sim_event_READ_END(sim_t *sim, uint64_t random)
{
    end(sim, false, sim->mood.read_fault, random);
}

void sim_event_WRITE_END(sim_t *sim, uint64_t random)
{
    end(sim, true, sim->mood.write_fault, random);
}

void sim_event_PROGRESS(sim_t *sim, uint64_t random)
{
    rig_t *rig = sim->rig;
    uint32_t parts = rig->config.core.part_slots;
    /* mostly one that runs; now and then one that ended long ago, which must be harmless */
    uint32_t id = sim_below(&random, parts);
    if (rig->live_count[0] && !sim_one_in(&random, 8))
        id = rig->live[0][sim_below(&random, rig->live_count[0])];
    rig_progress(rig, id);
    sim_say(sim, "progress part %u\n", id);
}

void sim_event_TICK(sim_t *sim, uint64_t random)
{
    (void)random;
    rig_t *rig = sim->rig;
    if (fby_core_next_deadline(rig->core) > rig->now) {
        sim->idle_steps++;
        return;
    }
    sim_say(sim, "tick\n");
    rig_tick(rig);
}

void sim_event_TIME(sim_t *sim, uint64_t random)
{
    rig_t *rig = sim->rig;
    uint64_t deadline = fby_core_next_deadline(rig->core), step = sim_below(&random, 400) * (RIG_MS / 1000);
    switch (sim_below(&random, 16)) {
    case 0: /* past several deadlines at once */
        step = RIG_MS * sim_below(&random, 100);
        break;
    case 1: /* exactly there */
    case 2:
    case 3:
        if (deadline != FBY_NEVER && deadline > rig->now)
            step = deadline - rig->now;
        break;
    default:
        break;
    }
    rig->now += step;
    sim_say(sim, "time +%.3f ms = %.3f ms\n", (double)step / (double)RIG_MS,
            (double)(rig->now - RIG_S) / (double)RIG_MS);
    if (fby_core_next_deadline(rig->core) <= rig->now && !sim_one_in(&random, 4)) {
        sim_say(sim, "tick\n");
        rig_tick(rig);
    }
}

void sim_event_LOOK(sim_t *sim, uint64_t random)
{
    (void)random;
    rig_t *rig = sim->rig;
    fby_health_t health = {.size = sizeof(health)};
    fby_core_health(rig->core, rig->now, &health);
    if (health.quarantined_bytes > rig->config.core.max_reserved_bytes)
        rig_fail(rig, "%llu bytes in quarantine", (unsigned long long)health.quarantined_bytes);
    uint32_t operations;
    uint64_t bytes;
    fby_core_outstanding(rig->core, &operations, &bytes);
    uint32_t mine = rig->live_count[0] + rig->live_count[1];
    if (operations < mine)
        rig_fail(rig, "%u operations outstanding, the core knows of %u", mine, operations);
    rig_checked(rig, 0);
}
