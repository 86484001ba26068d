/* listen.h - the value of metrics.listen: where a page is served, if at all. */
#ifndef FBY_RUNTIME_LISTEN_H
#define FBY_RUNTIME_LISTEN_H

#include <sys/socket.h>

#include "base/base.h"

#define FBY_LISTEN_ACCEPTED                                                                                            \
    "off, or HOST:PORT with a numeric HOST ([IPv6] in brackets), localhost, or none for 127.0.0.1, and PORT 0 to "     \
    "65535"

typedef struct fby_listen {
    bool on;
    struct sockaddr_storage address; /* port 0: the kernel's choice */
    socklen_t length;
} fby_listen_t;

/* No name is resolved. False: it is none of the accepted forms. */
bool fby_listen_parse(const char *text, fby_listen_t *out);
/* "127.0.0.1:9400", "[::1]:9400". */
const char *fby_listen_text(const struct sockaddr_storage *address, char *out, size_t capacity);

#endif
