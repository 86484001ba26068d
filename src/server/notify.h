/* notify.h - tells systemd how it stands: one datagram to NOTIFY_SOCKET, nothing where that is not set. */
#ifndef FBY_SERVER_NOTIFY_H
#define FBY_SERVER_NOTIFY_H

/* "READY=1", "STOPPING=1". Whether it was told. Never waits. */
int fby_notify(const char *state);

#endif
