#include "mooncake_rig.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include "base/clock.h"
#include "stores/stores.h"

const fby_store_driver_t *const rig_driver = &fby_store_mooncake;
fby_store_spec_t rig_spec;
char rig_library[600], rig_directory[300];
static char *folder;

void rig_path(const char *name, char path[512])
{
    snprintf(path, 512, "%s/%s", folder, name);
}

void rig_switch_on(const char *name, const char *text)
{
    char path[512];
    rig_path(name, path);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

void rig_switch_off(const char *name)
{
    char path[512];
    rig_path(name, path);
    assert_int_equal(unlink(path), 0);
}

size_t rig_calls(const char *call, size_t *sizes, size_t most)
{
    char path[512], line[600];
    size_t count = 0, length = strlen(call);
    rig_path("calls", path);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, call, length) == 0) {
            if (count < most) {
                sizes[count] = (size_t)strtoul(strrchr(line, ' '), NULL, 10);
            }
            count++;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return count;
}

void rig_forget_calls(void)
{
    rig_switch_off("calls");
}

int rig_set_up(void **state)
{
    assert_non_null(getenv("FOREBAY_PLUGINS"));
    rig_spec = fixture_spec(1024 - FBY_TRAILER_BYTES);
    folder = fixture_directory();
    snprintf(rig_library, sizeof(rig_library), "library=%s/mooncake_conformance_double.so", getenv("FOREBAY_PLUGINS"));
    snprintf(rig_directory, sizeof(rig_directory), "env.MOONCAKE_DOUBLE_DIR=%s", folder);
    fby_store_isolated = true;
    return 0;
}

int rig_tear_down(void **state)
{
    fby_store_isolated = false;
    fixture_remove_directory(folder);
    return 0;
}

fby_store_t *rig_open(const char *option)
{
    return fixture_open(rig_driver, &rig_spec, "backend=library", rig_library, rig_directory, option, NULL);
}

fby_store_t *rig_open_with_pool(uint8_t **pool, uint32_t slots)
{
    fby_store_t *store = rig_open("env.MOONCAKE_DOUBLE_LEASE_MS=0");
    *pool = fixture_buffer(&rig_spec, slots);
    assert_int_equal(rig_driver->register_region(store, *pool, (size_t)slots * RIG_SLOT), 0);
    return store;
}

void rig_close_with_pool(fby_store_t *store, uint8_t *pool)
{
    assert_int_equal(rig_driver->unregister_region(store, pool), 0);
    rig_driver->close(store);
    free(pool);
}

void rig_ops(fby_store_op_t *ops, uint8_t *pool, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        ops[i] = fixture_op(&rig_spec, i, 0, pool + (size_t)i * RIG_SLOT);
    }
}

void *rig_bare_client(fby_mooncake_abi_t *abi)
{
    char error[512];
    sigset_t mask;
    const fby_options_t options = fby_options_make(NULL, "mooncake", error, sizeof(error));
    assert_int_equal(fby_mooncake_load(rig_library + strlen("library="), &options, abi), 0);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    void *client = abi->create();
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    assert_int_equal(abi->setup(client, "h", "P2PHANDSHAKE", 0, 0, "tcp", "", "h:1"), 0);
    return client;
}

void rig_await_write(const volatile uint8_t *byte, uint8_t old)
{
    uint64_t until = fby_clock_now(&fby_clock_monotonic) + 30 * FBY_SECOND;
    while (*byte == old) {
        assert_true(fby_clock_now(&fby_clock_monotonic) < until);
        sched_yield();
    }
}
