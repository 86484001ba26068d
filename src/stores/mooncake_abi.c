/* mooncake_abi.c - a library with Mooncake Store's C interface: loading it, and what its codes mean. */
#include <dlfcn.h>
#include <elf.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "stores/mooncake.h"

static const struct symbol {
    const char *name;
    size_t offset; /* of its pointer in fby_mooncake_abi_t */
} symbols[] = {
#define FBY_X(type, name, arguments) {#name, offsetof(fby_mooncake_abi_t, name)},
    FBY_MOONCAKE_MAP(FBY_X)
#undef FBY_X
};

/* ---- Version ---- */

typedef struct build_search {
    ElfW(Addr) base;
    char *text;
    size_t text_size;
} build_search_t;

/* The build id out of one note segment: notes are a header, a name and a description, each padded to 4 bytes. */
static bool read_notes(const uint8_t *at, size_t bytes, const build_search_t *search)
{
    while (bytes >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) note;
        memcpy(&note, at, sizeof(note));
        size_t name_bytes = (size_t)fby_align_up(note.n_namesz, 4);
        size_t whole = sizeof(note) + name_bytes + (size_t)fby_align_up(note.n_descsz, 4);
        if (whole > bytes) {
            return false;
        }
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(at + sizeof(note), "GNU", 4) == 0) {
            size_t used = (size_t)snprintf(search->text, search->text_size, "build ");
            for (uint32_t i = 0; i < note.n_descsz && used + 3 <= search->text_size; i++) {
                used += (size_t)snprintf(search->text + used, search->text_size - used, "%02x",
                                         at[sizeof(note) + name_bytes + i]);
            }
            return true;
        }
        at += whole;
        bytes -= whole;
    }
    return false;
}

static int find_build(struct dl_phdr_info *info, size_t size, void *arg)
{
    const build_search_t *search = arg;
    (void)size;
    if (info->dlpi_addr != search->base) {
        return 0;
    }
    for (ElfW(Half) i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (header->p_type == PT_NOTE &&
            read_notes((const uint8_t *)(uintptr_t)(info->dlpi_addr + header->p_vaddr), header->p_memsz, search)) {
            break;
        }
    }
    return 1;
}

static void read_version(void *library, const char *path, char *text, size_t text_size)
{
    char whole[PATH_MAX];
    struct link_map *map = NULL;
    snprintf(text, text_size, "no version");
    const char *suffix = realpath(path, whole) != NULL ? strstr(whole, ".so.") : NULL;
    if (suffix != NULL) {
        snprintf(text, text_size, "version %s", suffix + strlen(".so."));
    } else if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0) {
        build_search_t search = {.base = map->l_addr, .text = text, .text_size = text_size};
        dl_iterate_phdr(find_build, &search);
    }
}

/* ---- Loading ---- */

int fby_mooncake_load(const char *path, const fby_options_t *options, fby_mooncake_abi_t *abi)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return fby_option_fail(options, FBY_E_CONFIG,
                               "option library is '%.160s', which cannot be loaded: %.200s; accepted: a library with "
                               "Mooncake Store's C interface",
                               path, dlerror());
    }
    *abi = (fby_mooncake_abi_t){0};
    read_version(library, path, abi->version, sizeof(abi->version));
    char missing[320] = "";
    size_t used = 0;
    uint32_t count = 0;
    for (size_t i = 0; i < FBY_ARRAY_LEN(symbols); i++) {
        char name[64];
        snprintf(name, sizeof(name), "mooncake_store_%s", symbols[i].name);
        void *symbol = dlsym(library, name);
        memcpy((char *)abi + symbols[i].offset, &symbol, sizeof(symbol));
        if (symbol == NULL && used < sizeof(missing)) {
            used += (size_t)snprintf(missing + used, sizeof(missing) - used, "%s%s", count++ == 0 ? "" : ", ",
                                     symbols[i].name);
        }
    }
    if (count > 0) {
        return fby_option_fail(options, FBY_E_CONFIG, "library '%.120s' (%s) lacks %u of %zu mooncake_store_*: %s",
                               path, abi->version, count, FBY_ARRAY_LEN(symbols), missing);
    }
    return 0;
}

/* ---- Codes ---- */

int fby_mooncake_result(int64_t code)
{
    switch (code) {
#define FBY_X(number, result, late)                                                                                    \
    case number:                                                                                                       \
        return FBY_E_##result;
        FBY_MOONCAKE_CODE_MAP(FBY_X)
#undef FBY_X
    default:
        break;
    }
    if (code <= -1000 && code > -1100) { /* high availability: who the master is */
        return FBY_E_CONNECTION;
    }
    return code <= -1700 && code > -1800 ? FBY_E_FULL /* a tenant's quota */ : FBY_E_INVALID;
}

/* Between a second, after which a node that is gone is noticed, and the shortest time after which one that hangs is
   given up, whatever is set. Too short a time costs a process that could have gone on; too long a one, memory. */
static const uint64_t slow_ns = UINT64_C(1500000000);

static fby_mooncake_late_t code_late(int64_t code)
{
    switch (code) {
#define FBY_X(number, result, late)                                                                                    \
    case number:                                                                                                       \
        return FBY_MOONCAKE_##late;
        FBY_MOONCAKE_CODE_MAP(FBY_X)
#undef FBY_X
    default:
        break;
    }
    /* Errors of the master's and of quotas come before a transfer. */
    bool before = (code <= -1000 && code > -1100) || (code <= -1700 && code > -1800);
    return code >= 0 || before ? FBY_MOONCAKE_NEVER : FBY_MOONCAKE_ALWAYS;
}

bool fby_mooncake_late(int64_t code, uint64_t took_ns)
{
    fby_mooncake_late_t late = code_late(code);
    return late == FBY_MOONCAKE_ALWAYS || (late == FBY_MOONCAKE_SLOWLY && took_ns >= slow_ns);
}
