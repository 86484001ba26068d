/* rank.c - attach, register, detach. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "rank/backends.h"
#include "rank/rank_internal.h"
#include "stores/object.h"

enum { MOST_RANKS = 65536, MOST_THREADS = 256 };

int fby_rank_usable(const fby_rank_t *rank)
{
    if (rank == NULL) {
        fby_error_set("rank is NULL");
        return -EINVAL;
    }
    if (rank->owner != getpid()) {
        fby_error_set("rank %u was attached by process %d; this one attaches for itself", rank->rank, (int)rank->owner);
        return FBY_E_FORKED;
    }
    return 0;
}

int fby_rank_fail(int rc, const char *what, const char *detail)
{
    fby_error_set("%s: %s", what, detail != NULL && detail[0] != '\0' ? detail : fby_strerror(rc));
    return rc;
}

void fby_rank_pause(uint64_t *nap_ns)
{
    enum { SHORTEST_NS = 20000, LONGEST_NS = 1000000 };
    *nap_ns = FBY_MAX(*nap_ns, (uint64_t)SHORTEST_NS);
    struct timespec nap = {.tv_nsec = (long)*nap_ns};
    nanosleep(&nap, NULL);
    *nap_ns = FBY_MIN(*nap_ns * 2, (uint64_t)LONGEST_NS);
}

const fby_device_driver_t *fby_device_find(const char *name)
{
    static const fby_device_driver_t *const drivers[] = {&fby_device_host, &fby_device_cuda};
    for (size_t i = 0; i < FBY_ARRAY_LEN(drivers); i++) {
        if (strcmp(name, drivers[i]->name) == 0) {
            return drivers[i];
        }
    }
    return NULL;
}

/* ---- What is given ---------------------------------------------------------------------------------------------- */

static int refuse(const char *field, uint64_t value, const char *accepted)
{
    fby_error_set("%s is %llu; accepted: %s", field, (unsigned long long)value, accepted);
    return -EINVAL;
}

static int check_group(const fby_pool_t *pool, uint32_t g)
{
    const uint64_t payload = pool->group[g].payload_bytes, slot = pool->group[g].slot_bytes;
    if (payload == 0 || payload > UINT32_MAX - FBY_TRAILER_BYTES) {
        return refuse("pool.group.payload_bytes", payload, "1 or more, with room for a trailer");
    }
    if (slot < payload + FBY_TRAILER_BYTES) {
        return refuse("pool.group.slot_bytes", slot, "payload_bytes and 64 more, or above");
    }
    if (pool->group[g].slots == 0) {
        return refuse("pool.group.slots", 0, "1 or more");
    }
    if (pool->group[g].offset > pool->bytes || slot * pool->group[g].slots > pool->bytes - pool->group[g].offset) {
        return refuse("pool.group.offset", pool->group[g].offset, "what leaves the group's slots within pool.bytes");
    }
    return 0;
}

static int check_pool(const fby_pool_t *pool)
{
    if (pool == NULL || pool->size != sizeof(*pool)) {
        return refuse("pool.size", pool != NULL ? pool->size : 0, "the size of fby_pool_t");
    }
    if (pool->groups == 0 || pool->groups > FBY_MAX_GROUPS) {
        return refuse("pool.groups", pool->groups, "1 to 8");
    }
    if (pool->bytes == 0 || pool->bytes > PTRDIFF_MAX) {
        return refuse("pool.bytes", pool->bytes, "the length of the pool");
    }
    int rc = 0;
    for (uint32_t g = 0; rc == 0 && g < pool->groups; g++) {
        rc = check_group(pool, g);
    }
    return rc;
}

static int check_config(const fby_rank_config_t *config, const fby_device_driver_t **driver)
{
    if (config == NULL || config->size != sizeof(*config)) {
        return refuse("config.size", config != NULL ? config->size : 0, "the size of fby_rank_config_t");
    }
    if (config->ranks == 0 || config->ranks > MOST_RANKS) {
        return refuse("config.ranks", config->ranks, "1 to 65536");
    }
    if (config->rank >= config->ranks) {
        return refuse("config.rank", config->rank, "0 to config.ranks - 1");
    }
    if (config->threads > MOST_THREADS) {
        return refuse("config.threads", config->threads, "0 to 256");
    }
    *driver = config->driver != NULL ? config->driver : fby_device_find(config->device ? config->device : "host");
    if (*driver == NULL) {
        fby_error_set("config.device is %s; accepted: host, cuda", config->device);
        return -EINVAL;
    }
    if ((*driver)->abi != FBY_DEVICE_ABI || (*driver)->size < sizeof(**driver)) {
        return refuse("config.driver.abi", (*driver)->abi, "1, with the size of fby_device_driver_t");
    }
    return 0;
}

/* A descriptor that could shrink would make a copy end in SIGBUS. */
static int check_descriptor(const fby_pool_t *pool)
{
    struct stat status;
    if (fstat(pool->descriptor, &status) != 0) {
        int error = errno;
        fby_error_set("pool.descriptor is %d: %s", pool->descriptor, strerror(error));
        return -error;
    }
    int seals = fcntl(pool->descriptor, F_GET_SEALS);
    if (status.st_size < 0 || (uint64_t)status.st_size != pool->bytes) {
        fby_error_set("pool.descriptor is %d, %lld bytes long; accepted: the pool's, %llu bytes", pool->descriptor,
                      (long long)status.st_size, (unsigned long long)pool->bytes);
        return FBY_E_FORMAT;
    }
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
        fby_error_set("pool.descriptor is %d, which may shrink; accepted: a memfd sealed against that",
                      pool->descriptor);
        return FBY_E_FORMAT;
    }
    return 0;
}

/* ---- Attach, detach --------------------------------------------------------------------------------------------- */

static int map_pool(const fby_pool_t *pool, uint8_t **out)
{
    void *base = mmap(NULL, pool->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, pool->descriptor, 0);
    if (base == MAP_FAILED) {
        int error = errno;
        fby_error_set("mapping of the pool of %llu bytes: %s", (unsigned long long)pool->bytes, strerror(error));
        return -error;
    }
    if (madvise(base, pool->bytes, MADV_DONTFORK) != 0) {
        int error = errno;
        fby_error_set("MADV_DONTFORK of the pool: %s", strerror(error));
        munmap(base, pool->bytes);
        return -error;
    }
    *out = base;
    return 0;
}

static int open_device(fby_rank_t *rank, const fby_rank_config_t *config)
{
    char detail[FBY_DETAIL_BYTES] = "";
    const fby_device_options_t options = {
        .size = sizeof(options),
        .threads = config->threads,
        .ordinal = config->ordinal,
        .event_fd = rank->event_fd,
        .library = config->library,
    };
    int rc = rank->driver->open(&options, &rank->pool, rank->base, &rank->device, detail, sizeof(detail));
    return rc == 0 ? 0 : fby_rank_fail(rc, rank->driver->name, detail);
}

static int open_parts(fby_rank_t *rank, const fby_rank_config_t *config)
{
    rank->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (rank->event_fd < 0) {
        return fby_rank_fail(-errno, "eventfd", NULL);
    }
    int rc = map_pool(&rank->pool, &rank->base);
    if (rc != 0) {
        close(rank->event_fd);
        return rc;
    }
    rc = open_device(rank, config);
    if (rc != 0) {
        munmap(rank->base, rank->pool.bytes);
        close(rank->event_fd);
    }
    return rc;
}

int fby_rank_attach(const fby_pool_t *pool, const fby_rank_config_t *config, fby_rank_t **out)
{
    const fby_device_driver_t *driver = NULL;
    int rc = check_config(config, &driver);
    rc = rc == 0 ? check_pool(pool) : rc;
    rc = rc == 0 && out == NULL ? refuse("out", 0, "where the rank goes") : rc;
    rc = rc == 0 ? check_descriptor(pool) : rc;
    if (rc != 0) {
        return rc;
    }
    fby_rank_t *rank = calloc(1, sizeof(*rank));
    if (rank == NULL) {
        return fby_rank_fail(-ENOMEM, "rank", NULL);
    }
    rank->owner = getpid();
    rank->rank = config->rank;
    rank->ranks = config->ranks;
    rank->driver = driver;
    rank->pool = *pool;
    rc = open_parts(rank, config);
    if (rc != 0) {
        free(rank);
        return rc;
    }
    rank->pool.descriptor = -1; /* the caller's */
    pthread_mutex_init(&rank->lock, NULL);
    pthread_mutex_init(&rank->device_lock, NULL);
    *out = rank;
    return 0;
}

/* All of it stays as it is, and findable: the device may write to the pool, the tensors and the descriptor. */
static int abandon(fby_rank_t *rank)
{
    static fby_rank_t *_Atomic abandoned;
    fby_rank_t *first = abandoned;
    do {
        rank->next_abandoned = first;
    } while (!atomic_compare_exchange_weak(&abandoned, &first, rank));
    return fby_rank_fail(FBY_E_ABANDONED, "detach", "copies are not known to have ended, so the pool stays mapped");
}

int fby_rank_detach(fby_rank_t *rank, double limit_s)
{
    if (rank == NULL) {
        return 0;
    }
    int rc = fby_rank_usable(rank);
    if (rc != 0) {
        return rc;
    }
    if (!fby_rank_drain(rank, limit_s) || rank->driver->close(rank->device) != 0) {
        return abandon(rank);
    }
    munmap(rank->base, rank->pool.bytes);
    close(rank->event_fd);
    for (uint32_t g = 0; g < FBY_MAX_GROUPS; g++) {
        fby_plan_free(&rank->plan[g]);
    }
    pthread_mutex_destroy(&rank->device_lock);
    pthread_mutex_destroy(&rank->lock);
    free(rank);
    return 0;
}

int fby_rank_event_fd(fby_rank_t *rank)
{
    int rc = fby_rank_usable(rank);
    return rc == 0 ? rank->event_fd : rc;
}

/* ---- Register --------------------------------------------------------------------------------------------------- */

static int check_addresses(fby_rank_t *rank, const fby_layout_t *layout)
{
    char detail[FBY_DETAIL_BYTES] = "";
    int rc = 0;
    pthread_mutex_lock(&rank->device_lock);
    for (uint32_t i = 0; rc == 0 && i < layout->tensors; i++) {
        rc = rank->driver->check(rank->device, layout->tensor[i].base, layout->tensor[i].bytes, detail, sizeof(detail));
        if (rc != 0) {
            fby_error_set("layout.tensor[%u].base is %p: %s", i, layout->tensor[i].base,
                          detail[0] != '\0' ? detail : fby_strerror(rc));
        }
    }
    pthread_mutex_unlock(&rank->device_lock);
    return rc;
}

static int check_shard(const fby_rank_t *rank, const fby_shard_t *shard, const fby_layout_t *layout)
{
    if (shard == NULL || shard->size != sizeof(*shard)) {
        return refuse("shard.size", shard != NULL ? shard->size : 0, "the size of fby_shard_t");
    }
    if (shard->group >= rank->pool.groups) {
        return refuse("shard.group", shard->group, "a group of the pool");
    }
    return layout == NULL ? refuse("layout", 0, "the address of a layout") : 0;
}

int fby_rank_register(fby_rank_t *rank, const fby_shard_t *shard, const fby_layout_t *layout)
{
    fby_plan_t plan;
    int rc = fby_rank_usable(rank);
    rc = rc == 0 ? check_shard(rank, shard, layout) : rc;
    rc = rc == 0 ? fby_plan_make(shard, layout, rank->pool.group[shard->group].payload_bytes, &plan) : rc;
    if (rc != 0) {
        return rc;
    }
    rc = check_addresses(rank, layout);
    if (rc == 0) {
        pthread_mutex_lock(&rank->lock);
        if (rank->plan[shard->group].run != NULL) {
            fby_error_set("shard.group is %u, which has a layout; accepted: one registration per group", shard->group);
            rc = -EEXIST;
        } else {
            rank->plan[shard->group] = plan;
        }
        pthread_mutex_unlock(&rank->lock);
    }
    if (rc != 0) {
        fby_plan_free(&plan);
    }
    return rc;
}

int fby_rank_segments(fby_rank_t *rank, uint32_t group, uint64_t *out)
{
    int rc = fby_rank_usable(rank);
    if (rc != 0) {
        return rc;
    }
    pthread_mutex_lock(&rank->lock);
    bool known = group < rank->pool.groups && rank->plan[group].run != NULL;
    uint64_t segments = known && rank->plan[group].segment_bytes != 0 ? rank->plan[group].units : 0;
    pthread_mutex_unlock(&rank->lock);
    if (!known || out == NULL) {
        return refuse(known ? "out" : "group", known ? 0 : group, known ? "where it goes" : "a group with a layout");
    }
    *out = segments;
    return 0;
}
