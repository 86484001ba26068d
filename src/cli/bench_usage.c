#include "cli/bench_usage.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

enum { PROCESSES_MOST = 4096, PATH_BYTES = 300 };

typedef struct process {
    pid_t pid, parent;
    bool is_ours;
} process_t;

/* The number behind "Name:" of a status file; 0 when it is not there. */
static uint64_t status_field(const char *path, const char *name, uint64_t *second)
{
    char line[256];
    uint64_t number = 0;
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return 0;
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, name, strlen(name)) == 0) {
            number = strtoull(line + strlen(name), NULL, 10);
        } else if (second != NULL && strncmp(line, "nonvoluntary_ctxt_switches:", 27) == 0) {
            *second = strtoull(line + 27, NULL, 10);
        }
    }
    fclose(file);
    return number;
}

/* A status file has the switches of one thread only. */
static void add_switches(pid_t pid, fby_bench_usage_t *usage)
{
    char path[PATH_BYTES];
    struct dirent *entry;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    while (tasks != NULL && (entry = readdir(tasks)) != NULL) {
        uint64_t forced = 0;
        if (entry->d_name[0] == '.') {
            continue;
        }
        snprintf(path, sizeof(path), "/proc/%d/task/%.20s/status", (int)pid, entry->d_name);
        uint64_t wakes = status_field(path, "voluntary_ctxt_switches:", &forced);
        usage->wakes += wakes;
        usage->switches += wakes + forced;
    }
    if (tasks != NULL) {
        closedir(tasks);
    }
}

static void add_process(pid_t pid, fby_bench_usage_t *usage)
{
    clockid_t clock;
    struct timespec used;
    if (clock_getcpuclockid(pid, &clock) == 0 && clock_gettime(clock, &used) == 0) {
        usage->cpu_ns += (uint64_t)used.tv_sec * FBY_SECOND + (uint64_t)used.tv_nsec;
    }
    add_switches(pid, usage);
}

static size_t list_processes(process_t *processes)
{
    char path[PATH_BYTES];
    size_t count = 0;
    struct dirent *entry;
    DIR *all = opendir("/proc");
    while (all != NULL && count < PROCESSES_MOST && (entry = readdir(all)) != NULL) {
        int pid = atoi(entry->d_name);
        if (pid <= 0) {
            continue;
        }
        snprintf(path, sizeof(path), "/proc/%d/status", pid);
        pid_t parent = (pid_t)status_field(path, "PPid:", NULL);
        processes[count++] = (process_t){.pid = pid, .parent = parent, .is_ours = parent == getpid()};
    }
    if (all != NULL) {
        closedir(all);
    }
    return count;
}

/* Children of ours are ours; a pass that finds none ends it. */
static void mark_descendants(process_t *processes, size_t count)
{
    for (bool found = true; found;) {
        found = false;
        for (size_t i = 0; i < count; i++) {
            for (size_t k = 0; k < count && !processes[i].is_ours; k++) {
                processes[i].is_ours = processes[k].is_ours && processes[k].pid == processes[i].parent;
                found |= processes[i].is_ours;
            }
        }
    }
}

void fby_bench_usage_now(fby_bench_usage_t *out)
{
    struct rusage own;
    process_t *processes = malloc(PROCESSES_MOST * sizeof(*processes));
    size_t count = processes != NULL ? list_processes(processes) : 0;
    *out = (fby_bench_usage_t){0};
    mark_descendants(processes, count);
    for (size_t i = 0; i < count; i++) {
        if (processes[i].is_ours) {
            add_process(processes[i].pid, out);
        }
    }
    free(processes);
    getrusage(RUSAGE_SELF, &own); /* unlike /proc it still has the switches of threads that ended */
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    out->cpu_ns += (uint64_t)used.tv_sec * FBY_SECOND + (uint64_t)used.tv_nsec;
    out->wakes += (uint64_t)own.ru_nvcsw;
    out->switches += (uint64_t)own.ru_nvcsw + (uint64_t)own.ru_nivcsw;
}

fby_bench_usage_t fby_bench_usage_since(const fby_bench_usage_t *from, const fby_bench_usage_t *to)
{
    return (fby_bench_usage_t){
        .cpu_ns = fby_sub_sat(to->cpu_ns, from->cpu_ns),
        .wakes = fby_sub_sat(to->wakes, from->wakes),
        .switches = fby_sub_sat(to->switches, from->switches),
    };
}

void fby_bench_usage_add(fby_bench_usage_t *sum, const fby_bench_usage_t *more)
{
    sum->cpu_ns += more->cpu_ns;
    sum->wakes += more->wakes;
    sum->switches += more->switches;
}
