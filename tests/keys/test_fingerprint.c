#include "unit.h"

#include "base/log.h"
#include "keys/keys.h"

static fby_fingerprint_fields_t complete(void)
{
    fby_fingerprint_fields_t fields = {
        .model_id = "org/model",
        .revision = "r1",
        .kv_dtype = "bf16",
        .layer_set = "0-31",
        .layout = "layer_first",
        .block_tokens = 16,
        .tp_size = 1,
        .cp_size = 1,
        .pp_size = 1,
        .groups = 2,
        .group = {{"full", 4096, 0}, {"window", 1024, 4}},
    };
    return fields;
}

static void digest(const fby_fingerprint_fields_t *fields, uint8_t out[16])
{
    assert_int_equal(fby_fingerprint(fields, out), 0);
}

static void the_same_fields_give_the_same_digest(void **state)
{
    fby_fingerprint_fields_t a = complete(), b = complete();
    memset(b.model_id + sizeof("org/model"), 'x', 20); /* bytes behind the NUL are no part of the text */
    uint8_t first[16], second[16];
    digest(&a, first);
    digest(&b, second);
    assert_memory_equal(first, second, 16);
}

/* Each entry changes one field of a complete set. */
#define CHANGES(X)                                                                                                     \
    X(strcpy(f.model_id, "org/model2"))                                                                                \
    X(strcpy(f.revision, "r2"))                                                                                        \
    X(strcpy(f.kv_dtype, "fp8"))                                                                                       \
    X(strcpy(f.layer_set, "0-30"))                                                                                     \
    X(strcpy(f.layout, "block_first"))                                                                                 \
    X(f.weights_epoch = 1)                                                                                             \
    X(f.weights_epoch = UINT64_C(1) << 32)                                                                             \
    X(f.block_tokens = 32)                                                                                             \
    X(f.tp_size = 2)                                                                                                   \
    X(f.pp_size = 2)                                                                                                   \
    X(f.groups = 1)                                                                                                    \
    X(strcpy(f.group[0].name, "latent"))                                                                               \
    X(f.group[0].payload_bytes = 4097)                                                                                 \
    X(f.group[1].payload_bytes = 1025)                                                                                 \
    X(f.group[1].trailing = 5)                                                                                         \
    X(f.group[1].trailing = 0)                                                                                         \
    X((strcpy(f.model_id, "org/mode"), strcpy(f.revision, "lr1")))                                                     \
    X((strcpy(f.model_id, f.revision), strcpy(f.revision, "org/model")))

enum {
#define X(change) +1
    CHANGE_COUNT = 0 CHANGES(X)
#undef X
};

static void one_changed_field_changes_the_digest(void **state)
{
    uint8_t digests[CHANGE_COUNT + 1][16];
    size_t n = 0;
    fby_fingerprint_fields_t f = complete();
    digest(&f, digests[n++]);
#define X(change)                                                                                                      \
    f = complete();                                                                                                    \
    (void)(change);                                                                                                    \
    digest(&f, digests[n++]);
    CHANGES(X)
#undef X
    for (size_t i = 0; i < n; i++) {
        for (size_t k = i + 1; k < n; k++) {
            assert_memory_not_equal(digests[i], digests[k], 16);
        }
    }
}

static void expect_refusal(const fby_fingerprint_fields_t *fields, const char *key, const char *accepted)
{
    uint8_t out[16] = {0xEE};
    fby_error_set("nothing");
    assert_int_equal(fby_fingerprint(fields, out), FBY_E_CONFIG);
    assert_non_null(strstr(fby_error_get(), key));
    assert_non_null(strstr(fby_error_get(), accepted));
    assert_int_equal(out[0], 0xEE);
}

static void a_missing_text_is_an_error_that_names_it(void **state)
{
    fby_fingerprint_fields_t f;
    f = complete(), f.model_id[0] = '\0';
    expect_refusal(&f, "model.id is missing", "not empty");
    f = complete(), f.revision[0] = '\0';
    expect_refusal(&f, "model.revision is missing", "not empty");
    f = complete(), f.kv_dtype[0] = '\0';
    expect_refusal(&f, "model.kv_dtype is missing", "not empty");
    f = complete(), f.layer_set[0] = '\0';
    expect_refusal(&f, "model.layer_set is missing", "not empty");
    f = complete(), f.layout[0] = '\0';
    expect_refusal(&f, "model.layout is missing", "not empty");
    f = complete(), f.group[1].name[0] = '\0';
    expect_refusal(&f, "model.groups[1].name is missing", "not empty");
}

static void a_missing_size_is_an_error_that_names_it(void **state)
{
    fby_fingerprint_fields_t f;
    f = complete(), f.block_tokens = 0;
    expect_refusal(&f, "model.block_tokens is missing or 0", "1 or more");
    f = complete(), f.tp_size = 0;
    expect_refusal(&f, "model.tp_size is missing or 0", "1 or more");
    f = complete(), f.cp_size = 0;
    expect_refusal(&f, "model.cp_size is missing or 0", "1 or more");
    f = complete(), f.pp_size = 0;
    expect_refusal(&f, "model.pp_size is missing or 0", "1 or more");
    f = complete(), f.group[0].payload_bytes = 0;
    expect_refusal(&f, "model.groups[0].payload_bytes is missing or 0", "1 or more");
}

static void text_without_an_end_is_refused(void **state)
{
    fby_fingerprint_fields_t f = complete();
    memset(f.kv_dtype, 'x', sizeof(f.kv_dtype));
    expect_refusal(&f, "model.kv_dtype is longer than 31 bytes", "shorter");
}

static void context_parallel_layouts_are_refused(void **state)
{
    fby_fingerprint_fields_t f = complete();
    f.cp_size = 8;
    expect_refusal(&f, "model.cp_size is 8", "only 1 is accepted");
}

static void groups_that_cannot_be_are_refused(void **state)
{
    fby_fingerprint_fields_t f;
    f = complete(), f.groups = 0;
    expect_refusal(&f, "model.groups has 0 entries", "1 to 8");
    f = complete(), f.groups = FBY_MAX_GROUPS + 1;
    expect_refusal(&f, "model.groups has 9 entries", "1 to 8");
    f = complete(), f.group[0].trailing = 1;
    expect_refusal(&f, "no group of rule all", "at least one");
    f = complete(), strcpy(f.group[1].name, "full");
    expect_refusal(&f, "model.groups[1].name is \"full\"", "a name of its own");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_fields_give_the_same_digest),
        cmocka_unit_test(one_changed_field_changes_the_digest),
        cmocka_unit_test(a_missing_text_is_an_error_that_names_it),
        cmocka_unit_test(a_missing_size_is_an_error_that_names_it),
        cmocka_unit_test(text_without_an_end_is_refused),
        cmocka_unit_test(context_parallel_layouts_are_refused),
        cmocka_unit_test(groups_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
