/* confine.h - the filter that keeps an agent's memory in its process. */
#ifndef FBY_AGENT_CONFINE_H
#define FBY_AGENT_CONFINE_H

#include "base/base.h"

/* Sets it on every thread of the process, for good. `uring`: leave io_uring alone. 0 or -errno. */
int fby_confine(bool uring);

#endif
