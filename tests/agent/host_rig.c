#include "host_rig.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { MOST_OPTIONS = 16, LANES = 2, BATCH = 256, AWAIT_STEPS = 4000, AWAIT_STEP_NS = 5000000 };

static void region_open(host_rig_t *rig)
{
    fby_region_config_t config = {.groups = rig->spec.groups, .alignment = rig->spec.alignment, .numa_node = -1};
    for (uint32_t g = 0; g < config.groups; g++) {
        config.slots[g] = HOST_RIG_SLOTS;
        config.slot_bytes[g] = rig->spec.slot_bytes[g];
    }
    assert_int_equal(fby_region_open(&config, &rig->region), 0);
}

static int rig_open(host_rig_t *rig, uint32_t payload, const char *driver, va_list list, char *error, size_t size)
{
    const char *options[MOST_OPTIONS + 1];
    size_t n = 0;
    do {
        assert_true(n < MOST_OPTIONS);
        options[n] = va_arg(list, const char *);
    } while (options[n++] != NULL);
    *rig = (host_rig_t){.spec = fixture_spec(payload)};
    region_open(rig);
    host_rig_paint(rig);
    const fby_agent_config_t config = {
        .driver = driver,
        .options = options,
        .spec = &rig->spec,
        .region = &rig->region,
        .lanes = {LANES, LANES, LANES},
        .batch = BATCH,
    };
    return fby_agent_open(&config, &rig->store, error, size);
}

void host_rig_open(host_rig_t *rig, uint32_t payload, const char *driver, ...)
{
    char error[512] = "";
    va_list list;
    va_start(list, driver);
    int rc = rig_open(rig, payload, driver, list, error, sizeof(error));
    va_end(list);
    if (rc != 0) {
        fail_msg("driver %s in agents: %d %s", driver, rc, error);
    }
}

void host_rig_refused(const char *driver, int code, const char *part, ...)
{
    host_rig_t rig;
    char error[512] = "";
    va_list list;
    va_start(list, part);
    int rc = rig_open(&rig, 4096, driver, list, error, sizeof(error));
    va_end(list);
    assert_int_equal(rc, code);
    if (strstr(error, part) == NULL) {
        fail_msg("'%s' does not contain '%s'", error, part);
    }
    fby_region_close(&rig.region);
}

void host_rig_close(host_rig_t *rig)
{
    fby_store_agent.close(rig->store);
    fby_region_close(&rig->region);
}

void *host_rig_slot(const host_rig_t *rig, uint32_t group, uint32_t i)
{
    return fby_region_slot(&rig->region, group, rig->region.first[group] + i);
}

void host_rig_paint(host_rig_t *rig)
{
    memset(rig->region.base, 0xEE, rig->region.bytes);
}

int64_t host_rig_put(host_rig_t *rig, uint64_t i, uint32_t slot)
{
    void *buffer = host_rig_slot(rig, 0, slot);
    fixture_fill(&rig->spec, i, 0, buffer);
    fby_store_op_t op = fixture_op(&rig->spec, i, 0, buffer);
    int rc = fby_store_agent.put(rig->store, &op, 1);
    return rc < 0 ? rc : op.result;
}

int64_t host_rig_get(host_rig_t *rig, uint64_t i, uint32_t slot)
{
    void *buffer = host_rig_slot(rig, 0, slot);
    fby_store_op_t op = fixture_op(&rig->spec, i, 0, buffer);
    int rc = fby_store_agent.get(rig->store, &op, 1);
    if (rc == 0 && op.result > 0) {
        assert_true(fixture_holds(&rig->spec, i, 0, buffer));
    }
    return rc < 0 ? rc : op.result;
}

int64_t host_rig_exists(host_rig_t *rig, uint64_t i)
{
    fby_store_op_t op = fixture_op(&rig->spec, i, 0, NULL);
    int rc = fby_store_agent.exists(rig->store, &op, 1);
    return rc < 0 ? rc : op.result;
}

/* The fourth field of /proc/PID/stat, behind the name, which may hold anything. */
static pid_t parent_of(const char *pid)
{
    char path[64], line[512];
    snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
    FILE *file = fopen(path, "re");
    size_t n = file != NULL ? fread(line, 1, sizeof(line) - 1, file) : 0;
    if (file != NULL) {
        fclose(file);
    }
    line[n] = '\0';
    const char *end = strrchr(line, ')');
    int parent = -1;
    if (end == NULL || sscanf(end + 1, " %*c %d", &parent) != 1) {
        return -1;
    }
    return parent;
}

uint32_t host_rig_agents(pid_t *pids, uint32_t most)
{
    uint32_t count = 0;
    DIR *proc = opendir("/proc");
    assert_non_null(proc);
    for (struct dirent *entry; (entry = readdir(proc)) != NULL && count < most;) {
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && parent_of(entry->d_name) == getpid()) {
            pids[count++] = (pid_t)strtol(entry->d_name, NULL, 10);
        }
    }
    closedir(proc);
    return count;
}

void host_rig_await(host_rig_t *rig, host_rig_condition *condition, uint64_t value)
{
    fby_agent_stats_t stats;
    for (int i = 0; i < AWAIT_STEPS; i++) {
        fby_agent_stats(rig->store, &stats);
        if (condition(&stats, value)) {
            return;
        }
        nanosleep(&(struct timespec){.tv_nsec = AWAIT_STEP_NS}, NULL);
    }
    fail_msg("processes=%u starts=%llu kills=%llu deaths=%llu unproven=%u last=%s", stats.processes,
             (unsigned long long)stats.starts, (unsigned long long)stats.kills, (unsigned long long)stats.deaths,
             stats.unproven, stats.last);
}

static void *get_main(void *arg)
{
    host_rig_call_t *call = arg;
    fby_agent_on_behalf(call);
    int rc = fby_store_agent.get(call->rig->store, &call->op, 1);
    call->result = rc < 0 ? rc : call->op.result;
    return NULL;
}

void host_rig_begin_get(host_rig_call_t *call, host_rig_t *rig, uint64_t i, uint32_t slot)
{
    *call = (host_rig_call_t){.rig = rig, .op = fixture_op(&rig->spec, i, 0, host_rig_slot(rig, 0, slot))};
    assert_int_equal(pthread_create(&call->thread, NULL, get_main, call), 0);
}

int64_t host_rig_end(host_rig_call_t *call)
{
    pthread_join(call->thread, NULL);
    return call->result;
}
