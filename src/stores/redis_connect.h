/* redis_connect.h - a connected, non-blocking socket within a time. */
#ifndef FBY_STORES_REDIS_CONNECT_H
#define FBY_STORES_REDIS_CONNECT_H

#include "stores/redis_conn.h"

/* 0, or FBY_E_TIMEOUT. events: POLLIN, POLLOUT; an error on the socket counts as an event. */
int fby_redis_wait(int fd, short events, uint64_t deadline_ns);
/*
 * A descriptor, the caller's, or a negative code with *fault. Every address of a name is tried, each with its share of
 * the time. Looking a name up has the resolver's own limits (resolv.conf); an address needs no look-up.
 */
int fby_redis_connect(const fby_redis_endpoint_t *endpoint, uint64_t deadline_ns, fby_redis_fault_t *fault);

#endif
