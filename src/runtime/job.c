#include "runtime/job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/host.h"
#include "keys/keys.h"
#include "runtime/runtime.h"

_Static_assert(FBY_KEY_BYTES == FBY_KEY_TEXT_BYTES, "a driver's key has room for ours");

/* results[] of a write while its key may still have to go to the driver */
enum { UNDECIDED = 1, SCRATCH_ALIGNMENT = 4096 };

int fby_job_init(fby_job_t *job, const fby_runtime_t *runtime, fby_lane_kind_t kind)
{
    const fby_settings_t *settings = &runtime->settings;
    size_t most = runtime->batch;
    if (kind == FBY_LANE_QUERY) {
        most = (size_t)settings->prefetch.query_batch_blocks * settings->model.groups;
    }
    *job = (fby_job_t){.kind = kind};
    job->ops = calloc(most, sizeof(*job->ops));
    if (kind == FBY_LANE_QUERY) {
        job->present = calloc(settings->prefetch.query_batch_blocks, 1);
        return job->ops != NULL && job->present != NULL ? 0 : -ENOMEM;
    }
    job->io = calloc(most, sizeof(*job->io));
    job->results = calloc(most, sizeof(*job->results));
    job->at = calloc(most, sizeof(*job->at));
    if (kind == FBY_LANE_WRITE && runtime->caps.overwrite) {
        uint32_t bytes = 0;
        for (uint32_t g = 0; g < settings->model.groups; g++) {
            bytes = FBY_MAX(bytes, runtime->region.slot_bytes[g]);
        }
        if (posix_memalign(&job->scratch, SCRATCH_ALIGNMENT, bytes) != 0) {
            job->scratch = NULL;
            return -ENOMEM;
        }
    }
    return job->ops != NULL && job->io != NULL && job->results != NULL && job->at != NULL ? 0 : -ENOMEM;
}

void fby_job_free(fby_job_t *job)
{
    free(job->ops);
    free(job->io);
    free(job->results);
    free(job->at);
    free(job->present);
    free(job->scratch);
    *job = (fby_job_t){0};
}

int fby_store_code(int64_t result)
{
    if (result <= FBY_E_MISSING && result >= FBY_E_INVALID) {
        return (int)result;
    }
    switch (result) {
    case -ETIMEDOUT:
        return FBY_E_TIMEOUT;
    case -EAGAIN:
    case -ECANCELED:
    case -ECONNREFUSED:
    case -ECONNRESET:
    case -EPIPE:
    case -EIO:
        return FBY_E_CONNECTION;
    case -ENOSPC:
        return FBY_E_FULL;
    default:
        return FBY_E_INVALID;
    }
}

static bool is_out_of_reach(int64_t code)
{
    return code == FBY_E_CONNECTION || code == FBY_E_TIMEOUT;
}

/* ---- Take ------------------------------------------------------------------------------------------------------- */

static bool take_query(fby_runtime_t *runtime, fby_job_t *job, uint64_t now)
{
    if (!fby_core_next_query(runtime->core, now, &job->query)) {
        return false;
    }
    fby_seq_data_ref(job->query.ref);
    job->limit_at = job->query.deadline;
    runtime->query_due = FBY_MIN(runtime->query_due, job->limit_at);
    return true;
}

unsigned fby_job_startable(const fby_runtime_t *runtime, unsigned wants)
{
    uint32_t most = runtime->caps.max_concurrency;
    if (most == 0 || runtime->calls + 1 < most) {
        return wants;
    }
    /* The last place goes to queries before reads before writes. */
    return runtime->calls < most ? wants & (~wants + 1) : 0;
}

bool fby_job_take(fby_runtime_t *runtime, fby_job_t *job, uint64_t now, bool refuse)
{
    bool taken = false;
    if (fby_is_poisoned(runtime)) {
        return false;
    }
    if (!refuse && !(fby_job_startable(runtime, fby_core_wants(runtime->core)) & 1u << job->kind)) {
        return false;
    }
    if (job->kind == FBY_LANE_QUERY) {
        taken = take_query(runtime, job, now);
    } else if (job->kind == FBY_LANE_READ) {
        taken = fby_core_next_reads(runtime->core, now, runtime->batch, &job->part, job->io);
    } else {
        taken = fby_core_next_writes(runtime->core, now, runtime->batch, &job->part, job->io);
    }
    if (!taken) {
        return false;
    }
    if (job->kind != FBY_LANE_QUERY) {
        job->limit_at = job->part.limit_at;
    }
    job->under_way = true;
    job->overdue = false;
    job->reached = job->cut = job->fence_due = false;
    atomic_store(&job->passed, false);
    job->token = ++runtime->tokens;
    job->begun_at = now;
    job->fault = (fby_fault_report_t){0};
    job->permit = refuse ? FBY_PERMIT_REFUSED : fby_breaker_ask(&runtime->breaker, now);
    job->refused = job->permit == FBY_PERMIT_REFUSED;
    memcpy(job->fingerprint, runtime->keyring->hasher.fingerprint, sizeof(job->fingerprint));
    runtime->calls++;
    return true;
}

void fby_job_refuse(fby_job_t *job, int code)
{
    job->ops_count = 0;
    if (job->kind == FBY_LANE_QUERY) {
        job->status = job->query.again ? code : 0;
        memset(job->present, 0, job->query.to - job->query.from);
        job->lease_until = FBY_NEVER;
        return;
    }
    for (uint32_t i = 0; i < job->part.count; i++) {
        job->results[i] = code;
    }
}

/* ---- Driver calls ----------------------------------------------------------------------------------------------- */

typedef int batch_fn(fby_store_t *store, fby_store_op_t *ops, uint32_t n);

/* Calls in pieces that the driver accepts. A code for the whole call becomes the result of each of its ops. */
static void call_in_pieces(const fby_runtime_t *runtime, batch_fn *call, fby_store_op_t *ops, uint32_t n)
{
    uint32_t most = runtime->caps.max_batch > 0 ? runtime->caps.max_batch : n;
    for (uint32_t done = 0; done < n; done += most) {
        uint32_t count = FBY_MIN(most, n - done);
        int rc = call(runtime->store, ops + done, count);
        for (uint32_t i = done; rc < 0 && i < done + count; i++) {
            ops[i].result = rc;
        }
    }
}

/* 1 present, 0 absent, < 0 unknown. */
static int presence(const fby_store_op_t *op)
{
    if (op->result == 0 || op->result == 1) {
        return (int)op->result;
    }
    int code = fby_store_code(op->result);
    return code == FBY_E_MISSING || code == FBY_E_NOT_READY ? 0 : code;
}

static void op_fill(fby_store_op_t *op, const fby_hash_t *hash, uint32_t group, void *buffer, uint32_t bytes)
{
    fby_key_text(hash, group, op->key);
    op->buffer = buffer;
    op->bytes = bytes;
    op->group = group;
    op->result = FBY_E_INVALID; /* what a driver that forgets an op gets */
}

static void query_run(fby_runtime_t *runtime, fby_job_t *job)
{
    uint32_t groups = runtime->settings.model.groups, blocks = job->query.to - job->query.from;
    /* The lease counts from before the call: the store granted it some time during it. */
    uint64_t asked_at = fby_clock_now(&fby_clock_monotonic);
    for (uint32_t i = 0; i < blocks * groups; i++) {
        uint32_t group = i % groups;
        op_fill(&job->ops[i], &job->query.hashes[i / groups], group, NULL, runtime->object_bytes[group]);
    }
    call_in_pieces(runtime, runtime->driver->exists, job->ops, blocks * groups);
    memset(job->present, 0, blocks);
    job->status = 0;
    job->reached = true;
    for (uint32_t i = 0; i < blocks * groups; i++) {
        int there = presence(&job->ops[i]);
        job->cut = job->cut || job->ops[i].result == -ECANCELED;
        if (there > 0) {
            job->present[i / groups] = (uint8_t)(job->present[i / groups] | 1u << (i % groups));
        } else if (there < 0) {
            job->status = job->status == 0 ? there : job->status;
            job->reached = job->reached && !is_out_of_reach(there);
        }
    }
    uint64_t lease = runtime->caps.probe_lease_ns;
    job->lease_until = lease > 0 ? fby_add_sat(asked_at, lease) : FBY_NEVER;
}

/* What a get left in a buffer, against what it must be: the op's key says which block. */
static bool object_is_right(const fby_runtime_t *runtime, const fby_job_t *job, const fby_store_op_t *op,
                            fby_object_fault_t *fault)
{
    fby_object_id_t id = {
        .payload_bytes = op->bytes - FBY_TRAILER_BYTES,
        .segment_bytes = FBY_SEGMENT_BYTES,
    };
    (void)fby_key_parse(op->key, &id.hash, &id.group);
    memcpy(id.fingerprint, job->fingerprint, sizeof(id.fingerprint));
    *fault = fby_object_verify(op->buffer, &id, runtime->settings.store.verify != FBY_VERIFY_OFF);
    return *fault == FBY_OBJECT_OK;
}

static int read_result(const fby_runtime_t *runtime, fby_job_t *job, const fby_store_op_t *op)
{
    fby_object_fault_t fault;
    if (op->result < 0) {
        return fby_store_code(op->result);
    }
    if (op->result != op->bytes) {
        return FBY_E_SIZE;
    }
    bool right = object_is_right(runtime, job, op, &fault);
    job->fault.count[fault]++;
    return right ? 0 : FBY_E_CHECKSUM;
}

/* Whether the object behind a key is what we would write: there, whole, ours. Costs no more than the write it saves. */
static bool is_readable(fby_runtime_t *runtime, fby_job_t *job, const fby_store_op_t *op)
{
    fby_store_op_t get = *op;
    get.buffer = job->scratch;
    get.result = FBY_E_INVALID;
    fby_object_fault_t fault;
    int rc = runtime->driver->get(runtime->store, &get, 1);
    return rc >= 0 && get.result == get.bytes && object_is_right(runtime, job, &get, &fault);
}

/* A driver that overwrites must not be given keys that are there already: nothing is rewritten but what is unreadable. */
static void write_leave_out_existing(fby_runtime_t *runtime, fby_job_t *job)
{
    uint32_t kept = 0;
    call_in_pieces(runtime, runtime->driver->exists, job->ops, job->ops_count);
    for (uint32_t i = 0; i < job->part.count; i++) {
        bool exists = presence(&job->ops[i]) == 1;
        if (exists && is_readable(runtime, job, &job->ops[i])) {
            job->results[i] = FBY_E_EXISTS;
            continue;
        }
        job->fault.unreadable += exists;
        job->ops[i].result = FBY_E_INVALID;
        job->ops[kept] = job->ops[i];
        job->at[kept++] = i;
    }
    job->ops_count = kept;
}

void fby_job_prepare(fby_runtime_t *runtime, fby_job_t *job)
{
    for (uint32_t i = 0; i < job->part.count; i++) {
        const fby_core_io_t *io = &job->io[i];
        void *slot = fby_region_slot(&runtime->region, io->group, io->slot);
        op_fill(&job->ops[i], &io->hash, io->group, slot, runtime->object_bytes[io->group]);
        job->at[i] = i;
        job->results[i] = UNDECIDED;
    }
    job->ops_count = job->part.count;
    if (job->kind == FBY_LANE_WRITE && runtime->caps.overwrite) {
        write_leave_out_existing(runtime, job);
    }
}

/* A put that met its key: readable (somebody stored it before us), or there and of no use to anyone. */
static void write_resolve_existing(fby_runtime_t *runtime, fby_job_t *job)
{
    uint32_t met = 0;
    for (uint32_t i = 0; i < job->ops_count; i++) {
        if (job->ops[i].result == FBY_E_EXISTS) {
            job->ops[met] = job->ops[i];
            job->at[met++] = job->at[i];
        }
    }
    call_in_pieces(runtime, runtime->driver->exists, job->ops, met);
    for (uint32_t i = 0; i < met; i++) {
        bool readable = presence(&job->ops[i]) == 1;
        job->results[job->at[i]] = readable ? FBY_E_EXISTS : FBY_E_NOT_READY;
        job->fault.unreadable += !readable;
    }
}

/* A store that never overwrites would answer EXISTS for ever: objects that cannot be read go, the next put repairs them. */
static void read_remove_unreadable(fby_runtime_t *runtime, fby_job_t *job)
{
    uint32_t wrong = 0;
    if (runtime->caps.overwrite || runtime->settings.store.write == FBY_STORE_WRITE_OFF) {
        return;
    }
    for (uint32_t i = 0; i < job->ops_count; i++) {
        if (job->results[job->at[i]] == FBY_E_CHECKSUM) {
            job->ops[wrong++] = job->ops[i];
        }
    }
    if (wrong > 0) {
        call_in_pieces(runtime, runtime->driver->remove, job->ops, wrong);
    }
}

void fby_job_finish(fby_runtime_t *runtime, fby_job_t *job, int rc)
{
    bool out_of_reach = false, met = false;
    for (uint32_t i = 0; i < job->ops_count; i++) {
        fby_store_op_t *op = &job->ops[i];
        uint32_t at = job->at[i];
        op->result = rc < 0 ? rc : op->result;
        job->cut = job->cut || op->result == -ECANCELED;
        if (job->kind == FBY_LANE_READ) {
            job->results[at] = read_result(runtime, job, op);
        } else if (op->result < 0) {
            job->results[at] = fby_store_code(op->result);
        } else {
            job->results[at] = op->result == op->bytes ? 0 : FBY_E_SIZE;
        }
        out_of_reach = out_of_reach || is_out_of_reach(job->results[at]);
        met = met || job->results[at] == FBY_E_EXISTS;
    }
    job->reached = !out_of_reach;
    if (job->kind == FBY_LANE_READ) {
        read_remove_unreadable(runtime, job);
    }
    if (job->kind == FBY_LANE_WRITE && met) {
        write_resolve_existing(runtime, job);
    }
}

static void io_run(fby_runtime_t *runtime, fby_job_t *job)
{
    fby_job_prepare(runtime, job);
    int rc = 0;
    if (job->ops_count > 0 && job->kind == FBY_LANE_READ) {
        rc = runtime->driver->get(runtime->store, job->ops, job->ops_count);
    } else if (job->ops_count > 0) {
        rc = runtime->inline_host ? fby_inline_put(runtime, job)
                                  : runtime->driver->put(runtime->store, job->ops, job->ops_count);
    }
    fby_job_finish(runtime, job, rc);
}

void fby_job_run(fby_runtime_t *runtime, fby_job_t *job)
{
    if (job->refused) {
        fby_job_refuse(job, FBY_E_CONNECTION);
        return;
    }
    fby_agent_on_behalf((const void *)(uintptr_t)job->token);
    fby_agent_obey(&job->passed);
    if (job->kind == FBY_LANE_QUERY) {
        query_run(runtime, job);
    } else {
        io_run(runtime, job);
    }
    fby_agent_obey(NULL);
    fby_agent_on_behalf(NULL);
}

/* ---- Complete --------------------------------------------------------------------------------------------------- */

static void count_faults(fby_runtime_t *runtime, const fby_job_t *job, uint64_t now)
{
    uint64_t wrong = job->fault.unreadable;
    for (uint32_t kind = 0; kind < FBY_OBJECT_FAULT_COUNT; kind++) {
        runtime->object_faults[kind] += job->fault.count[kind];
        wrong += kind == FBY_OBJECT_OK ? 0 : job->fault.count[kind];
    }
    runtime->unreadable += job->fault.unreadable;
    uint64_t suppressed;
    if (wrong > 0 && !runtime->actions->say_fault &&
        fby_log_allow(&runtime->fault_limit, now, FBY_SECOND, &suppressed)) {
        runtime->actions->say_fault = true;
        runtime->actions->fault = job->fault;
        runtime->actions->fault.suppressed = suppressed;
    }
}

void fby_job_complete(fby_runtime_t *runtime, fby_job_t *job, uint64_t now)
{
    fby_metrics_call(&runtime->metrics, job, now);
    if (!job->refused) {
        runtime->last_completion = now;
        /* a probe has to end somehow */
        if (!job->cut || job->permit == FBY_PERMIT_PROBE) {
            fby_breaker_count(runtime, job->permit, job->reached, now);
        }
    }
    job->permit = FBY_PERMIT_SPENT;
    job->under_way = false;
    runtime->calls--;
    if (job->kind == FBY_LANE_QUERY) {
        if (!fby_is_poisoned(runtime)) {
            fby_core_query_done(runtime->core, now, job->query.ticket, job->status, job->present, job->lease_until);
        }
        if (fby_seq_data_drop(job->query.ref)) {
            fby_seq_data_t *data = job->query.ref;
            data->next = runtime->actions->dead;
            runtime->actions->dead = data;
        }
        job->query.ref = NULL;
        return;
    }
    count_faults(runtime, job, now);
    if (fby_is_poisoned(runtime)) {
        return;
    }
    if (job->kind == FBY_LANE_READ) {
        fby_core_read_done(runtime->core, now, job->part.id, job->results);
    } else {
        fby_core_write_done(runtime->core, now, job->part.id, job->results);
    }
}

void fby_job_lapse(fby_runtime_t *runtime, fby_job_t *job, uint64_t now)
{
    job->overdue = true;
    atomic_store(&job->passed, true);
    fby_breaker_count(runtime, job->permit, false, now);
    job->permit = FBY_PERMIT_SPENT;
}

bool fby_job_is_slow(const fby_job_t *job, uint64_t now)
{
    return job->under_way && job->limit_at != FBY_NEVER && now - job->begun_at > (job->limit_at - job->begun_at) / 2;
}
