/* rig_effects.c - what an effect does to one key: before, instead of, and after the inner driver. */
#include "stores/rig.h"

#include <stdlib.h>
#include <string.h>

/* Effects that answer without the inner driver. FBY_EFFECT_SHORT and ZERO do so for some verbs only. */
static bool answered_here(const fby_effect_t *effect, fby_verb_t verb, fby_store_op_t *op)
{
    static const int64_t processing[FBY_VERB_COUNT] = {
        [FBY_VERB_EXISTS] = 1,
        [FBY_VERB_GET] = FBY_E_NOT_READY,
        [FBY_VERB_PUT] = FBY_E_NOT_READY,
        [FBY_VERB_REMOVE] = FBY_E_NOT_READY,
    };
    if (effect->flags & FBY_EFFECT_MISS) {
        op->result = verb == FBY_VERB_EXISTS ? 0 : FBY_E_MISSING;
    } else if (effect->flags & FBY_EFFECT_ERR) {
        op->result = effect->code;
    } else if (effect->flags & FBY_EFFECT_NOT_READY) {
        op->result = FBY_E_NOT_READY;
    } else if (effect->flags & FBY_EFFECT_PROCESSING) {
        op->result = processing[verb];
    } else if ((effect->flags & FBY_EFFECT_ZERO) && verb == FBY_VERB_GET) {
        memset(op->buffer, 0, op->bytes);
        op->result = op->bytes;
    } else if ((effect->flags & FBY_EFFECT_ZERO) && verb == FBY_VERB_PUT) {
        op->result = op->bytes; /* claims success, keeps nothing */
    } else if ((effect->flags & FBY_EFFECT_SHORT) && verb == FBY_VERB_PUT) {
        op->result = (int64_t)FBY_MIN(effect->bytes, (uint64_t)op->bytes);
    } else {
        return false;
    }
    return true;
}

/* A short read must leave the rest of the caller's buffer alone; a corrupt write must not touch its source. */
static bool needs_copy(const fby_effect_t *effect, fby_verb_t verb)
{
    return ((effect->flags & FBY_EFFECT_SHORT) != 0 && verb == FBY_VERB_GET) ||
           ((effect->flags & FBY_EFFECT_CORRUPT) != 0 && verb == FBY_VERB_PUT);
}

static void flip_bit(void *object, uint32_t bytes, uint64_t bit)
{
    if (bytes > 0) {
        bit %= (uint64_t)bytes * 8;
        ((uint8_t *)object)[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
}

/* Memory with the capacity and alignment that a driver may expect of a slot. NULL: none to be had. */
static void *make_copy(const fby_store_t *store, const fby_store_op_t *op)
{
    uint64_t capacity = fby_align_up(op->bytes, 4096);
    if (op->group < store->spec.groups) {
        capacity = FBY_MAX(capacity, (uint64_t)store->spec.slot_bytes[op->group]);
    }
    void *copy = NULL;
    if (posix_memalign(&copy, FBY_MAX(store->spec.alignment, 4096u), capacity) != 0) {
        return NULL;
    }
    memset(copy, 0, capacity);
    return copy;
}

void fby_rig_prepare(fby_store_t *store, fby_rig_batch_t *batch, bool hung)
{
    batch->forwards = 0;
    for (uint32_t i = 0; i < batch->n; i++) {
        const fby_effect_t *effect = &batch->effects[i];
        fby_store_op_t *op = &batch->ops[i];
        if (((effect->flags & FBY_EFFECT_HANG) != 0) != hung || (effect->flags & FBY_EFFECT_LOST) ||
            answered_here(effect, batch->verb, op)) {
            continue;
        }
        fby_store_op_t *forward = &batch->forward[batch->forwards];
        *forward = *op;
        if (needs_copy(effect, batch->verb)) {
            forward->buffer = make_copy(store, op);
            if (forward->buffer == NULL) {
                op->result = FBY_E_CONNECTION;
                continue;
            }
            if (batch->verb == FBY_VERB_PUT) {
                memcpy(forward->buffer, op->buffer, op->bytes);
                flip_bit(forward->buffer, op->bytes, effect->bit);
            }
        }
        batch->origin[batch->forwards++] = i;
    }
    if (batch->reorder) {
        for (uint32_t a = 0, b = batch->forwards; a + 1 < b; a++) {
            fby_store_op_t op = batch->forward[--b];
            uint32_t origin = batch->origin[b];
            batch->forward[b] = batch->forward[a];
            batch->origin[b] = batch->origin[a];
            batch->forward[a] = op;
            batch->origin[a] = origin;
        }
    }
}

static void fill_junk(void *buffer, uint32_t bytes)
{
    memset(buffer, 0x5A, bytes);
}

/* A probe that found the key grants its lease; a read that ends after the lease finds other bytes there. Locked. */
static void apply_lease(fby_rig_t *rig, fby_verb_t verb, const fby_effect_t *effect, fby_store_op_t *op, uint64_t now)
{
    fby_rig_key_t *key = fby_keymap_find(&rig->keys, op->key);
    if (key == NULL) {
        return;
    }
    if (verb == FBY_VERB_EXISTS && op->result == 1 && effect->lease_ns > 0) {
        key->lease_end_ns = fby_add_sat(now, effect->lease_ns);
        key->lease_silent = (effect->flags & FBY_EFFECT_LEASE_SILENT) != 0;
    } else if (verb == FBY_VERB_GET && op->result > 0 && key->lease_end_ns != 0 && now > key->lease_end_ns) {
        fill_junk(op->buffer, op->bytes);
        op->result = key->lease_silent ? op->result : FBY_E_LEASE;
    }
}

static void apply_leases(fby_store_t *store, fby_rig_batch_t *batch)
{
    uint64_t now = fby_rig_now();
    pthread_mutex_lock(&store->rig->lock);
    for (uint32_t i = 0; i < batch->forwards && store->rig->keys.count > 0; i++) {
        uint32_t origin = batch->origin[i];
        apply_lease(store->rig, batch->verb, &batch->effects[origin], &batch->ops[origin], now);
    }
    pthread_mutex_unlock(&store->rig->lock);
}

static void finish_key(fby_rig_batch_t *batch, uint32_t at, int status)
{
    fby_store_op_t *forward = &batch->forward[at];
    fby_store_op_t *op = &batch->ops[batch->origin[at]];
    const fby_effect_t *effect = &batch->effects[batch->origin[at]];
    op->result = status < 0 ? status : forward->result;
    if (forward->buffer != op->buffer) {
        if (batch->verb == FBY_VERB_GET && op->result > 0) {
            uint64_t moved = FBY_MIN((uint64_t)op->result, FBY_MIN(effect->bytes, (uint64_t)op->bytes));
            memcpy(op->buffer, forward->buffer, moved);
            op->result = (int64_t)moved;
        }
        free(forward->buffer);
    }
    if ((effect->flags & FBY_EFFECT_CORRUPT) && batch->verb == FBY_VERB_GET && op->result > 0) {
        flip_bit(op->buffer, op->bytes, effect->bit);
    }
}

void fby_rig_finish(fby_store_t *store, fby_rig_batch_t *batch, int status)
{
    for (uint32_t i = 0; i < batch->forwards; i++) {
        finish_key(batch, i, status);
    }
    apply_leases(store, batch);
    batch->forwards = 0;
}

void fby_rig_discard(fby_rig_batch_t *batch)
{
    for (uint32_t i = 0; i < batch->forwards; i++) {
        if (needs_copy(&batch->effects[batch->origin[i]], batch->verb)) {
            free(batch->forward[i].buffer);
        }
    }
    batch->forwards = 0;
}

void fby_rig_perform(fby_store_t *store, fby_rig_batch_t *batch, bool hung)
{
    int (*const call[FBY_VERB_COUNT])(fby_store_t *, fby_store_op_t *, uint32_t) = {
        [FBY_VERB_EXISTS] = store->inner->exists,
        [FBY_VERB_GET] = store->inner->get,
        [FBY_VERB_PUT] = store->inner->put,
        [FBY_VERB_REMOVE] = store->inner->remove,
    };
    fby_rig_prepare(store, batch, hung);
    batch->performed_hung |= hung;
    if (batch->forwards > 0) {
        fby_rig_finish(store, batch, call[batch->verb](store->inner_store, batch->forward, batch->forwards));
    }
}

void fby_rig_fail(fby_rig_batch_t *batch, int code)
{
    for (uint32_t i = 0; i < batch->n; i++) {
        uint32_t flags = batch->effects[i].flags;
        bool hangs = (flags & FBY_EFFECT_HANG) != 0 && !batch->performed_hung;
        bool lost = (flags & (FBY_EFFECT_LOST | FBY_EFFECT_DROP_REPLY)) != 0;
        if (batch->phase == FBY_RIG_WAITING || hangs || lost) {
            batch->ops[i].result = code;
        }
    }
}
