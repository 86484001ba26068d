#include "rank/cuda_library.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

int fby_cu_open(const char *path, fby_cu_library_t *library, char *error, size_t error_size)
{
    const char *name = path != NULL ? path : "libcuda.so.1";
    memset(library, 0, sizeof(*library));
    library->handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library->handle == NULL) {
        const char *why = dlerror();
        snprintf(error, error_size, "library is %s: %s", name, why != NULL ? why : "not found");
        return -ENODEV;
    }
    const char *missing = NULL;
#define FBY_X(member, symbol, parameters)                                                                              \
    {                                                                                                                  \
        void *found = dlsym(library->handle, symbol);                                                                  \
        missing = found == NULL && missing == NULL ? symbol : missing;                                                 \
        memcpy(&library->member, &found, sizeof(found));                                                               \
    }
    FBY_CU_MAP(FBY_X)
#undef FBY_X
    if (missing != NULL) {
        snprintf(error, error_size, "library is %s, without %s; accepted: a CUDA driver of 10.0 or later", name,
                 missing);
        fby_cu_close(library);
        return -ENOSYS;
    }
    return 0;
}

void fby_cu_close(fby_cu_library_t *library)
{
    if (library->handle != NULL) {
        dlclose(library->handle);
        library->handle = NULL;
    }
}

int fby_cu_code(const fby_cu_library_t *library, fby_cu_result_t result, const char *symbol, char *error,
                size_t error_size)
{
    const char *name = NULL;
    if (result == FBY_CU_SUCCESS) {
        return 0;
    }
    if (library->error_name(result, &name) != FBY_CU_SUCCESS || name == NULL) {
        name = "unknown";
    }
    snprintf(error, error_size, "%s: %s (%d)", symbol, name, result);
    switch (result) {
#define FBY_X(text, number, code)                                                                                      \
    case number:                                                                                                       \
        return code;
        FBY_CU_ERROR_MAP(FBY_X)
#undef FBY_X
    default:
        return -EIO;
    }
}
