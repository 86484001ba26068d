#include "fixture.h"

#include <errno.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/host.h"
#include "keys/keys.h"
#include "pool/region.h"

enum { MOST_OPTIONS = 8 };

fby_store_spec_t fixture_spec(uint32_t payload)
{
    fby_store_spec_t spec = {
        .size = sizeof(spec), .groups = 2, .alignment = 4096, .fingerprint = {1, 2, 3}, .epoch = 7};
    for (uint32_t group = 0; group < spec.groups; group++) {
        spec.object_bytes[group] = (payload >> group) + FBY_TRAILER_BYTES;
        spec.slot_bytes[group] = (uint32_t)fby_align_up(spec.object_bytes[group], 4096);
    }
    return spec;
}

fby_object_id_t fixture_id(const fby_store_spec_t *spec, uint64_t i, uint32_t group)
{
    uint64_t state = i * 2 + 1;
    fby_object_id_t id = {
        .group = group,
        .payload_bytes = spec->object_bytes[group] - FBY_TRAILER_BYTES,
        .segment_bytes = FBY_SEGMENT_BYTES,
    };
    id.hash.w[0] = unit_random(&state);
    id.hash.w[1] = unit_random(&state);
    memcpy(id.fingerprint, spec->fingerprint, sizeof(id.fingerprint));
    return id;
}

void fixture_key(uint64_t i, uint32_t group, char key[FBY_KEY_BYTES])
{
    fby_store_spec_t spec = fixture_spec(128);
    fby_object_id_t id = fixture_id(&spec, i, group);
    fby_key_text(&id.hash, group, key);
}

void fixture_fill(const fby_store_spec_t *spec, uint64_t i, uint32_t group, void *buffer)
{
    fby_object_id_t id = fixture_id(spec, i, group);
    uint64_t state = i * 8 + group;
    uint8_t *bytes = buffer;
    for (uint32_t at = 0; at < id.payload_bytes; at++) {
        bytes[at] = (uint8_t)(at % 8 == 0 ? unit_random(&state) : state >> (at % 8 * 8));
    }
    fby_object_seal(buffer, &id, true);
}

bool fixture_holds(const fby_store_spec_t *spec, uint64_t i, uint32_t group, const void *buffer)
{
    uint8_t *expected = malloc(spec->slot_bytes[group]);
    assert_non_null(expected);
    fixture_fill(spec, i, group, expected);
    bool same = memcmp(expected, buffer, spec->object_bytes[group]) == 0;
    free(expected);
    return same;
}

uint8_t *fixture_buffer(const fby_store_spec_t *spec, uint32_t slots)
{
    size_t bytes = (size_t)spec->slot_bytes[0] * slots;
    void *buffer = aligned_alloc(4096, bytes);
    assert_non_null(buffer);
    memset(buffer, 0xEE, bytes);
    return buffer;
}

fby_store_op_t fixture_op(const fby_store_spec_t *spec, uint64_t i, uint32_t group, void *buffer)
{
    fby_store_op_t op = {.buffer = buffer, .bytes = spec->object_bytes[group], .group = group, .result = INT64_MIN};
    fixture_key(i, group, op.key);
    return op;
}

int64_t fixture_put(const fby_store_driver_t *driver, fby_store_t *store, const fby_store_spec_t *spec, uint64_t i)
{
    uint8_t *buffer = fixture_buffer(spec, 1);
    fby_store_op_t op = fixture_op(spec, i, 0, buffer);
    fixture_fill(spec, i, 0, buffer);
    assert_int_equal(fixture_host(driver)->put(store, &op, 1), 0);
    free(buffer);
    return op.result;
}

int64_t fixture_get(const fby_store_driver_t *driver, fby_store_t *store, const fby_store_spec_t *spec, uint64_t i)
{
    uint8_t *buffer = fixture_buffer(spec, 1);
    fby_store_op_t op = fixture_op(spec, i, 0, buffer);
    assert_int_equal(fixture_host(driver)->get(store, &op, 1), 0);
    if (op.result == (int64_t)op.bytes) {
        assert_true(fixture_holds(spec, i, 0, buffer));
    }
    free(buffer);
    return op.result;
}

int64_t fixture_exists(const fby_store_driver_t *driver, fby_store_t *store, uint64_t i)
{
    fby_store_op_t op = {.result = INT64_MIN};
    fixture_key(i, 0, op.key);
    assert_int_equal(fixture_host(driver)->exists(store, &op, 1), 0);
    return op.result;
}

int64_t fixture_remove(const fby_store_driver_t *driver, fby_store_t *store, uint64_t i)
{
    fby_store_op_t op = {.result = INT64_MIN};
    fixture_key(i, 0, op.key);
    assert_int_equal(fixture_host(driver)->remove(store, &op, 1), 0);
    return op.result;
}

/* The texts behind `last`, up to the NULL, into options[]. */
#define GATHER(last)                                                                                                   \
    do {                                                                                                               \
        size_t count = 0;                                                                                              \
        va_list args;                                                                                                  \
        va_start(args, last);                                                                                          \
        while ((options[count] = va_arg(args, const char *)) != NULL) {                                                \
            count++;                                                                                                   \
            assert_true(count <= MOST_OPTIONS);                                                                        \
        }                                                                                                              \
        va_end(args);                                                                                                  \
    } while (0)

/* ---- Stores in agents ---- */

enum { HOSTED_STORES = 8, HOSTED_SLOTS = 4 };

/* A pool outlives the store that was opened with it. */
static struct hosted {
    fby_store_t *store;
    fby_region_t region;
} hosted[HOSTED_STORES];

bool fixture_hosted(void)
{
    const char *host = getenv("FOREBAY_TEST_HOST");
    return host != NULL && strcmp(host, "agent") == 0;
}

void fixture_needs_process(void)
{
    if (fixture_hosted()) {
        print_message("skipped: this looks into the driver, which is in another process here\n");
        skip();
    }
}

static struct hosted *hosted_find(const fby_store_t *store)
{
    struct hosted *found = hosted;
    while (found->store != store) {
        found++;
        assert_true(found < hosted + HOSTED_STORES);
    }
    return found;
}

static void hosted_close(fby_store_t *store)
{
    struct hosted *found = hosted_find(store);
    fby_store_agent.close(store);
    fby_region_close(&found->region);
    found->store = NULL;
}

const fby_store_driver_t *fixture_host(const fby_store_driver_t *driver)
{
    static fby_store_driver_t table;
    if (!fixture_hosted()) {
        return driver;
    }
    if (table.name == NULL) {
        table = fby_store_agent;
        table.close = hosted_close;
    }
    return &table;
}

static int hosted_open(const fby_store_driver_t *driver, const fby_store_spec_t *spec, const char *const *options,
                       fby_store_t **out, char *error, size_t error_size)
{
    struct hosted *free_one = hosted_find(NULL);
    fby_region_config_t pool = {.groups = spec->groups, .alignment = spec->alignment, .numa_node = -1};
    for (uint32_t g = 0; g < spec->groups; g++) {
        pool.slots[g] = HOSTED_SLOTS;
        pool.slot_bytes[g] = spec->slot_bytes[g];
    }
    assert_int_equal(fby_region_open(&pool, &free_one->region), 0);
    const fby_agent_config_t config = {
        .driver = driver->name, .options = options, .spec = spec, .region = &free_one->region};
    int status = fby_agent_open(&config, out, error, error_size);
    free_one->store = *out;
    if (status != 0) {
        fby_region_close(&free_one->region);
    }
    return status;
}

static int open_somewhere(const fby_store_driver_t *driver, const fby_store_spec_t *spec, const char *const *options,
                          fby_store_t **out, char *error, size_t error_size)
{
    return fixture_hosted() ? hosted_open(driver, spec, options, out, error, error_size)
                            : driver->open(spec, options, out, error, error_size);
}

/* ---- Opening ---- */

fby_store_t *fixture_open(const fby_store_driver_t *driver, const fby_store_spec_t *spec, ...)
{
    const char *options[MOST_OPTIONS + 1];
    char error[512] = "";
    fby_store_t *store = NULL;
    GATHER(spec);
    int status = open_somewhere(driver, spec, options, &store, error, sizeof(error));
    if (status != 0) {
        fail_msg("open gave %d: %s", status, error);
    }
    return store;
}

void fixture_refused(const fby_store_driver_t *driver, const fby_store_spec_t *spec, int code, const char *part, ...)
{
    const char *options[MOST_OPTIONS + 1];
    char error[512] = "";
    fby_store_t *store = NULL;
    GATHER(part);
    int status = open_somewhere(driver, spec, options, &store, error, sizeof(error));
    assert_null(store);
    if (status != code || strstr(error, part) == NULL) {
        fail_msg("expected %d and '%s', got %d: %s", code, part, status, error);
    }
}

char *fixture_directory(void)
{
    const char *parent = getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp";
    char *path = NULL;
    assert_true(asprintf(&path, "%s/forebay-test-XXXXXX", parent) > 0);
    assert_non_null(mkdtemp(path));
    return path;
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    return remove(path);
}

void fixture_remove_directory(char *path)
{
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    free(path);
}

const char *fixture_dir_option(const char *path)
{
    static char options[4][512];
    static unsigned next;
    char *option = options[next++ % 4];
    snprintf(option, sizeof(options[0]), "dir=%s", path);
    return option;
}
