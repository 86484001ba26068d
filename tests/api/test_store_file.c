/* test_store_file.c - the embedded default through the whole stack: written, lost, closed, read back, exact. */
#include <dirent.h>
#include <unistd.h>

#include "api/rig.h"

static char directory[] = "/tmp/forebay-api-XXXXXX";

static int make_directory(void **state)
{
    (void)state;
    strcpy(directory + sizeof(directory) - 7, "XXXXXX");
    return mkdtemp(directory) == NULL;
}

static int remove_directory(void **state)
{
    (void)state;
    DIR *entries = opendir(directory);
    for (struct dirent *entry; entries != NULL && (entry = readdir(entries)) != NULL;) {
        char path[512];
        snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
        unlink(path);
    }
    if (entries != NULL) {
        closedir(entries);
    }
    return rmdir(directory);
}

static int open_with(rig_t *rig, const char *key, const char *value)
{
    fby_config_t *config;
    assert_int_equal(fby_config_create(&config), 0);
    static const char *const settings[] = {"model.id=rig",
                                           "model.revision=1",
                                           "model.kv_dtype=f16",
                                           "model.layer_set=all",
                                           "model.layout=plain",
                                           "model.weights_epoch=1",
                                           "model.block_tokens=16",
                                           "model.tp_size=1",
                                           "model.cp_size=1",
                                           "model.pp_size=1",
                                           "model.groups=full:4096:all",
                                           "pool.bytes=512KiB",
                                           "pool.max_hold_bytes=512KiB",
                                           "pool.write_pinned_bytes=512KiB",
                                           "prefetch.enabled=true",
                                           "prefetch.chunk_max_blocks=4",
                                           "store.driver=file",
                                           "log.level=error"};
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        char name[64];
        const char *equals = strchr(settings[i], '=');
        snprintf(name, sizeof(name), "%.*s", (int)(equals - settings[i]), settings[i]);
        assert_int_equal(fby_config_set(config, name, equals + 1), 0);
    }
    assert_int_equal(fby_config_set(config, "store.options.dir", directory), 0);
    if (value != NULL) {
        assert_int_equal(fby_config_set(config, key, value), 0);
    }
    int rc = fby_cache_open(config, &rig->cache);
    fby_config_free(config);
    return rc;
}

/* The rig's mem store stands idle: only the cache's own store counts here. */
static void open_file_cache(rig_t *rig, const char *io)
{
    if (open_with(rig, "store.options.io", io) != 0) {
        fail_msg("open: %s", fby_last_error());
    }
}

static void written_lost_and_read_back(const char *io)
{
    rig_t rig = {0};
    open_file_cache(&rig, io);
    fby_seq_t *p32 = rig_seq(&rig, 1, RIG_P32_TOKENS);
    rig_put_stored(&rig, p32, 32);
    assert_int_equal(fby_cache_reset(rig.cache, RIG_PATIENCE_S, 0), FBY_RESET_DONE);
    fby_session_t session = rig_start(&rig, p32, FBY_POLICY_BEST_EFFORT, FBY_STOP_DRAIN, -1);
    assert_int_equal(rig_wait(&rig, session).loaded_tokens, 512);
    rig_take_and_verify(&rig, session, p32, 32);
    rig_quiet(&rig);
    fby_seq_unref(p32);
    assert_int_equal(fby_cache_close(rig.cache, RIG_PATIENCE_S, NULL), 0);

    open_file_cache(&rig, io);
    p32 = rig_seq(&rig, 1, RIG_P32_TOKENS);
    session = rig_start(&rig, p32, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
    assert_int_equal(rig_wait(&rig, session).loaded_tokens, 512);
    rig_take_and_verify(&rig, session, p32, 32);
    /* once more: everything is there already, nothing is written again */
    fby_cache_reset(rig.cache, RIG_PATIENCE_S, 0);
    rig_put_stored(&rig, p32, 32);
    assert_int_equal(rig_stats(&rig).bytes_written, 0);
    rig_quiet(&rig);
    fby_seq_unref(p32);
    assert_int_equal(fby_cache_close(rig.cache, RIG_PATIENCE_S, NULL), 0);
}

static void with_whatever_io_the_machine_has(void **state)
{
    (void)state;
    written_lost_and_read_back(NULL);
}

static void with_blocking_io(void **state)
{
    (void)state;
    written_lost_and_read_back("sync");
}

/* Opening fails with a text that names the thing, and leaves nothing open. */
static void a_directory_in_use_is_refused(void **state)
{
    (void)state;
    rig_t rig = {0};
    fby_config_t *config;
    fby_cache_t *second = NULL;
    open_file_cache(&rig, NULL);
    assert_int_equal(fby_config_create(&config), 0);
    static const char *const settings[][2] = {{"model.id", "rig"},
                                              {"model.revision", "1"},
                                              {"model.kv_dtype", "f16"},
                                              {"model.layer_set", "all"},
                                              {"model.layout", "plain"},
                                              {"model.weights_epoch", "1"},
                                              {"model.block_tokens", "16"},
                                              {"model.tp_size", "1"},
                                              {"model.cp_size", "1"},
                                              {"model.pp_size", "1"},
                                              {"model.groups", "full:4096:all"},
                                              {"store.driver", "file"}};
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        assert_int_equal(fby_config_set(config, settings[i][0], settings[i][1]), 0);
    }
    assert_int_equal(fby_config_set(config, "store.options.dir", directory), 0);
    assert_true(fby_cache_open(config, &second) < 0);
    assert_null(second);
    assert_non_null(strstr(fby_last_error(), directory));
    fby_config_set(config, "store.driver", "nothing-like-it");
    assert_int_equal(fby_cache_open(config, &second), FBY_E_CONFIG);
    assert_non_null(strstr(fby_last_error(), "nothing-like-it"));
    fby_config_free(config);
    assert_int_equal(fby_cache_close(rig.cache, RIG_PATIENCE_S, NULL), 0);
}

/* E09 across a restart: the store keeps the raised epoch, and only the model that raised it is refused a lower one. */
static void a_raised_epoch_outlives_the_process(void **state)
{
    (void)state;
    rig_t rig = {0};
    open_file_cache(&rig, NULL);
    assert_int_equal(fby_cache_reset(rig.cache, RIG_PATIENCE_S, 1), FBY_RESET_DONE);
    assert_int_equal(fby_cache_epoch(rig.cache), 2);
    assert_int_equal(fby_cache_close(rig.cache, RIG_PATIENCE_S, NULL), 0);

    assert_true(open_with(&rig, "model.weights_epoch", "1") < 0);
    assert_non_null(strstr(fby_last_error(), "epoch"));
    assert_int_equal(open_with(&rig, "model.weights_epoch", "2"), 0);
    assert_int_equal(fby_cache_close(rig.cache, RIG_PATIENCE_S, NULL), 0);
    assert_int_equal(open_with(&rig, "model.id", "another"), 0);
    assert_int_equal(fby_cache_close(rig.cache, RIG_PATIENCE_S, NULL), 0);
}

/* An object that cannot be read would be "there already" for ever in a store that never overwrites. */
static void a_corrupt_object_is_repaired_by_the_next_put(void **state)
{
    (void)state;
    rig_t rig;
    RIG_OPEN(&rig, "store.options.overwrite=0");
    fby_seq_t *p32 = rig_seq(&rig, 1, RIG_P32_TOKENS);
    rig_put_stored(&rig, p32, 32);
    char key[64];
    assert_int_equal(fby_seq_key(p32, 11, 0, key, sizeof(key)), 0);
    assert_int_equal(fby_mem_corrupt(rig.store, key, 77), 0);
    for (uint64_t delivered = 11; delivered <= 32; delivered += 21) {
        assert_int_equal(fby_cache_reset(rig.cache, RIG_PATIENCE_S, 0), FBY_RESET_DONE);
        fby_session_t session = rig_start(&rig, p32, FBY_POLICY_WAIT_COMPLETE, FBY_STOP_DRAIN, -1);
        assert_int_equal(rig_wait(&rig, session).delivered_blocks, delivered);
        rig_take_and_verify(&rig, session, p32, delivered);
        rig_put_stored(&rig, p32, 32);
    }
    assert_int_equal(rig_stats(&rig).fail_checksum, 1);
    rig_quiet(&rig);
    fby_seq_unref(p32);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(with_whatever_io_the_machine_has, make_directory, remove_directory),
        cmocka_unit_test_setup_teardown(with_blocking_io, make_directory, remove_directory),
        cmocka_unit_test_setup_teardown(a_directory_in_use_is_refused, make_directory, remove_directory),
        cmocka_unit_test_setup_teardown(a_raised_epoch_outlives_the_process, make_directory, remove_directory),
        cmocka_unit_test(a_corrupt_object_is_repaired_by_the_next_put),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
