/* fingerprint.c - one digest of everything that makes bytes incompatible; docs/keys.md has the bytes. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "keys/bytes.h"
#include "keys/keys.h"
#include "keys/sha256.h"

#define FINGERPRINT_TAG "forebay-fingerprint-1"

/* Tags of the fields. Numbers are for ever: a field that goes leaves a hole, a new one takes the next number. */
enum {
    TAG_FORMAT_VERSION = 1,
    TAG_MODEL_ID,
    TAG_REVISION,
    TAG_WEIGHTS_EPOCH,
    TAG_KV_DTYPE,
    TAG_BLOCK_TOKENS,
    TAG_LAYER_SET,
    TAG_LAYOUT,
    TAG_TP_SIZE,
    TAG_CP_SIZE,
    TAG_PP_SIZE,
    TAG_GROUPS,
    TAG_GROUP_NAME,
    TAG_GROUP_PAYLOAD_BYTES,
    TAG_GROUP_TRAILING
};

/* X(member, configuration key, tag): the texts and sizes that must be there. */
#define TEXT_FIELDS(X)                                                                                                 \
    X(model_id, "model.id", TAG_MODEL_ID)                                                                              \
    X(revision, "model.revision", TAG_REVISION)                                                                        \
    X(kv_dtype, "model.kv_dtype", TAG_KV_DTYPE)                                                                        \
    X(layer_set, "model.layer_set", TAG_LAYER_SET)                                                                     \
    X(layout, "model.layout", TAG_LAYOUT)
#define SIZE_FIELDS(X)                                                                                                 \
    X(block_tokens, "model.block_tokens", TAG_BLOCK_TOKENS)                                                            \
    X(tp_size, "model.tp_size", TAG_TP_SIZE)                                                                           \
    X(cp_size, "model.cp_size", TAG_CP_SIZE)                                                                           \
    X(pp_size, "model.pp_size", TAG_PP_SIZE)

static int check_text(const char *key, const char *text, size_t capacity)
{
    if (memchr(text, '\0', capacity) == NULL) {
        fby_error_set("%s is longer than %zu bytes; shorter text is accepted", key, capacity - 1);
        return FBY_E_CONFIG;
    }
    if (text[0] == '\0') {
        fby_error_set("%s is missing; it is part of the fingerprint, and any text that is not empty is accepted", key);
        return FBY_E_CONFIG;
    }
    return 0;
}

static int check_size(const char *key, uint32_t value)
{
    if (value == 0) {
        fby_error_set("%s is missing or 0; it is part of the fingerprint, and 1 or more is accepted", key);
        return FBY_E_CONFIG;
    }
    return 0;
}

static int check_group(const fby_fingerprint_fields_t *fields, uint32_t index)
{
    const fby_fp_group_t *group = &fields->group[index];
    char key[64];
    snprintf(key, sizeof(key), "model.groups[%u].name", index);
    int error = check_text(key, group->name, sizeof(group->name));
    if (error != 0) {
        return error;
    }
    for (uint32_t i = 0; i < index; i++) {
        if (strcmp(group->name, fields->group[i].name) == 0) {
            fby_error_set("%s is \"%s\", as is group %u; a name of its own is accepted", key, group->name, i);
            return FBY_E_CONFIG;
        }
    }
    snprintf(key, sizeof(key), "model.groups[%u].payload_bytes", index);
    return check_size(key, group->payload_bytes);
}

static int check_groups(const fby_fingerprint_fields_t *fields)
{
    if (fields->groups == 0 || fields->groups > FBY_MAX_GROUPS) {
        fby_error_set("model.groups has %u entries; 1 to %d are accepted", fields->groups, FBY_MAX_GROUPS);
        return FBY_E_CONFIG;
    }
    bool has_all = false;
    for (uint32_t i = 0; i < fields->groups; i++) {
        int error = check_group(fields, i);
        if (error != 0) {
            return error;
        }
        has_all = has_all || fields->group[i].trailing == 0;
    }
    if (!has_all) {
        fby_error_set("model.groups has no group of rule all; at least one is needed to resume anywhere");
        return FBY_E_CONFIG;
    }
    return 0;
}

static int check_fields(const fby_fingerprint_fields_t *fields)
{
    int error = 0;
#define X(member, key, tag) error = error != 0 ? error : check_text(key, fields->member, sizeof(fields->member));
    TEXT_FIELDS(X)
#undef X
#define X(member, key, tag) error = error != 0 ? error : check_size(key, fields->member);
    SIZE_FIELDS(X)
#undef X
    if (error == 0 && fields->cp_size > 1) {
        fby_error_set("model.cp_size is %u; only 1 is accepted: no layout here splits a block over context ranks",
                      fields->cp_size);
        error = FBY_E_CONFIG;
    }
    return error != 0 ? error : check_groups(fields);
}

static void add_field(fby_sha256_t *sha, uint8_t tag, const void *data, size_t bytes)
{
    uint8_t head[5] = {tag};
    fby_put_le32(head + 1, (uint32_t)bytes);
    fby_sha256_add(sha, head, sizeof(head));
    fby_sha256_add(sha, data, bytes);
}

static void add_u32(fby_sha256_t *sha, uint8_t tag, uint32_t value)
{
    uint8_t bytes[4];
    fby_put_le32(bytes, value);
    add_field(sha, tag, bytes, sizeof(bytes));
}

static void add_u64(fby_sha256_t *sha, uint8_t tag, uint64_t value)
{
    uint8_t bytes[8];
    fby_put_le64(bytes, value);
    add_field(sha, tag, bytes, sizeof(bytes));
}

int fby_fingerprint(const fby_fingerprint_fields_t *fields, uint8_t out[16])
{
    int error = check_fields(fields);
    if (error != 0) {
        return error;
    }
    fby_sha256_t sha;
    fby_sha256_begin(&sha, fby_sha256_best());
    fby_sha256_add(&sha, FINGERPRINT_TAG, sizeof(FINGERPRINT_TAG) - 1);
    add_u32(&sha, TAG_FORMAT_VERSION, FBY_FORMAT_VERSION);
#define X(member, key, tag) add_field(&sha, tag, fields->member, strlen(fields->member));
    TEXT_FIELDS(X)
#undef X
    add_u64(&sha, TAG_WEIGHTS_EPOCH, fields->weights_epoch);
#define X(member, key, tag) add_u32(&sha, tag, fields->member);
    SIZE_FIELDS(X)
#undef X
    add_u32(&sha, TAG_GROUPS, fields->groups);
    for (uint32_t i = 0; i < fields->groups; i++) {
        const fby_fp_group_t *group = &fields->group[i];
        add_field(&sha, TAG_GROUP_NAME, group->name, strlen(group->name));
        add_u32(&sha, TAG_GROUP_PAYLOAD_BYTES, group->payload_bytes);
        add_u32(&sha, TAG_GROUP_TRAILING, group->trailing);
    }
    fby_sha256_end128(&sha, out);
    return 0;
}
