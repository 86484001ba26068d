#include "rig.h"

#include <dirent.h>
#include <stdarg.h>
#include <time.h>
#include <unistd.h>

enum { MOST_OPTIONS = 32, TEXT_BYTES = 1024, LANES = 2, PAUSE_NS = 5000000 };

/* "mooncake:a=b,c=d" cut in place into options. */
static size_t split_store(char *text, const char **options)
{
    size_t n = 0;
    char *rest = NULL;
    for (char *at = strtok_r(strchr(text, ':') + 1, ",", &rest); at != NULL; at = strtok_r(NULL, ",", &rest)) {
        assert_true(n < MOST_OPTIONS);
        options[n++] = at;
    }
    return n;
}

static void region_open(mooncake_rig_t *rig, uint32_t slots)
{
    fby_region_config_t config = {.groups = rig->spec.groups, .alignment = rig->spec.alignment, .numa_node = -1};
    for (uint32_t g = 0; g < config.groups; g++) {
        config.slots[g] = g == 0 ? slots : 1;
        config.slot_bytes[g] = rig->spec.slot_bytes[g];
    }
    assert_int_equal(fby_region_open(&config, &rig->region), 0);
}

static int rig_open(mooncake_rig_t *rig, uint32_t payload, uint32_t slots, char error[512], const char **more)
{
    const char *store = getenv("FOREBAY_STORE"), *options[2 * MOST_OPTIONS + 1];
    char text[TEXT_BYTES];
    assert_non_null(store);
    assert_int_equal(strncmp(store, "mooncake:", 9), 0);
    snprintf(text, sizeof(text), "%s", store);
    size_t n = split_store(text, options);
    while (*more != NULL) {
        options[n++] = *more++;
    }
    options[n] = NULL;
    rig->spec = fixture_spec(payload);
    region_open(rig, slots);
    mooncake_rig_paint(rig);
    const fby_agent_config_t config = {
        .driver = "mooncake",
        .options = options,
        .spec = &rig->spec,
        .region = &rig->region,
        .lanes = {LANES, LANES, LANES},
        .batch = MOONCAKE_RIG_MOST,
    };
    error[0] = '\0';
    int rc = fby_agent_open(&config, &rig->store, error, 512);
    if (rc != 0) {
        fby_region_close(&rig->region);
    }
    return rc;
}

int mooncake_rig_try(mooncake_rig_t *rig, uint32_t payload, uint32_t slots, char error[512], ...)
{
    const char *more[MOST_OPTIONS + 1];
    size_t n = 0;
    va_list list;
    va_start(list, error);
    do {
        assert_true(n < MOST_OPTIONS);
        more[n] = va_arg(list, const char *);
    } while (more[n++] != NULL);
    va_end(list);
    return rig_open(rig, payload, slots, error, more);
}

void mooncake_rig_open(mooncake_rig_t *rig, uint32_t payload, uint32_t slots)
{
    char error[512];
    fby_agent_stats_t stats;
    int rc = mooncake_rig_try(rig, payload, slots, error, NULL);
    if (rc != 0) {
        fail_msg("mooncake in agents: %d %s", rc, error);
    }
    fby_agent_stats(rig->store, &stats);
    if (stats.processes != FBY_AGENT_KINDS) {
        fail_msg("%u agents of %d run: %s", stats.processes, FBY_AGENT_KINDS, stats.last);
    }
}

void mooncake_rig_close(mooncake_rig_t *rig)
{
    fby_store_agent.close(rig->store);
    fby_region_close(&rig->region);
}

void *mooncake_rig_slot(const mooncake_rig_t *rig, uint32_t i)
{
    return fby_region_slot(&rig->region, 0, rig->region.first[0] + i);
}

void mooncake_rig_paint(mooncake_rig_t *rig)
{
    memset(rig->region.base, MOONCAKE_RIG_PAINT, rig->region.bytes);
}

bool mooncake_rig_is_painted(const mooncake_rig_t *rig, uint32_t from, uint32_t to)
{
    const uint8_t *at = mooncake_rig_slot(rig, from);
    size_t bytes = (size_t)(to - from) * rig->spec.slot_bytes[0];
    return at[0] == MOONCAKE_RIG_PAINT && memcmp(at, at + 1, bytes - 1) == 0;
}

void mooncake_rig_ops(mooncake_rig_t *rig, uint64_t first, uint32_t n, uint32_t slot)
{
    for (uint32_t i = 0; i < n; i++) {
        rig->ops[i] = fixture_op(&rig->spec, first + i, 0, mooncake_rig_slot(rig, slot + i));
    }
}

void mooncake_rig_call(mooncake_rig_t *rig, mooncake_rig_call_t *call, uint32_t n)
{
    int rc = call(rig->store, rig->ops, n);
    for (uint32_t i = 0; rc < 0 && i < n; i++) {
        rig->ops[i].result = rc;
    }
}

int64_t mooncake_rig_one(mooncake_rig_t *rig, mooncake_rig_call_t *call, uint64_t i, uint32_t slot)
{
    mooncake_rig_ops(rig, i, 1, slot);
    if (call == fby_store_agent.exists || call == fby_store_agent.remove) {
        rig->ops[0].buffer = NULL;
    }
    mooncake_rig_call(rig, call, 1);
    return rig->ops[0].result;
}

void mooncake_rig_store(mooncake_rig_t *rig, uint64_t first, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        fixture_fill(&rig->spec, first + i, 0, mooncake_rig_slot(rig, i));
    }
    mooncake_rig_ops(rig, first, n, 0);
    mooncake_rig_call(rig, fby_store_agent.put, n);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(rig->ops[i].result, rig->spec.object_bytes[0]);
    }
}

static void *reader_main(void *arg)
{
    mooncake_reader_t *reader = arg;
    fby_agent_on_behalf(reader);
    reader->rc = fby_store_agent.get(reader->rig->store, reader->rig->ops, reader->n);
    atomic_store(&reader->done, true);
    return NULL;
}

void mooncake_reader_begin(mooncake_reader_t *reader, mooncake_rig_t *rig, uint32_t n)
{
    *reader = (mooncake_reader_t){.rig = rig, .n = n};
    assert_int_equal(pthread_create(&reader->thread, NULL, reader_main, reader), 0);
}

int64_t mooncake_reader_end(mooncake_reader_t *reader)
{
    pthread_join(reader->thread, NULL);
    return reader->rc < 0 ? reader->rc : reader->rig->ops[0].result;
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
    return end != NULL && sscanf(end + 1, " %*c %d", &parent) == 1 ? parent : -1;
}

uint32_t mooncake_rig_agents(pid_t *pids, uint32_t most)
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

pid_t mooncake_rig_pid(const char *name)
{
    char variable[64];
    snprintf(variable, sizeof(variable), "FOREBAY_WITH_STORE_%s", name);
    const char *text = getenv(variable);
    assert_non_null(text);
    return (pid_t)strtol(text, NULL, 10);
}

void mooncake_rig_pause(void)
{
    nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
}
