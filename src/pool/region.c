#include "pool/region.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"

#define HUGE_PAGE_BYTES (UINT64_C(2) << 20)
#define MOST_NUMA_NODES 1024

/* Since Linux 4.14 and 5.14; older C libraries lack the names. */
#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21u << 26)
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static uint64_t page_bytes(const fby_region_config_t *config)
{
    return config->huge_pages ? HUGE_PAGE_BYTES : (uint64_t)sysconf(_SC_PAGESIZE);
}

uint64_t fby_region_bytes(const fby_region_config_t *config)
{
    uint64_t bytes = 0, page = page_bytes(config);
    for (uint32_t g = 0; g < config->groups; g++) {
        bytes = fby_add_sat(bytes, fby_mul_sat(config->slots[g], config->slot_bytes[g]));
    }
    return bytes > (uint64_t)PTRDIFF_MAX - page ? 0 : fby_align_up(bytes, page);
}

static int check_config(const fby_region_config_t *config)
{
    if (config->alignment < 64 || (config->alignment & (config->alignment - 1)) != 0) {
        fby_error_set("pool: alignment %u is not a power of two of at least 64", config->alignment);
        return -EINVAL;
    }
    if (config->groups == 0 || config->groups > FBY_MAX_GROUPS) {
        fby_error_set("pool: %u groups, accepted are 1 to %u", config->groups, FBY_MAX_GROUPS);
        return -EINVAL;
    }
    for (uint32_t g = 0; g < config->groups; g++) {
        if (config->slots[g] == 0 || config->slot_bytes[g] == 0 || config->slot_bytes[g] % config->alignment != 0) {
            fby_error_set("pool: group %u has %u slots of %u bytes, accepted is at least one slot of a multiple of %u",
                          g, config->slots[g], config->slot_bytes[g], config->alignment);
            return -EINVAL;
        }
    }
    if (config->numa_node >= MOST_NUMA_NODES) {
        fby_error_set("pool: NUMA node %d, accepted are 0 to %d, or -1 for any", config->numa_node,
                      MOST_NUMA_NODES - 1);
        return -EINVAL;
    }
    if (fby_region_bytes(config) == 0) {
        fby_error_set("pool: the sizes of the groups do not fit an address space");
        return -EINVAL;
    }
    return 0;
}

static int fail(const char *what, uint64_t bytes)
{
    int error = errno;
    fby_error_set("pool: %s of %llu bytes: %s", what, (unsigned long long)bytes, strerror(error));
    return -error;
}

static int make_file(const fby_region_config_t *config, uint64_t bytes, int *out)
{
    unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | (config->huge_pages ? MFD_HUGETLB | MFD_HUGE_2MB : 0u);
    int fd = memfd_create("forebay-pool", flags);
    if (fd < 0) {
        return fail(config->huge_pages ? "memfd of 2 MiB pages" : "memfd", bytes);
    }
    int result = 0;
    if (ftruncate(fd, (off_t)bytes) != 0) {
        result = fail("size", bytes);
    } else if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        result = fail("seal", bytes);
    }
    if (result != 0) {
        close(fd);
        return result;
    }
    *out = fd;
    return 0;
}

/* Before the first touch: a policy moves no page that is there already. */
static int bind_node(void *base, uint64_t bytes, int node)
{
    enum { BITS = 8 * sizeof(unsigned long) };
    unsigned long mask[MOST_NUMA_NODES / BITS] = {0};
    if (node < 0) {
        return 0;
    }
    mask[node / BITS] = 1ul << (node % BITS);
    if (syscall(SYS_mbind, base, bytes, MPOL_BIND, mask, MOST_NUMA_NODES + 1ul, 0u) != 0) {
        int error = errno;
        fby_error_set("pool: memory of NUMA node %d: %s", node, strerror(error));
        return -error;
    }
    return 0;
}

static int prefault(void *base, uint64_t bytes, uint64_t page)
{
    if (madvise(base, bytes, MADV_POPULATE_WRITE) == 0) {
        return 0;
    }
    if (errno != EINVAL) {
        return fail("pre-faulting", bytes);
    }
    /* Before Linux 5.14. Running out of pages is a signal here; the limits were checked for that reason. */
    for (uint64_t at = 0; at < bytes; at += page) {
        ((volatile uint8_t *)base)[at] = 0;
    }
    return 0;
}

static int map(const fby_region_config_t *config, int fd, uint64_t bytes, uint8_t **out)
{
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        return fail("mapping", bytes);
    }
    int result = madvise(base, bytes, MADV_DONTFORK) == 0 ? 0 : fail("MADV_DONTFORK", bytes);
    if (result == 0) {
        result = bind_node(base, bytes, config->numa_node);
    }
    if (result == 0 && config->prefault) {
        result = prefault(base, bytes, page_bytes(config));
    }
    if (result == 0 && config->lock && mlock(base, bytes) != 0) {
        result = fail("locking", bytes);
    }
    if (result != 0) {
        munmap(base, bytes);
        return result;
    }
    *out = base;
    return 0;
}

int fby_region_open(const fby_region_config_t *config, fby_region_t *region)
{
    fby_region_limits_t limits;
    fby_region_t opened = {.fd = -1, .groups = config->groups};
    int result = check_config(config);
    if (result != 0) {
        return result;
    }
    if ((result = fby_region_limits_read("", &limits)) != 0 ||
        (result = fby_region_limits_check(config, &limits)) != 0) {
        return result;
    }
    opened.bytes = (size_t)fby_region_bytes(config);
    result = make_file(config, opened.bytes, &opened.fd);
    if (result != 0) {
        return result;
    }
    result = map(config, opened.fd, opened.bytes, &opened.base);
    if (result != 0) {
        close(opened.fd);
        return result;
    }
    size_t offset = 0;
    uint32_t first = 0;
    for (uint32_t g = 0; g < config->groups; g++) {
        opened.first[g] = first;
        opened.slots[g] = config->slots[g];
        opened.slot_bytes[g] = config->slot_bytes[g];
        opened.group_offset[g] = offset;
        offset += (size_t)config->slots[g] * config->slot_bytes[g];
        first += config->slots[g];
    }
    *region = opened;
    return 0;
}

void fby_region_close(fby_region_t *region)
{
    if (region->base != NULL) {
        munmap(region->base, region->bytes);
        close(region->fd);
    }
    *region = (fby_region_t){.fd = -1};
}

void fby_region_paint(const fby_region_t *region, uint32_t group, uint32_t slot, uint8_t byte)
{
    memset(fby_region_slot(region, group, slot), byte, region->slot_bytes[group]);
}
