/* plugin.c - store drivers as plug-ins, right and wrong ones: built several times, told apart by PLUGIN_KIND. */
#include <stddef.h>

#include "forebay/store.h"

static int plugin_open(const fby_store_spec_t *spec, const char *const *options, fby_store_t **out, char *error,
                       size_t error_size)
{
    static int opened;
    *out = (fby_store_t *)&opened;
    return 0;
}

static void plugin_close(fby_store_t *store)
{
}

static void plugin_capabilities(fby_store_t *store, fby_store_caps_t *caps)
{
    *caps = (fby_store_caps_t){.size = sizeof(*caps), .max_batch = 123};
}

static int plugin_register(fby_store_t *store, void *base, size_t bytes)
{
    return 0;
}

static int plugin_unregister(fby_store_t *store, void *base)
{
    return 0;
}

static int plugin_batch(fby_store_t *store, fby_store_op_t *ops, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        ops[i].result = FBY_E_MISSING;
    }
    return 0;
}

static int plugin_health(fby_store_t *store, char *text, size_t text_size)
{
    return 0;
}

#if PLUGIN_KIND == 5 /* half of the asynchronous four */
static void plugin_wake(fby_store_t *store)
{
}
#endif

#if PLUGIN_KIND == 4 /* another library altogether */
#define fby_store_driver_1 fby_store_driver_of_another_version
#endif

const fby_store_driver_t *fby_store_driver_1(void);

const fby_store_driver_t *fby_store_driver_1(void)
{
    static const fby_store_driver_t driver = {
        .abi = PLUGIN_KIND == 2 ? FBY_STORE_ABI + 1 : FBY_STORE_ABI,
        .size = PLUGIN_KIND == 3 ? sizeof(fby_store_driver_t) - 8 : sizeof(fby_store_driver_t),
        .name = "plugin",
        .open = plugin_open,
        .close = plugin_close,
        .capabilities = plugin_capabilities,
        .register_region = plugin_register,
        .unregister_region = plugin_unregister,
        .exists = plugin_batch,
        .get = plugin_batch,
        .put = PLUGIN_KIND == 1 ? NULL : plugin_batch,
        .remove = plugin_batch,
        .health = plugin_health,
#if PLUGIN_KIND == 5
        .wake = plugin_wake,
#endif
    };
    return &driver;
}
