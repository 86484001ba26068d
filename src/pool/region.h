/*
 * region.h - the memory of the pool: one shared-memory region (memfd), split into one slot array per group.
 *
 * The memfd is sealed against shrinking and growing, O_CLOEXEC, and leaves no name behind. Group g's slots are
 * contiguous, each `slot_bytes[g]` long (a multiple of `alignment`), so slot s of group g lies at
 * base + group_offset[g] + (s - first[g]) * slot_bytes[g].
 *
 * A child of fork() does not inherit the mapping (MADV_DONTFORK): it may not use the pool, and copy-on-write must not
 * move a page of the parent while a device or the kernel reads into it.
 */
#ifndef FBY_POOL_REGION_H
#define FBY_POOL_REGION_H

#include "base/base.h"
#include "forebay/forebay.h"

typedef struct fby_region_config {
    uint32_t groups;
    uint32_t slots[FBY_MAX_GROUPS];
    uint32_t slot_bytes[FBY_MAX_GROUPS]; /* payload + trailer, multiple of alignment */
    uint32_t alignment;                  /* power of two, >= 64 */
    bool huge_pages;                     /* 2 MiB pages from the reserved pool */
    bool lock;                           /* mlock */
    bool prefault;
    int numa_node; /* < 0: any */
} fby_region_config_t;

typedef struct fby_region {
    uint8_t *base;
    size_t bytes; /* mapped */
    int fd;
    uint32_t groups;
    uint32_t first[FBY_MAX_GROUPS], slots[FBY_MAX_GROUPS], slot_bytes[FBY_MAX_GROUPS];
    size_t group_offset[FBY_MAX_GROUPS];
} fby_region_t;

/* Where start-up looks for limits. UINT64_MAX: none. */
typedef struct fby_region_limits {
    uint64_t available_bytes;        /* MemAvailable */
    uint64_t huge_free_bytes;        /* 2 MiB pages that are free and not reserved by others */
    uint64_t cgroup_free_bytes;      /* memory: least of limit - (use - reclaimable cache) over this cgroup and above */
    uint64_t cgroup_huge_free_bytes; /* 2 MiB pages: least of limit - use; a memory limit does not count them */
    uint64_t lock_limit_bytes;       /* RLIMIT_MEMLOCK less what is locked; none with CAP_IPC_LOCK */
} fby_region_limits_t;
/* /proc and /sys are read below `root` ("" or "/": the machine's own). -errno when meminfo cannot be read; a file that
   is not there otherwise means no limit. */
int fby_region_limits_read(const char *root, fby_region_limits_t *limits);
/* 0, or -ENOMEM with fby_error_set naming both numbers: what is asked and what the place it comes from has. */
int fby_region_limits_check(const fby_region_config_t *config, const fby_region_limits_t *limits);

/* Checks limits, maps, seals. -errno with detail. */
int fby_region_open(const fby_region_config_t *config, fby_region_t *region);
void fby_region_close(fby_region_t *region);
/* Sum of slots * slot_bytes, rounded to the page size in use. 0 on overflow. */
uint64_t fby_region_bytes(const fby_region_config_t *config);
static inline void *fby_region_slot(const fby_region_t *region, uint32_t group, uint32_t slot)
{
    return region->base + region->group_offset[group] +
           (size_t)(slot - region->first[group]) * region->slot_bytes[group];
}
/* memset of a slot with a pattern: debug painting. */
void fby_region_paint(const fby_region_t *region, uint32_t group, uint32_t slot, uint8_t byte);

#endif
