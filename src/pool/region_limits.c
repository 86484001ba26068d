/*
 * region_limits.c - what the machine, the container and the user's limits leave for a pool.
 *
 * Ordinary pages come from MemAvailable and count in the memory controller of every cgroup above; 2 MiB pages come from
 * their own pool and count in the hugetlb controller instead, unless cgroup2 is mounted with memory_hugetlb_accounting.
 * Cache that the kernel would give back (inactive_file) is not in the way. Both cgroup versions are read.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "pool/region.h"

#define NO_LIMIT UINT64_MAX
#define CAP_IPC_LOCK_BIT 14

/* cgroup v1 writes "no limit" as the greatest number of whole pages. */
#define V1_NO_LIMIT (UINT64_C(1) << 62)

/* ---- Files of numbers ---- */

static FILE *open_below(const char *root, const char *format, ...) FBY_PRINTF(2, 3);
static FILE *open_below(const char *root, const char *format, ...)
{
    char path[PATH_MAX];
    int used = snprintf(path, sizeof(path), "%s", root);
    if (used < 0 || (size_t)used >= sizeof(path)) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    va_list args;
    va_start(args, format);
    int more = vsnprintf(path + used, sizeof(path) - (size_t)used, format, args);
    va_end(args);
    if (more < 0 || (size_t)more >= sizeof(path) - (size_t)used) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    return fopen(path, "re");
}

/* The number after `name` on the line that begins with it. Closes the file, which may be NULL. */
static bool read_field(FILE *file, const char *name, int base, uint64_t *value)
{
    char line[512];
    bool found = false;
    size_t length = strlen(name);
    while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, name, length) == 0) {
            char *end;
            *value = strtoull(line + length, &end, base);
            found = end != line + length;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

/* A file that is one number, or "max". */
static bool read_number(FILE *file, uint64_t *value)
{
    char text[64] = "";
    if (file == NULL) {
        return false;
    }
    bool got = fgets(text, sizeof(text), file) != NULL;
    fclose(file);
    if (got && strncmp(text, "max", 3) == 0) {
        *value = NO_LIMIT;
        return true;
    }
    char *end;
    *value = strtoull(text, &end, 10);
    return got && end != text;
}

/* ---- cgroups ---- */

/* How one cgroup version names the files of a controller. */
typedef struct controller {
    const char *name;  /* as in /proc/self/cgroup; "" for version 2 */
    const char *mount; /* below /sys/fs/cgroup */
    const char *limit, *use;
    const char *reclaimable; /* field of memory.stat, or NULL */
} controller_t;

static const controller_t memory_controllers[] = {
    {"", "", "memory.max", "memory.current", "inactive_file "},
    {"memory", "/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "},
};
static const controller_t hugetlb_controllers[] = {
    {"", "", "hugetlb.2MB.max", "hugetlb.2MB.current", NULL},
    {"hugetlb", "/hugetlb", "hugetlb.2MB.limit_in_bytes", "hugetlb.2MB.usage_in_bytes", NULL},
};

/* The controllers field of a line "7:cpu,memory:/path" names the controller. */
static bool lists_controller(const char *field, const char *name)
{
    if (name[0] == '\0') {
        return field[0] == '\0';
    }
    size_t length = strlen(name);
    for (const char *at = field; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0')) {
            return true;
        }
    }
    return false;
}

/* This process's directory for the controller, "" for the topmost. false: not in such a hierarchy. */
static bool find_cgroup(const char *root, const controller_t *controller, char *path, size_t size)
{
    char line[PATH_MAX + 256];
    bool found = false;
    FILE *file = open_below(root, "/proc/self/cgroup");
    while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *names = strchr(line, ':');
        char *where = names != NULL ? strchr(names + 1, ':') : NULL;
        if (where == NULL) {
            continue;
        }
        *where++ = '\0';
        if (lists_controller(names + 1, controller->name)) {
            snprintf(path, size, "%s", strcmp(where, "/") == 0 ? "" : where);
            found = true;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

static uint64_t directory_free(const char *root, const controller_t *controller, const char *path)
{
    static const char format[] = "/sys/fs/cgroup%s%s/%s";
    uint64_t limit, use = 0, reclaimable = 0;
    if (!read_number(open_below(root, format, controller->mount, path, controller->limit), &limit) ||
        limit >= V1_NO_LIMIT) {
        return NO_LIMIT;
    }
    read_number(open_below(root, format, controller->mount, path, controller->use), &use);
    if (controller->reclaimable != NULL) {
        read_field(open_below(root, format, controller->mount, path, "memory.stat"), controller->reclaimable, 10,
                   &reclaimable);
    }
    return fby_sub_sat(limit, fby_sub_sat(use, reclaimable));
}

/* A limit anywhere above holds, too. In a container the path of the host may not exist below the mount; the mount
   itself is the container's own cgroup then, and the walk ends there. */
static uint64_t cgroup_free(const char *root, const controller_t *controllers, size_t count)
{
    uint64_t free_bytes = NO_LIMIT;
    for (size_t i = 0; i < count; i++) {
        char path[PATH_MAX];
        if (!find_cgroup(root, &controllers[i], path, sizeof(path))) {
            continue;
        }
        for (;;) {
            uint64_t here = directory_free(root, &controllers[i], path);
            free_bytes = FBY_MIN(free_bytes, here);
            char *last = strrchr(path, '/');
            if (last == NULL) {
                break;
            }
            *last = '\0';
        }
    }
    return free_bytes;
}

static bool memory_counts_huge_pages(const char *root)
{
    char line[4096];
    bool found = false;
    FILE *file = open_below(root, "/proc/self/mountinfo");
    while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL) {
        found = strstr(line, " cgroup2 ") != NULL && strstr(line, "memory_hugetlb_accounting") != NULL;
    }
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

/* ---- Machine and user ---- */

static uint64_t meminfo(const char *root, const char *name)
{
    uint64_t value = 0;
    read_field(open_below(root, "/proc/meminfo"), name, 10, &value);
    return value;
}

/* meminfo counts pages of the default size only; /sys counts each size. */
static uint64_t huge_free(const char *root)
{
    static const char format[] = "/sys/kernel/mm/hugepages/hugepages-2048kB/%s";
    uint64_t pages = 0, reserved = 0;
    if (read_number(open_below(root, format, "free_hugepages"), &pages)) {
        read_number(open_below(root, format, "resv_hugepages"), &reserved);
    } else if (meminfo(root, "Hugepagesize:") == 2048) {
        pages = meminfo(root, "HugePages_Free:");
        reserved = meminfo(root, "HugePages_Rsvd:");
    }
    return fby_mul_sat(fby_sub_sat(pages, reserved), UINT64_C(2) << 20);
}

static uint64_t lock_limit(const char *root)
{
    uint64_t capabilities = 0, locked_kib = 0, limit;
    read_field(open_below(root, "/proc/self/status"), "CapEff:", 16, &capabilities);
    if ((capabilities >> CAP_IPC_LOCK_BIT & 1) != 0 ||
        !read_field(open_below(root, "/proc/self/limits"), "Max locked memory", 10, &limit)) {
        return NO_LIMIT; /* the text "unlimited" is no number either */
    }
    read_field(open_below(root, "/proc/self/status"), "VmLck:", 10, &locked_kib);
    return fby_sub_sat(limit, fby_mul_sat(locked_kib, 1024));
}

int fby_region_limits_read(const char *root, fby_region_limits_t *limits)
{
    root = strcmp(root, "/") == 0 ? "" : root;
    fby_region_limits_t read = {.available_bytes = 0};
    uint64_t available_kib;
    errno = 0;
    if (!read_field(open_below(root, "/proc/meminfo"), "MemAvailable:", 10, &available_kib)) {
        int error = errno != 0 ? errno : EIO;
        fby_error_set("pool: %s/proc/meminfo does not say MemAvailable: %s", root, strerror(error));
        return -error;
    }
    read.available_bytes = fby_mul_sat(available_kib, 1024);
    read.huge_free_bytes = huge_free(root);
    read.cgroup_free_bytes = cgroup_free(root, memory_controllers, FBY_ARRAY_LEN(memory_controllers));
    read.cgroup_huge_free_bytes = cgroup_free(root, hugetlb_controllers, FBY_ARRAY_LEN(hugetlb_controllers));
    if (memory_counts_huge_pages(root)) {
        read.cgroup_huge_free_bytes = FBY_MIN(read.cgroup_huge_free_bytes, read.cgroup_free_bytes);
    }
    read.lock_limit_bytes = lock_limit(root);
    *limits = read;
    return 0;
}

static int check_one(uint64_t asked, uint64_t there, const char *place)
{
    if (asked <= there) {
        return 0;
    }
    fby_error_set("pool: %" PRIu64 " bytes are asked for, %s has %" PRIu64, asked, place, there);
    return -ENOMEM;
}

int fby_region_limits_check(const fby_region_config_t *config, const fby_region_limits_t *limits)
{
    uint64_t asked = fby_region_bytes(config);
    int result;
    if (config->huge_pages) {
        result = check_one(asked, limits->huge_free_bytes, "the pool of free 2 MiB pages");
        if (result == 0) {
            result = check_one(asked, limits->cgroup_huge_free_bytes, "the cgroup's limit of 2 MiB pages");
        }
    } else {
        result = check_one(asked, limits->available_bytes, "the machine's available memory");
        if (result == 0) {
            result = check_one(asked, limits->cgroup_free_bytes, "the cgroup's memory limit");
        }
    }
    if (result == 0 && config->lock) {
        result = check_one(asked, limits->lock_limit_bytes, "the limit of locked memory (RLIMIT_MEMLOCK)");
    }
    return result;
}
