/* copy.c - loads and saves: the list is checked, given to the back end, and reported once. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "rank/rank_internal.h"
#include "stores/object.h"

/* ---- The list --------------------------------------------------------------------------------------------------- */

static int refuse(const char *field, uint64_t value, const char *accepted)
{
    fby_error_set("list.%s is %" PRIu64 "; accepted: %s", field, value, accepted);
    return -EINVAL;
}

/* A plan does not change once it is there; the lock makes all of it seen. */
static bool has_layout(fby_rank_t *rank, uint32_t group)
{
    pthread_mutex_lock(&rank->lock);
    bool known = group < rank->pool.groups && rank->plan[group].run != NULL;
    pthread_mutex_unlock(&rank->lock);
    return known;
}

static int check_header(fby_rank_t *rank, const fby_copy_list_t *list, bool load)
{
    if (list == NULL || list->size != sizeof(*list)) {
        return refuse("size", list != NULL ? list->size : 0, "the size of fby_copy_list_t");
    }
    if (!has_layout(rank, list->group)) {
        return refuse("group", list->group, "a group with a registered layout");
    }
    if ((list->flags & ~(load ? (uint32_t)FBY_COPY_VERIFY : 0u)) != 0) {
        return refuse("flags", list->flags, load ? "0 or FBY_COPY_VERIFY" : "0");
    }
    if (list->sums != NULL && rank->plan[list->group].segment_bytes == 0) {
        fby_error_set("list.sums is %p; accepted: NULL, since the shard's segment_bytes is 0", (void *)list->sums);
        return -EINVAL;
    }
    if (list->blocks > rank->pool.group[list->group].slots) {
        return refuse("blocks", list->blocks, "at most the slots of the group");
    }
    if (list->blocks > 0 && (list->place == NULL || list->device_block == NULL)) {
        return refuse(list->place == NULL ? "place" : "device_block", 0, "the address of one number per block");
    }
    return 0;
}

static int check_list(fby_rank_t *rank, const fby_copy_list_t *list, bool load)
{
    int rc = check_header(rank, list, load);
    if (rc != 0) {
        return rc;
    }
    uint64_t first = rank->pool.group[list->group].offset, slot_bytes = rank->pool.group[list->group].slot_bytes;
    uint64_t bytes = slot_bytes * rank->pool.group[list->group].slots;
    uint64_t device_blocks = rank->plan[list->group].device_blocks;
    for (uint64_t i = 0; i < list->blocks; i++) {
        uint64_t at = list->place[i] - first;
        if (list->place[i] < first || at >= bytes || at % slot_bytes != 0) {
            fby_error_set("list.place[%" PRIu64 "] is %" PRIu64 "; accepted: %" PRIu64 " and each %" PRIu64
                          " bytes further, below %" PRIu64,
                          i, list->place[i], first, slot_bytes, first + bytes);
            return -EINVAL;
        }
        if (list->device_block[i] >= device_blocks) {
            fby_error_set("list.device_block[%" PRIu64 "] is %" PRIu64 "; accepted: below layout.blocks %" PRIu64, i,
                          list->device_block[i], device_blocks);
            return -EINVAL;
        }
    }
    return 0;
}

/* ---- The table -------------------------------------------------------------------------------------------------- */

static fby_copy_t handle_of(const fby_rank_t *rank, const fby_copy_entry_t *entry)
{
    return (uint64_t)entry->generation << 32 | (uint64_t)(entry - rank->copies + 1);
}

/* Under the lock. NULL: stale. */
static fby_copy_entry_t *find(fby_rank_t *rank, fby_copy_t copy)
{
    uint64_t index = (copy & UINT32_MAX) - 1;
    if (index >= FBY_MOST_COPIES || rank->copies[index].phase == FBY_COPY_NONE ||
        rank->copies[index].generation != copy >> 32) {
        return NULL;
    }
    return &rank->copies[index];
}

/* NULL with the code: the device broke, or no place is free. */
static fby_copy_entry_t *reserve(fby_rank_t *rank, int *rc)
{
    fby_copy_entry_t *entry = NULL;
    pthread_mutex_lock(&rank->lock);
    int broken = rank->broken;
    for (uint32_t i = 0; broken == 0 && entry == NULL && i < FBY_MOST_COPIES; i++) {
        if (rank->copies[i].phase == FBY_COPY_NONE) {
            entry = &rank->copies[i];
            entry->phase = FBY_COPY_STARTING;
            entry->generation++;
        }
    }
    pthread_mutex_unlock(&rank->lock);
    if (broken != 0) {
        *rc = fby_rank_fail(broken, "copy", "the device broke in an earlier copy");
    } else if (entry == NULL) {
        *rc = fby_rank_fail(-EBUSY, "copy", "1024 copies wait for their poll; accepted: polling each to its end");
    }
    return entry;
}

static void set_entry(fby_rank_t *rank, fby_copy_entry_t *entry, fby_copy_phase_t phase, fby_copy_job_t *job)
{
    pthread_mutex_lock(&rank->lock);
    entry->phase = phase;
    entry->job = job;
    pthread_mutex_unlock(&rank->lock);
}

static void job_free(fby_copy_job_t *job)
{
    if (job != NULL) {
        free(job->late_places);
        free(job);
    }
}

/* ---- Start ------------------------------------------------------------------------------------------------------ */

/* A failure of the device fails every block of the copy. */
static void fail_all(fby_copy_job_t *job, int error)
{
    job->status.error = error;
    job->status.blocks_failed = job->blocks;
    for (uint64_t i = 0; job->results != NULL && i < job->blocks; i++) {
        job->results[i] = error;
    }
}

/* `own`: sums of the copy, or NULL. The first wrong block is the copy's error; each is in results. */
static int verify_all(const fby_rank_t *rank, const fby_copy_list_t *list, const uint64_t *own, fby_copy_job_t *job)
{
    uint64_t segments = job->plan->units;
    uint64_t *scratch = own == NULL ? NULL : malloc((fby_rank_scratch(rank, list->group) + 1) * sizeof(*scratch));
    if (own != NULL && scratch == NULL) {
        return -ENOMEM;
    }
    for (uint64_t i = 0; i < list->blocks; i++) {
        char detail[FBY_DETAIL_BYTES];
        int rc = fby_rank_verify(rank, list->group, rank->base + list->place[i],
                                 own != NULL ? own + i * segments : NULL, scratch, detail, sizeof(detail));
        if (rc != 0 && job->status.error == 0) {
            job->status.error = rc;
            memcpy(job->detail, detail, sizeof(detail));
        }
        job->status.blocks_failed += rc != 0;
        if (rc != 0 && job->results != NULL) {
            job->results[i] = rc;
        }
    }
    free(scratch);
    return 0;
}

/* Sums of the shard as it lies in the slots, for back ends that cannot make them. */
static void sum_slots(const fby_rank_t *rank, const fby_plan_t *plan, const uint64_t *place, uint64_t blocks,
                      uint64_t *sums)
{
    for (uint64_t i = 0; i < blocks; i++) {
        const uint8_t *shard = rank->base + place[i] + plan->offset;
        for (uint64_t at = 0; at < plan->bytes; at += plan->segment_bytes) {
            *sums++ = fby_checksum_segment(shard + at, (size_t)FBY_MIN(plan->segment_bytes, plan->bytes - at));
        }
    }
}

static void give_to_device(fby_rank_t *rank, const fby_copy_list_t *list, bool load, uint64_t *sums,
                           fby_copy_job_t *job)
{
    const fby_plan_t *plan = job->plan;
    const fby_copy_batch_t batch = {
        .size = sizeof(batch),
        .to_device = load,
        .run = plan->run,
        .unit = plan->unit,
        .units = plan->units,
        .slot_bytes = rank->pool.group[list->group].slot_bytes,
        .blocks = list->blocks,
        .place = list->place,
        .device_block = list->device_block,
        .sums = sums,
        .after = list->after,
    };
    pthread_mutex_lock(&rank->device_lock);
    int rc = rank->driver->start(rank->device, &batch, &job->operation, job->detail, sizeof(job->detail));
    pthread_mutex_unlock(&rank->device_lock);
    if (rc != 0) {
        fail_all(job, rc);
    }
}

/* A load whose back end sums: one pass, then the sums are compared. `sums` may be the caller's. */
static int load_in_one_pass(fby_rank_t *rank, const fby_copy_list_t *list, fby_copy_job_t *job)
{
    bool verify = (list->flags & FBY_COPY_VERIFY) != 0;
    uint64_t *made = NULL, *sums = list->sums;
    if (sums == NULL && verify && job->plan->segment_bytes != 0) {
        sums = made = calloc(list->blocks, job->plan->units * sizeof(*sums));
        if (made == NULL) {
            return -ENOMEM;
        }
    }
    int rc = 0;
    give_to_device(rank, list, true, sums, job);
    if (verify && job->status.error == 0) {
        rc = verify_all(rank, list, sums, job);
    }
    free(made);
    return rc;
}

/* A load whose back end only copies: what is to be checked or summed is read before, here. */
static int load_after_reading(fby_rank_t *rank, const fby_copy_list_t *list, fby_copy_job_t *job)
{
    int rc = 0;
    if (list->sums != NULL) {
        sum_slots(rank, job->plan, list->place, list->blocks, list->sums);
    }
    if ((list->flags & FBY_COPY_VERIFY) != 0) {
        rc = verify_all(rank, list, list->sums, job);
    }
    if (rc == 0) {
        give_to_device(rank, list, true, NULL, job);
    }
    return rc;
}

static int save(fby_rank_t *rank, const fby_copy_list_t *list, fby_copy_job_t *job)
{
    if (list->sums != NULL && !rank->driver->sums) {
        job->late_places = malloc(list->blocks * sizeof(*job->late_places));
        if (job->late_places == NULL) {
            return -ENOMEM;
        }
        memcpy(job->late_places, list->place, list->blocks * sizeof(*job->late_places));
    }
    give_to_device(rank, list, false, rank->driver->sums ? list->sums : NULL, job);
    return 0;
}

static int run_job(fby_rank_t *rank, const fby_copy_list_t *list, bool load, fby_copy_job_t *job)
{
    if (list->blocks == 0) {
        return 0;
    }
    if (list->results != NULL) {
        memset(list->results, 0, list->blocks * sizeof(*list->results));
    }
    if (!load && job->plan->shared && rank->rank != 0) {
        job->blocks = 0;
        if (list->sums != NULL) {
            memset(list->sums, 0, list->blocks * job->plan->units * sizeof(*list->sums));
        }
        return 0;
    }
    if (!load) {
        return save(rank, list, job);
    }
    return rank->driver->sums ? load_in_one_pass(rank, list, job) : load_after_reading(rank, list, job);
}

static int start(fby_rank_t *rank, const fby_copy_list_t *list, bool load, fby_copy_t *out)
{
    int rc = fby_rank_usable(rank);
    rc = rc == 0 ? check_list(rank, list, load) : rc;
    fby_copy_entry_t *entry = rc == 0 ? reserve(rank, &rc) : NULL;
    if (entry == NULL) {
        return rc;
    }
    fby_copy_job_t *job = calloc(1, sizeof(*job));
    rc = -ENOMEM;
    if (job != NULL) {
        *job = (fby_copy_job_t){
            .plan = &rank->plan[list->group],
            .results = list->results,
            .sums = list->sums,
            .blocks = list->blocks,
            .status = {.size = sizeof(job->status), .settled = 1},
        };
        rc = run_job(rank, list, load, job);
    }
    if (rc != 0) {
        set_entry(rank, entry, FBY_COPY_NONE, NULL);
        job_free(job);
        return fby_rank_fail(rc, load ? "load" : "save", NULL);
    }
    fby_copy_t copy = handle_of(rank, entry);
    bool ended = job->operation == NULL;
    set_entry(rank, entry, ended ? FBY_COPY_ENDED : FBY_COPY_RUNNING, job);
    if (out == NULL) {
        return fby_rank_wait(rank, copy, -1, NULL);
    }
    if (ended) {
        (void)eventfd_write(rank->event_fd, 1);
    }
    *out = copy;
    return 0;
}

int fby_rank_load(fby_rank_t *rank, const fby_copy_list_t *list, fby_copy_t *out)
{
    return start(rank, list, true, out);
}

int fby_rank_save(fby_rank_t *rank, const fby_copy_list_t *list, fby_copy_t *out)
{
    return start(rank, list, false, out);
}

/* ---- End -------------------------------------------------------------------------------------------------------- */

/* Under the lock: asks the device about a running copy, unless it is at work for somebody else: that may last. */
static void ask_device(fby_rank_t *rank, fby_copy_entry_t *entry)
{
    fby_copy_job_t *job = entry->job;
    char detail[FBY_DETAIL_BYTES] = "";
    int settled = 1;
    if (pthread_mutex_trylock(&rank->device_lock) != 0) {
        return;
    }
    int rc = rank->driver->poll(rank->device, job->operation, &settled, detail, sizeof(detail));
    pthread_mutex_unlock(&rank->device_lock);
    if (rc == -EAGAIN) {
        return;
    }
    entry->phase = FBY_COPY_ENDED;
    job->operation = NULL;
    if (rc != 0) {
        fail_all(job, rc);
        memcpy(job->detail, detail, sizeof(detail));
        job->status.settled = settled != 0;
        if (!settled) {
            rank->broken = rc;
        }
    }
}

/* The job belongs to the caller alone by now. */
static void conclude(const fby_rank_t *rank, fby_copy_job_t *job)
{
    if (job->late_places != NULL && job->status.error == 0) {
        sum_slots(rank, job->plan, job->late_places, job->blocks, job->sums);
    }
    job->status.bytes = (job->blocks - job->status.blocks_failed) * job->plan->bytes;
}

/* -EAGAIN, FBY_E_STALE, or 0 with the job, out of the table. */
static int take_ended(fby_rank_t *rank, fby_copy_t copy, fby_copy_job_t **out)
{
    int rc = -EAGAIN;
    pthread_mutex_lock(&rank->lock);
    fby_copy_entry_t *entry = find(rank, copy);
    if (entry == NULL) {
        rc = FBY_E_STALE;
    } else if (entry->phase == FBY_COPY_RUNNING) {
        ask_device(rank, entry);
    }
    if (entry != NULL && entry->phase == FBY_COPY_ENDED) {
        *out = entry->job;
        entry->phase = FBY_COPY_NONE;
        entry->job = NULL;
        rc = 0;
    }
    pthread_mutex_unlock(&rank->lock);
    return rc;
}

/* Reports and frees. A failure's text is the caller's thread's. */
static int report(const fby_rank_t *rank, fby_copy_job_t *job, fby_copy_status_t *status)
{
    conclude(rank, job);
    int error = job->status.error;
    if (error != 0) {
        (void)fby_rank_fail(error, "copy", job->detail);
    }
    if (status != NULL) {
        size_t size = FBY_MIN(status->size, sizeof(*status));
        memcpy((char *)status + sizeof(status->size), (const char *)&job->status + sizeof(status->size),
               size - sizeof(status->size));
    }
    job_free(job);
    return status != NULL ? 0 : error;
}

static int check_status(const fby_copy_status_t *status)
{
    return status != NULL && status->size < sizeof(status->size)
               ? fby_rank_fail(-EINVAL, "status.size", "accepted: the size of fby_copy_status_t")
               : 0;
}

int fby_rank_poll(fby_rank_t *rank, fby_copy_t copy, fby_copy_status_t *status)
{
    fby_copy_job_t *job = NULL;
    int rc = fby_rank_usable(rank);
    rc = rc == 0 && status == NULL ? fby_rank_fail(-EINVAL, "status", "is NULL") : rc;
    rc = rc == 0 ? check_status(status) : rc;
    rc = rc == 0 ? take_ended(rank, copy, &job) : rc;
    if (rc == FBY_E_STALE) {
        fby_error_set("copy %#" PRIx64 " is not known, or was reported", copy);
    }
    return rc == 0 ? report(rank, job, status) : rc;
}

static double seconds_since(uint64_t begun)
{
    return (double)(fby_clock_now(&fby_clock_monotonic) - begun) * 1e-9;
}

int fby_rank_wait(fby_rank_t *rank, fby_copy_t copy, double timeout_s, fby_copy_status_t *status)
{
    fby_copy_job_t *job = NULL;
    uint64_t nap = 0, begun = fby_clock_now(&fby_clock_monotonic);
    int rc = fby_rank_usable(rank);
    rc = rc == 0 ? check_status(status) : rc;
    if (rc == 0 && timeout_s != timeout_s) {
        rc = fby_rank_fail(-EINVAL, "timeout_s", "is not a number");
    }
    while (rc == 0 && (rc = take_ended(rank, copy, &job)) == -EAGAIN) {
        if (timeout_s >= 0 && seconds_since(begun) >= timeout_s) {
            return fby_rank_fail(-ETIMEDOUT, "copy", "still under way");
        }
        fby_rank_pause(&nap);
        rc = 0;
    }
    if (rc == FBY_E_STALE) {
        fby_error_set("copy %#" PRIx64 " is not known, or was reported", copy);
    }
    return rc == 0 ? report(rank, job, status) : rc;
}

/* False: the limit passed. */
static bool drain_entry(fby_rank_t *rank, fby_copy_entry_t *entry, uint64_t begun, double limit_s)
{
    uint64_t nap = 0;
    while (entry->phase == FBY_COPY_RUNNING) {
        pthread_mutex_lock(&rank->lock);
        ask_device(rank, entry);
        pthread_mutex_unlock(&rank->lock);
        if (entry->phase == FBY_COPY_RUNNING) {
            if (limit_s >= 0 && seconds_since(begun) >= limit_s) {
                return false;
            }
            fby_rank_pause(&nap);
        }
    }
    return true;
}

bool fby_rank_drain(fby_rank_t *rank, double limit_s)
{
    bool ended = true;
    uint64_t begun = fby_clock_now(&fby_clock_monotonic);
    for (uint32_t i = 0; i < FBY_MOST_COPIES; i++) {
        if (drain_entry(rank, &rank->copies[i], begun, limit_s)) {
            job_free(rank->copies[i].job);
            rank->copies[i].job = NULL;
        } else {
            ended = false;
        }
    }
    return ended && rank->broken == 0;
}
