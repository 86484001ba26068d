#include "cli/bench_native.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"

/* Which client a store's users have. The last row is for all other drivers: the driver's own batch call. */
static const struct {
    const char *driver;
    const fby_bench_client_t *client;
} clients[] = {
    {"redis", &fby_bench_client_redis},
    {"mooncake", &fby_bench_client_program},
    {NULL, &fby_bench_client_driver},
};

static const fby_bench_client_t *client_of(const fby_store_text_t *store, const char *command)
{
    size_t i = 0;
    while (clients[i].driver != NULL && strcmp(clients[i].driver, store->driver) != 0) {
        i++;
    }
    return command != NULL ? &fby_bench_client_program : clients[i].client;
}

static int map_memory(fby_bench_native_t *native)
{
    native->memory_bytes = (size_t)native->workers * fby_bench_prompt_bytes(native->set);
    native->memory_fd = memfd_create("forebay-bench", MFD_CLOEXEC);
    if (native->memory_fd < 0 || ftruncate(native->memory_fd, (off_t)native->memory_bytes) != 0) {
        fby_error_set("memory of %zu bytes for the native client: %s", native->memory_bytes, strerror(errno));
        return -errno;
    }
    void *memory =
        mmap(NULL, native->memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, native->memory_fd, 0);
    if (memory == MAP_FAILED) {
        fby_error_set("memory of %zu bytes for the native client: %s", native->memory_bytes, strerror(errno));
        return -errno;
    }
    native->memory = memory;
    return 0;
}

int fby_bench_native_open(const fby_bench_set_t *set, const fby_store_text_t *store, const char *command,
                          uint32_t workers, fby_bench_native_t *native)
{
    *native = (fby_bench_native_t){
        .client = client_of(store, command),
        .set = set,
        .store = store,
        .command = command,
        .workers = workers,
        .memory_fd = -1,
    };
    int status = map_memory(native);
    return status == 0 ? native->client->open(native) : status;
}

void fby_bench_native_close(fby_bench_native_t *native)
{
    if (native->client == NULL) {
        return;
    }
    native->client->close(native);
    if (native->memory != NULL) {
        munmap(native->memory, native->memory_bytes);
    }
    if (native->memory_fd >= 0) {
        close(native->memory_fd);
    }
    *native = (fby_bench_native_t){.memory_fd = -1};
}

int fby_bench_native_read(fby_bench_native_t *native, uint32_t worker, uint32_t prompt, bool checks_all, void **blocks,
                          uint64_t *ns, uint64_t *wrong_blocks)
{
    for (uint64_t i = 0; i < native->set->blocks; i++) {
        blocks[i] = fby_bench_native_block(native, worker, i);
    }
    fby_bench_set_scrub(native->set, prompt, blocks);
    int status = native->client->read(native, worker, prompt, ns);
    if (status == 0) {
        *wrong_blocks =
            fby_bench_set_check(native->set, prompt, (const void *const *)blocks, native->set->blocks, checks_all);
    }
    return status;
}

const char *fby_bench_native_option(const fby_bench_native_t *native, const char *name, const char *otherwise)
{
    const char *value = otherwise;
    for (uint32_t i = 0; i < native->store->options; i++) {
        value = strcmp(native->store->option[i].name, name) == 0 ? native->store->option[i].value : value;
    }
    return value;
}

int fby_bench_native_fault(const fby_bench_native_t *native, uint32_t prompt, uint64_t block, const char *what,
                           int status)
{
    fby_error_set("the native client (%s): object %s: %s", native->client->what,
                  fby_bench_native_key(native, prompt, block), what);
    return status;
}
