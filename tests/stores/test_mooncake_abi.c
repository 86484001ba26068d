/* test_mooncake_abi.c - loading a library with Mooncake's C interface, and its codes. */
#include "fixture.h"

#include <unistd.h>

#include "stores/mooncake.h"
#include "stores/stores.h"

static char error[512];

static const char *double_path(const char *variant)
{
    static char path[512];
    const char *folder = getenv("FOREBAY_PLUGINS");
    assert_non_null(folder);
    snprintf(path, sizeof(path), "%s/mooncake_conformance_double%s.so", folder, variant);
    return path;
}

static int load(const char *path, fby_mooncake_abi_t *abi)
{
    const fby_options_t options = fby_options_make(NULL, "mooncake", error, sizeof(error));
    error[0] = '\0';
    return fby_mooncake_load(path, &options, abi);
}

static void a_complete_library_is_loaded(void **state)
{
    fby_mooncake_abi_t abi;
    assert_int_equal(load(double_path(""), &abi), 0);
#define FBY_X(type, name, arguments) assert_non_null(abi.name);
    FBY_MOONCAKE_MAP(FBY_X)
#undef FBY_X
    assert_true(strncmp(abi.version, "build ", 6) == 0 || strcmp(abi.version, "no version") == 0);
}

static void copy_file(const char *from, const char *to)
{
    char block[65536];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    assert_non_null(in);
    assert_non_null(out);
    for (size_t n; (n = fread(block, 1, sizeof(block), in)) > 0;) {
        assert_int_equal(fwrite(block, 1, n, out), n);
    }
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

static void the_version_is_that_of_the_file(void **state)
{
    char *folder = fixture_directory();
    char file[300], link[300];
    fby_mooncake_abi_t abi;
    snprintf(file, sizeof(file), "%s/libmooncake_store.so.0.3.13", folder);
    snprintf(link, sizeof(link), "%s/libmooncake_store.so", folder);
    copy_file(double_path(""), file);
    assert_int_equal(symlink("libmooncake_store.so.0.3.13", link), 0);
    assert_int_equal(load(link, &abi), 0);
    assert_string_equal(abi.version, "version 0.3.13");
    fixture_remove_directory(folder);
}

static void all_missing_functions_are_named_at_once(void **state)
{
    fby_mooncake_abi_t abi;
    assert_int_equal(load(double_path("_lacks_1"), &abi), FBY_E_CONFIG);
    assert_non_null(strstr(error, "mooncake_conformance_double_lacks_1.so' (build "));
    assert_non_null(strstr(error, "lacks 2 of 19 mooncake_store_*: get_size, remove_all"));
    assert_int_equal(load(double_path("_lacks_2"), &abi), FBY_E_CONFIG);
    assert_non_null(strstr(error, "lacks 18 of 19 mooncake_store_*: destroy, setup, init_all, health_check, put, "
                                  "put_from, batch_put_from, get_into, batch_get_into, is_exist, batch_is_exist, "
                                  "get_size, get_hostname, remove, remove_by_regex, remove_all, register_buffer, "
                                  "unregister_buffer"));
}

/* The text of a failed start has 508 bytes on its way to the runtime. */
static void the_message_of_the_driver_fits_its_way(void **state)
{
    fby_store_spec_t spec = fixture_spec(4032);
    fby_store_t *store = NULL;
    char option[600], short_error[508] = "";
    snprintf(option, sizeof(option), "library=%s", double_path("_lacks_2"));
    const char *const options[] = {"backend=library", option, NULL};
    fby_store_isolated = true;
    assert_int_equal(fby_store_mooncake.open(&spec, options, &store, short_error, sizeof(short_error)), FBY_E_CONFIG);
    fby_store_isolated = false;
    assert_null(store);
    assert_non_null(strstr(short_error, "unregister_buffer"));
}

static void what_is_no_library_is_refused(void **state)
{
    fby_mooncake_abi_t abi;
    char *folder = fixture_directory();
    char path[300];
    snprintf(path, sizeof(path), "%s/text.so", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("no library\n", file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(load(path, &abi), FBY_E_CONFIG);
    assert_non_null(strstr(error, "text.so', which cannot be loaded: "));
    fixture_remove_directory(folder);
}

/* Offsets of `struct mooncake_replicate_config` as the interface documents them for 64-bit machines. */
static void the_layout_is_the_interface_s(void **state)
{
    assert_int_equal(sizeof(fby_mooncake_replication_t), 32);
    assert_int_equal(offsetof(fby_mooncake_replication_t, replicas), 0);
    assert_int_equal(offsetof(fby_mooncake_replication_t, soft_pin), 8);
    assert_int_equal(offsetof(fby_mooncake_replication_t, hard_pin), 12);
    assert_int_equal(offsetof(fby_mooncake_replication_t, segments), 16);
    assert_int_equal(offsetof(fby_mooncake_replication_t, segment_count), 24);
}

static void every_code_has_a_meaning(void **state)
{
    static const struct {
        int64_t code;
        int result;
        fby_mooncake_late_t late;
    } rows[] = {
        {-1, FBY_E_INVALID, FBY_MOONCAKE_ALWAYS},        {-10, FBY_E_INVALID, FBY_MOONCAKE_NEVER},
        {-101, FBY_E_CONNECTION, FBY_MOONCAKE_NEVER},    {-103, FBY_E_CONNECTION, FBY_MOONCAKE_NEVER},
        {-200, FBY_E_FULL, FBY_MOONCAKE_NEVER},          {-400, FBY_E_INVALID, FBY_MOONCAKE_NEVER},
        {-500, FBY_E_CONNECTION, FBY_MOONCAKE_NEVER},    {-600, FBY_E_INVALID, FBY_MOONCAKE_NEVER},
        {-601, FBY_E_INVALID, FBY_MOONCAKE_NEVER},       {-703, FBY_E_NOT_READY, FBY_MOONCAKE_NEVER},
        {-704, FBY_E_MISSING, FBY_MOONCAKE_NEVER},       {-705, FBY_E_EXISTS, FBY_MOONCAKE_NEVER},
        {-706, FBY_E_LEASE, FBY_MOONCAKE_NEVER},         {-707, FBY_E_LEASE, FBY_MOONCAKE_NEVER},
        {-710, FBY_E_MISSING, FBY_MOONCAKE_NEVER},       {-712, FBY_E_MISSING, FBY_MOONCAKE_NEVER},
        {-800, FBY_E_CONNECTION, FBY_MOONCAKE_SLOWLY},   {-801, FBY_E_CHECKSUM, FBY_MOONCAKE_NEVER},
        {-900, FBY_E_CONNECTION, FBY_MOONCAKE_NEVER},    {-901, FBY_E_TIMEOUT, FBY_MOONCAKE_NEVER},
        {-1000, FBY_E_CONNECTION, FBY_MOONCAKE_NEVER},   {-1012, FBY_E_CONNECTION, FBY_MOONCAKE_NEVER},
        {-1700, FBY_E_FULL, FBY_MOONCAKE_NEVER},         {-1702, FBY_E_FULL, FBY_MOONCAKE_NEVER},
        {-1100, FBY_E_INVALID, FBY_MOONCAKE_ALWAYS},     {-99999, FBY_E_INVALID, FBY_MOONCAKE_ALWAYS},
        {INT64_MIN, FBY_E_INVALID, FBY_MOONCAKE_ALWAYS},
    };
    for (size_t i = 0; i < FBY_ARRAY_LEN(rows); i++) {
        assert_int_equal(fby_mooncake_result(rows[i].code), rows[i].result);
        assert_int_equal(fby_mooncake_late(rows[i].code, 0), rows[i].late == FBY_MOONCAKE_ALWAYS);
        assert_int_equal(fby_mooncake_late(rows[i].code, 1499999999), rows[i].late == FBY_MOONCAKE_ALWAYS);
        assert_int_equal(fby_mooncake_late(rows[i].code, 1500000000), rows[i].late != FBY_MOONCAKE_NEVER);
    }
    assert_false(fby_mooncake_late(0, UINT64_MAX));
    assert_false(fby_mooncake_late(4096, UINT64_MAX));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_complete_library_is_loaded),
        cmocka_unit_test(the_version_is_that_of_the_file),
        cmocka_unit_test(all_missing_functions_are_named_at_once),
        cmocka_unit_test(the_message_of_the_driver_fits_its_way),
        cmocka_unit_test(what_is_no_library_is_refused),
        cmocka_unit_test(the_layout_is_the_interface_s),
        cmocka_unit_test(every_code_has_a_meaning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
