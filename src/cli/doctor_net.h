/* doctor_net.h - reaching a server: bounded in time and bytes, nothing is kept. */
#ifndef FBY_CLI_DOCTOR_NET_H
#define FBY_CLI_DOCTOR_NET_H

#include "base/base.h"

enum { FBY_NET_WHY_BYTES = 160 };

typedef struct fby_net_address {
    char host[256]; /* without brackets */
    char port[8];
} fby_net_address_t;

/* "HOST:PORT", "[V6]:PORT". */
bool fby_net_address_parse(const char *text, fby_net_address_t *out);
/* Whether every address of the name is on loopback; false when it has none. */
bool fby_net_is_loopback(const char *host);
/* A connected descriptor, or -1 and why. Waits at most 2 s for each address of the name. */
int fby_net_connect(const fby_net_address_t *address, char why[FBY_NET_WHY_BYTES]);
/* HTTP GET: the status, with the body (cut to fit, NUL-terminated) in `body`; or -1 and why. Waits at most 4 s. */
int fby_net_get(const fby_net_address_t *address, const char *path, char *body, size_t body_bytes,
                char why[FBY_NET_WHY_BYTES]);

#endif
