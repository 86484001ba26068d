#include "fence_rig.h"

#include <dirent.h>
#include <linux/capability.h>
#include <poll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_MS = 20000, STEP_MS = 5, STEPS = PATIENCE_MS / STEP_MS };

void fence_rig_pause(void)
{
    nanosleep(&(struct timespec){.tv_nsec = STEP_MS * 1000000L}, NULL);
}

#if defined(__SANITIZE_THREAD__)
#define TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TSAN 1
#endif
#endif

void fence_rig_needs_no_tsan(void)
{
#ifdef TSAN
    print_message("skipped: built with the thread sanitizer\n");
    skip();
#endif
}

/* ---- Rights ---- */

/* Of this thread; those it starts inherit it. The right stays permitted, so that it can be taken up again. */
bool fence_rig_namespaces(bool allowed)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
    assert_int_equal(syscall(SYS_capget, &header, data), 0);
    const uint32_t bit = CAP_TO_MASK(CAP_SYS_ADMIN), at = CAP_TO_INDEX(CAP_SYS_ADMIN);
    if (!allowed) {
        data[at].effective &= ~bit;
    } else if ((data[at].permitted & bit) == 0) {
        return false;
    } else {
        data[at].effective |= bit;
    }
    assert_int_equal(syscall(SYS_capset, &header, data), 0);
    return true;
}

/* ---- Stores ---- */

static void rig_open(fence_rig_t *rig, const char *driver, const char *act, bool namespaced)
{
    char act_option[64], directory_option[512];
    if (!fence_rig_namespaces(namespaced)) {
        print_message("skipped: PID namespaces need CAP_SYS_ADMIN\n");
        skip();
    }
    rig->directory = fixture_directory();
    snprintf(act_option, sizeof(act_option), "act=%s", act);
    snprintf(directory_option, sizeof(directory_option), "dir=%s", rig->directory);
    host_rig_open(&rig->host, 4096, driver, act_option, directory_option, NULL);
    fence_rig_namespaces(true);
}

void fence_rig_driver(fence_rig_t *rig, const char *act, bool namespaced)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/evil_driver.so", getenv("FOREBAY_EVIL_DRIVER"));
    rig_open(rig, path, act, namespaced);
}

void fence_rig_agent(fence_rig_t *rig, const char *act, bool namespaced)
{
    setenv("FOREBAY_LIBEXEC", getenv("FOREBAY_EVIL_AGENT"), 1);
    rig_open(rig, "evil", act, namespaced);
}

void fence_rig_close(fence_rig_t *rig)
{
    host_rig_close(&rig->host);
    fence_rig_forget(rig);
}

/* Renamed first: whoever still leaves marks finds no place for them. */
void fence_rig_forget(fence_rig_t *rig)
{
    char *gone = NULL;
    unsetenv("FOREBAY_LIBEXEC");
    assert_true(asprintf(&gone, "%s.gone", rig->directory) > 0);
    assert_int_equal(rename(rig->directory, gone), 0);
    free(rig->directory);
    fixture_remove_directory(gone);
}

/* ---- Marks ---- */

long fence_rig_marked(const fence_rig_t *rig, const char *name)
{
    char path[512], text[32] = "";
    snprintf(path, sizeof(path), "%s/%s", rig->directory, name);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return -1;
    }
    bool some = fgets(text, sizeof(text), file) != NULL;
    fclose(file);
    return some ? strtol(text, NULL, 10) : -1;
}

long fence_rig_mark(const fence_rig_t *rig, const char *name)
{
    for (int i = 0; i < STEPS; i++) {
        long value = fence_rig_marked(rig, name);
        if (value >= 0) {
            return value;
        }
        fence_rig_pause();
    }
    fail_msg("no mark '%s'", name);
    return -1;
}

void fence_rig_grown(const fence_rig_t *rig, const char *name, long more)
{
    long from = fence_rig_mark(rig, name), now = from;
    for (int i = 0; i < STEPS && now < from + more; i++) {
        fence_rig_pause();
        now = fence_rig_marked(rig, name);
    }
    assert_true(now >= from + more);
}

void fence_rig_leave(const fence_rig_t *rig, const char *name)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", rig->directory, name);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fclose(file);
}

void fence_rig_unmark(const fence_rig_t *rig, const char *name)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", rig->directory, name);
    unlink(path);
}

/* ---- Calls ---- */

void fence_rig_fence(host_rig_call_t *call)
{
    fby_agent_stats_t before, stats;
    fby_agent_stats(call->rig->store, &before);
    for (int i = 0; i < STEPS; i++) {
        fby_agent_fence(call->rig->store, call);
        fby_agent_stats(call->rig->store, &stats);
        if (stats.kills > before.kills) {
            return;
        }
        fence_rig_pause();
    }
    fail_msg("the fence found no call");
}

void fence_rig_painted(const fence_rig_t *rig, uint8_t byte)
{
    const fby_region_t *region = &rig->host.region;
    for (size_t i = 0; i < region->bytes; i++) {
        if (region->base[i] != byte) {
            fail_msg("byte %zu of the pool is %02x; expected %02x", i, region->base[i], byte);
        }
    }
}

void fence_rig_busy(fence_rig_t *rig, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(host_rig_exists(&rig->host, i), 0);
    }
}

/* ---- Processes ---- */

unsigned fence_rig_depth(pid_t pid)
{
    char path[64], line[256];
    unsigned count = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (count == 0 && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "NSpid:", 6) == 0) {
            for (const char *c = line; *c != '\0'; c++) {
                count += *c == '\t';
            }
        }
    }
    fclose(file);
    return count;
}

int fence_rig_pidfd(pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    assert_true(fd >= 0);
    return fd;
}

bool fence_rig_ended(int pidfd)
{
    struct pollfd end = {.fd = pidfd, .events = POLLIN};
    return poll(&end, 1, PATIENCE_MS) == 1;
}

bool fence_rig_lives(int pidfd)
{
    struct pollfd end = {.fd = pidfd, .events = POLLIN};
    return poll(&end, 1, 0) == 0;
}

static unsigned long sleeps_of_task(pid_t pid, const char *task, const char *name)
{
    char path[352], line[128];
    unsigned long sleeps = 0;
    bool counts = false;
    snprintf(path, sizeof(path), "/proc/%d/task/%s/status", (int)pid, task);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        counts = counts || (strncmp(line, "Name:\t", 6) == 0 && strncmp(line + 6, name, strlen(name)) == 0);
        if (counts) {
            (void)sscanf(line, "voluntary_ctxt_switches: %lu", &sleeps);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return sleeps;
}

unsigned long fence_rig_sleeps(pid_t pid, const char *name)
{
    char path[64];
    unsigned long sleeps = 0;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    assert_non_null(tasks);
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
        sleeps += entry->d_name[0] != '.' ? sleeps_of_task(pid, entry->d_name, name) : 0;
    }
    closedir(tasks);
    return sleeps;
}
