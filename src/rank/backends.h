/* backends.h - the built-in device back ends. */
#ifndef FBY_RANK_BACKENDS_H
#define FBY_RANK_BACKENDS_H

#include "base/base.h"
#include "forebay/device.h"

extern const fby_device_driver_t fby_device_host; /* memory of this process */
extern const fby_device_driver_t fby_device_cuda; /* libcuda by dlopen */

/* NULL: no such name. */
const fby_device_driver_t *fby_device_find(const char *name);

#endif
