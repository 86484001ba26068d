/* doctor_machine.c - memory, limits and what the kernel allows. */
#include <errno.h>
#include <inttypes.h>
#include <liburing.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/doctor.h"
#include "pool/region.h"
#include "runtime/config_value.h"
#include "runtime/settings.h"

enum { PIECE_BYTES = 1 << 20, FEW_FILES = 1024 };

/* "3276MiB"; "no limit". */
static const char *size_text(uint64_t bytes, char out[32])
{
    if (bytes == UINT64_MAX) {
        return "no limit";
    }
    if (bytes < PIECE_BYTES) {
        snprintf(out, 32, "%" PRIu64 "KiB", bytes >> 10);
    } else {
        snprintf(out, 32, "%" PRIu64 "MiB", bytes >> 20);
    }
    return out;
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static bool read_limits(fby_doctor_t *doctor, fby_region_limits_t *limits)
{
    if (fby_region_limits_read("/", limits) == 0) {
        return true;
    }
    fby_doctor_report(doctor, FBY_VERDICT_FAIL, "mount /proc", "%s", fby_last_error());
    return false;
}

/* The pool as one array of slots: limits are about its bytes only. */
static fby_region_config_t pool_of(uint64_t bytes, bool huge_pages, bool lock)
{
    return (fby_region_config_t){
        .groups = 1,
        .slots = {(uint32_t)FBY_MIN((bytes + PIECE_BYTES - 1) / PIECE_BYTES, (uint64_t)UINT32_MAX)},
        .slot_bytes = {PIECE_BYTES},
        .alignment = 4096,
        .huge_pages = huge_pages,
        .lock = lock,
        .numa_node = -1,
    };
}

void fby_check_memory(fby_doctor_t *doctor)
{
    fby_region_limits_t limits;
    char free_text[32], pool_text[32];
    uint64_t pool = fby_doctor_pool_bytes(doctor);
    if (!read_limits(doctor, &limits)) {
        return;
    }
    uint64_t there = FBY_MIN(limits.available_bytes, limits.cgroup_free_bytes);
    bool is_ours = pool > 0 && fby_doctor_number(doctor, FBY_KEY_POOL_HUGE_PAGES) == 0;
    fby_region_config_t config = pool_of(pool, false, false);
    if (is_ours && fby_region_limits_check(&config, &limits) != 0) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, "make pool.bytes smaller, or raise the memory limit", "%s",
                          fby_last_error());
    } else if (is_ours && pool > there / 10 * 9) {
        fby_doctor_report(doctor, FBY_VERDICT_WARN, "make pool.bytes smaller, or leave more memory to this process",
                          "%s are free here and the pool takes %s of them", size_text(there, free_text),
                          size_text(pool, pool_text));
    } else {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "%s are free here%s%s", size_text(there, free_text),
                          is_ours ? "; the pool takes " : "", is_ours ? size_text(pool, pool_text) : "");
    }
}

void fby_check_locked_memory(fby_doctor_t *doctor)
{
    fby_region_limits_t limits;
    char text[32];
    uint64_t pool = fby_doctor_pool_bytes(doctor);
    bool locks = pool > 0 && fby_doctor_number(doctor, FBY_KEY_POOL_LOCK) != 0;
    bool registers = doctor->has_store && fby_doctor_option_is(doctor, "protocol", "rdma");
    if (!read_limits(doctor, &limits)) {
        return;
    }
    bool fits = pool <= limits.lock_limit_bytes;
    const char *limit = size_text(limits.lock_limit_bytes, text);
    if (locks && !fits) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL,
                          "raise RLIMIT_MEMLOCK (ulimit -l, LimitMEMLOCK=), or pool.lock: false",
                          "%s may be locked, which is less than the pool", limit);
    } else if (registers && (!fits || (pool == 0 && limits.lock_limit_bytes != UINT64_MAX))) {
        fby_doctor_report(doctor, FBY_VERDICT_WARN, "raise RLIMIT_MEMLOCK (ulimit -l, LimitMEMLOCK=)",
                          "%s may be locked; RDMA locks the whole pool", limit);
    } else {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "%s%s", limit,
                          limits.lock_limit_bytes != UINT64_MAX ? " may be locked" : "");
    }
}

void fby_check_huge_pages(fby_doctor_t *doctor)
{
    fby_region_limits_t limits;
    char text[32];
    uint64_t pool = fby_doctor_pool_bytes(doctor);
    if (!read_limits(doctor, &limits)) {
        return;
    }
    bool wanted = pool > 0 && fby_doctor_number(doctor, FBY_KEY_POOL_HUGE_PAGES) != 0;
    fby_region_config_t config = pool_of(pool, true, false);
    if (wanted && fby_region_limits_check(&config, &limits) != 0) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL,
                          "reserve more of them (sysctl vm.nr_hugepages), or pool.huge_pages: false", "%s",
                          fby_last_error());
    } else {
        uint64_t there = FBY_MIN(limits.huge_free_bytes, limits.cgroup_huge_free_bytes);
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "%s free in 2 MiB pages%s", size_text(there, text),
                          wanted ? "; the pool fits" : "; none are asked for");
    }
}

/* ---- Limits ------------------------------------------------------------------------------------------------------ */

void fby_check_cores(fby_doctor_t *doctor)
{
    cpu_set_t set;
    long count = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : sysconf(_SC_NPROCESSORS_ONLN);
    if (count < 2) {
        fby_doctor_report(doctor, FBY_VERDICT_WARN, "give this process at least two cores",
                          "%ld core: the store's threads and the engine take turns on it", count);
    } else {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "%ld", count);
    }
}

void fby_check_open_files(fby_doctor_t *doctor)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        fby_doctor_report(doctor, FBY_VERDICT_WARN, NULL, "the limit cannot be read: %s", strerror(errno));
    } else if (limit.rlim_cur < FEW_FILES) {
        fby_doctor_report(doctor, FBY_VERDICT_WARN, "raise it to 1024 or more (ulimit -n, LimitNOFILE=)",
                          "%" PRIu64 " descriptors: a store of many segments, or many connections, needs more",
                          (uint64_t)limit.rlim_cur);
    } else {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "%" PRIu64 " descriptors", (uint64_t)limit.rlim_cur);
    }
}

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

void fby_check_uring(fby_doctor_t *doctor)
{
    struct io_uring ring;
    int status = io_uring_queue_init(4, &ring, 0);
    if (status == 0) {
        io_uring_queue_exit(&ring);
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "allowed");
        return;
    }
    bool demanded = doctor->has_store && fby_doctor_option_is(doctor, "io", "uring");
    fby_doctor_report(doctor, demanded ? FBY_VERDICT_FAIL : FBY_VERDICT_WARN,
                      "allow io_uring (kernel.io_uring_disabled, the container's seccomp profile), or io=sync",
                      "refused: %s; the file store reads with blocking calls", strerror(-status));
}

void fby_check_pidfd(fby_doctor_t *doctor)
{
    long fd = syscall(SYS_pidfd_open, getpid(), 0);
    if (fd >= 0) {
        close((int)fd);
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "available");
        return;
    }
    bool has_agents = fby_applies_agents(doctor);
    fby_doctor_report(doctor, has_agents && doctor->has_store ? FBY_VERDICT_FAIL : FBY_VERDICT_WARN,
                      "Linux 5.3 or newer, and a seccomp profile that allows pidfd_open", "refused: %s; %s",
                      strerror(errno),
                      has_agents ? "the end of an agent cannot be proven, so none is started"
                                 : "the end of a client cannot be proven, so it cannot put");
}

void fby_check_seccomp(fby_doctor_t *doctor)
{
    uint32_t action = SECCOMP_RET_ERRNO;
    if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0) {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "filters are available");
        return;
    }
    fby_doctor_report(doctor, doctor->has_store ? FBY_VERDICT_FAIL : FBY_VERDICT_WARN,
                      "a kernel with CONFIG_SECCOMP_FILTER, and a profile that allows seccomp()",
                      "filters are refused: %s; an agent could leave processes behind", strerror(errno));
}

/* As an agent is started, but that the child ends at once. */
void fby_check_pid_namespace(fby_doctor_t *doctor)
{
    fflush(NULL);
    long pid = syscall(SYS_clone, (unsigned long)CLONE_NEWPID | SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0) {
        _exit(0);
    }
    if (pid > 0) {
        while (waitpid((pid_t)pid, NULL, 0) < 0 && errno == EINTR) {}
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "available: whatever an agent starts dies with it");
        return;
    }
    fby_doctor_report(doctor, FBY_VERDICT_WARN,
                      "CAP_SYS_ADMIN, where that is acceptable; the seccomp filter alone keeps agents from forking",
                      "refused: %s; agents run without one", strerror(errno));
}
