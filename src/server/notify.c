#include "server/notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int fby_notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (path == NULL || (*path != '/' && *path != '@') || strlen(path) >= sizeof(address.sun_path)) {
        return 0;
    }
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return 0;
    }
    size_t length = strlen(path);
    memcpy(address.sun_path, path, length);
    if (*path == '@') { /* an abstract name: it begins with a NUL, and has none at its end */
        address.sun_path[0] = '\0';
    }
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + (*path == '/'));
    ssize_t sent =
        sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT, (const struct sockaddr *)&address, bytes);
    close(fd);
    return sent > 0;
}
