#include "sim/script_store.h"

#include <string.h>

#include "sim/chain.h"
#include "sim/memory.h"
#include "sim/random.h"

void store_init(script_store_t *store, const store_model_t *model)
{
    memset(store, 0, sizeof(*store));
    store->model = *model;
    store->random = model->seed;
    store->mask = 255;
    store->object = sim_zeroed(store->mask + 1, sizeof(*store->object));
}

void store_free(script_store_t *store)
{
    free(store->object);
    free(store->fault);
    memset(store, 0, sizeof(*store));
}

static store_object_t *probe(script_store_t *store, const fby_hash_t *hash, uint32_t group)
{
    for (uint32_t at = (uint32_t)(hash->w[0] + group) & store->mask;; at = (at + 1) & store->mask) {
        store_object_t *object = &store->object[at];
        if (!object->used || (object->group == group && fby_hash_equal(&object->hash, hash)))
            return object;
    }
}

static void grow(script_store_t *store)
{
    store_object_t *old = store->object;
    uint32_t n = store->mask + 1;
    store->mask = n * 2 - 1;
    store->object = sim_zeroed(n * 2, sizeof(*old));
    for (uint32_t i = 0; i < n; i++)
        if (old[i].used)
            *probe(store, &old[i].hash, old[i].group) = old[i];
    free(old);
}

store_object_t *store_at(script_store_t *store, const fby_hash_t *hash, uint32_t group)
{
    store_object_t *object = probe(store, hash, group);
    if (object->used)
        return object;
    if (store->count * 2 > store->mask) {
        grow(store);
        object = probe(store, hash, group);
    }
    store->count++;
    *object = (store_object_t){.hash = *hash, .group = group, .used = true};
    return object;
}

void store_hold(script_store_t *store, const fby_hash_t *hash, uint32_t group)
{
    store_object_t *object = store_at(store, hash, group);
    object->present = true;
    object->not_ready = false;
    object->content = chain_content(hash, group);
}

void store_script(script_store_t *store, const store_fault_t *fault)
{
    if (store->faults == store->fault_capacity) {
        store->fault_capacity = store->fault_capacity ? store->fault_capacity * 2 : 16;
        store->fault = sim_resized(store->fault, store->fault_capacity, sizeof(*fault));
    }
    store->fault[store->faults++] = *fault;
}

void store_script_clear(script_store_t *store)
{
    store->faults = 0;
}

uint32_t store_calls(script_store_t *store, store_op_t op, const fby_hash_t *hash, uint32_t group)
{
    store_object_t *object = probe(store, hash, group);
    return object->used ? object->calls[op] : 0;
}

store_fault_t store_call(script_store_t *store, store_op_t op, const fby_hash_t *hash, uint32_t group)
{
    uint32_t nth = ++store_at(store, hash, group)->calls[op];
    store->calls[op]++;
    for (uint32_t i = 0; i < store->faults; i++) {
        const store_fault_t *fault = &store->fault[i];
        if (fault->op == op && fault->group == group && (fault->nth == STORE_EVERY || fault->nth == nth) &&
            fby_hash_equal(&fault->hash, hash))
            return *fault;
    }
    return (store_fault_t){.op = op, .hash = *hash, .group = group, .kind = FAULT_OK};
}

int store_get(script_store_t *store, const fby_hash_t *hash, uint32_t group, const store_fault_t *fault, uint64_t *word)
{
    store_object_t *object = store_at(store, hash, group);
    switch (fault->kind) {
    case FAULT_MISS:
    case FAULT_DROP:
        return FBY_E_MISSING;
    case FAULT_ERROR:
        return (int)fault->arg;
    case FAULT_SHORT:
        *word = object->content & UINT64_C(0xFFFFFFFF);
        return FBY_E_SIZE;
    case FAULT_ZERO:
        return FBY_E_SIZE;
    case FAULT_CORRUPT:
        *word = object->content ^ UINT64_C(0x40);
        return FBY_E_CHECKSUM;
    case FAULT_LEASE:
        *word = UINT64_C(0x1EA5E); /* what stands there now belongs to somebody else */
        return FBY_E_LEASE;
    case FAULT_NOT_READY:
        return FBY_E_NOT_READY;
    default:
        break;
    }
    if (!object->present)
        return object->not_ready ? FBY_E_NOT_READY : FBY_E_MISSING;
    *word = object->content;
    return 0;
}

int store_put(script_store_t *store, const fby_hash_t *hash, uint32_t group, const store_fault_t *fault, uint64_t word)
{
    if (fault->kind == FAULT_ERROR)
        return (int)fault->arg;
    store_object_t *object = store_at(store, hash, group);
    if (object->not_ready)
        return FBY_E_NOT_READY;
    if (object->present)
        return FBY_E_EXISTS;
    object->present = true;
    object->content = word;
    return 0;
}

static uint64_t jittered(script_store_t *store, uint64_t latency)
{
    uint64_t spread = latency * store->model.jitter_percent / 100;
    return spread ? latency - spread + sim_random(&store->random) % (2 * spread + 1) : latency;
}

uint64_t store_end_time(script_store_t *store, store_op_t op, uint64_t now, uint64_t bytes)
{
    uint64_t end = now + jittered(store, store->model.latency_ns[op]);
    if (!store->model.bytes_per_s || op == STORE_EXISTS)
        return end;
    uint64_t start = FBY_MAX(store->pipe_free_at, end);
    store->pipe_free_at = start + (uint64_t)((double)bytes * 1e9 / (double)store->model.bytes_per_s);
    return store->pipe_free_at;
}
