/* doctor_server.c - the socket of server.listen: its place, who may use it, and the limits that a server meets. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/doctor.h"
#include "forebay/server.h"
#include "runtime/config.h"
#include "runtime/settings.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010 /* Linux 5.1 */
#endif

#define ANSWER_LIMIT_S 2.0

/* Of a connection: its socket and its process. Of the server itself, and of what a scheduler waits on: some. */
enum { FILES_PER_CLIENT = 2, FILES_BESIDE = 128, MESSAGE_BYTES = 65536 };

static const char *listen_path(const fby_doctor_t *doctor)
{
    return fby_config_text(doctor->config, FBY_KEY_SERVER_LISTEN, NULL);
}

bool fby_applies_server(const fby_doctor_t *doctor)
{
    return doctor->config_error == NULL && strcmp(listen_path(doctor), "off") != 0;
}

bool fby_applies_pidfd(const fby_doctor_t *doctor)
{
    return fby_applies_agents(doctor) || fby_applies_server(doctor);
}

/* ---- The socket's place ------------------------------------------------------------------------------------------ */

static void report_directory(fby_doctor_t *doctor, const char *directory)
{
    struct stat about;
    if (stat(directory, &about) != 0) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, "make it, or let systemd do so (RuntimeDirectory=)", "%s: %s",
                          directory, strerror(errno));
    } else if (!S_ISDIR(about.st_mode)) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, "another server.listen", "%s is no directory", directory);
    } else if (faccessat(AT_FDCWD, directory, W_OK | X_OK, AT_EACCESS) != 0) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, "a directory that belongs to the server's user",
                          "%s cannot be written by this user", directory);
    } else if ((about.st_mode & S_IWOTH) != 0) {
        bool is_sticky = (about.st_mode & S_ISVTX) != 0;
        fby_doctor_report(doctor, is_sticky ? FBY_VERDICT_WARN : FBY_VERDICT_FAIL,
                          "a directory that only the server's user can write",
                          is_sticky ? "every user can put a socket of that name into %s while no server runs"
                                    : "every user can replace the socket in %s",
                          directory);
    } else {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "%s can be written", directory);
    }
}

void fby_check_server_directory(fby_doctor_t *doctor)
{
    char *copy = strdup(listen_path(doctor));
    if (copy == NULL) {
        doctor->failed = true;
        return;
    }
    report_directory(doctor, dirname(copy));
    free(copy);
}

/* ---- Who is there ------------------------------------------------------------------------------------------------ */

static void report_server(fby_doctor_t *doctor, fby_cache_t *cache)
{
    fby_server_info_t info = {.size = sizeof(info), .clients = 1};
    int status = fby_server_info(cache, &info, NULL, 0, NULL);
    if (status != 0) {
        fby_doctor_report(doctor, FBY_VERDICT_WARN, "forebay stat shows more", "a server is there: %s",
                          *fby_last_error() != '\0' ? fby_last_error() : fby_strerror(status));
    } else if (strncmp(info.version, fby_version(), sizeof(info.version)) != 0) {
        fby_doctor_report(doctor, FBY_VERDICT_WARN, "restart the server, or use the command that it came with",
                          "process %" PRId32 " of version %.*s answers; this is %s", info.pid,
                          (int)sizeof(info.version), info.version, fby_version());
    } else {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "process %" PRId32 " of version %s answers; clients: %" PRIu32,
                          info.pid, fby_version(), info.clients - 1); /* less this one */
    }
}

static void report_refused(fby_doctor_t *doctor, const char *path, int status)
{
    const char *detail = *fby_last_error() != '\0' ? fby_last_error() : fby_strerror(status);
    if (status == -ENOENT) {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "%s is free", path);
    } else if (status == -ECONNREFUSED) {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "%s was left behind: the next server replaces it", path);
    } else if (status == FBY_E_FORMAT) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, "update what is older, or another server.listen", "%s", detail);
    } else if (status == -ETIMEDOUT) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, "look at that process: it is stopped, or it hangs", "%s", detail);
    } else {
        fby_doctor_report(doctor, FBY_VERDICT_WARN, "forebay doctor as a user who may connect", "%s", detail);
    }
}

void fby_check_server_socket(fby_doctor_t *doctor)
{
    fby_connect_options_t options = FBY_CONNECT_OPTIONS_INIT;
    const char *path = listen_path(doctor);
    struct stat about;
    fby_cache_t *cache;
    if (lstat(path, &about) == 0 && !S_ISSOCK(about.st_mode)) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, "move it away, or another server.listen",
                          "%s is no socket, and is not replaced", path);
        return;
    }
    options.call_timeout_s = ANSWER_LIMIT_S;
    options.name = "forebay doctor";
    int status = fby_connect(path, &options, &cache);
    if (status != 0) {
        report_refused(doctor, path, status);
        return;
    }
    report_server(doctor, cache);
    fby_cache_close(cache, 0, NULL);
}

/* ---- Who may use it ---------------------------------------------------------------------------------------------- */

static bool names_others(const char *users)
{
    uint32_t uid[FBY_MOST_UIDS], count = 0;
    bool found = strcmp(users, "any") == 0;
    if (!found && fby_uids_parse(users, uid, FBY_MOST_UIDS, &count)) {
        for (uint32_t i = 0; i < count; i++) {
            found = found || (uid[i] != geteuid() && uid[i] != 0);
        }
    }
    return found;
}

void fby_check_server_access(fby_doctor_t *doctor)
{
    const char *users = fby_config_text(doctor->config, FBY_KEY_SERVER_ALLOW_UIDS, NULL);
    const char *text = fby_config_text(doctor->config, FBY_KEY_SERVER_MODE, NULL);
    unsigned long mode = strtoul(text, NULL, 8);
    bool others = names_others(users);
    if ((mode & S_IWUSR) == 0) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, "server.mode: 0600, 0660 or 0666",
                          "mode %s lets not even the server's own user connect", text);
    } else if (others && (mode & (S_IWGRP | S_IWOTH)) == 0) {
        fby_doctor_report(doctor, FBY_VERDICT_WARN, "server.mode: 0660 and a common group, or server.allow_uids: own",
                          "server.allow_uids names others, whom mode %s keeps out", text);
    } else if (strcmp(users, "any") == 0 && (mode & S_IWOTH) != 0) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, "name the users in server.allow_uids, or server.mode: 0660",
                          "every user of this machine may connect, and then read and write the whole pool");
    } else if (!others && (mode & (S_IWGRP | S_IWOTH)) != 0) {
        fby_doctor_report(doctor, FBY_VERDICT_WARN, "name them in server.allow_uids, or server.mode: 0600",
                          "mode %s lets others reach the socket, but server.allow_uids refuses them", text);
    } else {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "mode %s, users: %s", text, users);
    }
}

/* ---- Limits ------------------------------------------------------------------------------------------------------ */

/* The hard limit: `forebay serve` raises the soft one to it. */
void fby_check_server_files(fby_doctor_t *doctor)
{
    uint64_t clients = fby_doctor_number(doctor, FBY_KEY_SERVER_MAX_CLIENTS);
    uint64_t wanted = clients * FILES_PER_CLIENT + FILES_BESIDE;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        fby_doctor_report(doctor, FBY_VERDICT_WARN, NULL, "the limit cannot be read: %s", strerror(errno));
    } else if (limit.rlim_max < wanted) {
        fby_doctor_report(doctor, FBY_VERDICT_WARN, "raise it (ulimit -n, LimitNOFILE=), or server.max_clients smaller",
                          "%" PRIu64 " descriptors; %" PRIu64 " clients may need %" PRIu64, (uint64_t)limit.rlim_max,
                          clients, wanted);
    } else {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "%" PRIu64 " descriptors; %" PRIu64 " clients need %" PRIu64,
                          (uint64_t)limit.rlim_max, clients, wanted);
    }
}

/* The longest message as it is sent: the limit is what the kernel accounts, not what is in it. */
void fby_check_server_messages(fby_doctor_t *doctor)
{
    static const char message[MESSAGE_BYTES];
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, "a kernel and a sandbox with Unix sockets", "no socket: %s",
                          strerror(errno));
        return;
    }
    if (send(pair[0], message, sizeof(message), MSG_NOSIGNAL) == (ssize_t)sizeof(message)) {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "64 KiB go through a socket");
    } else {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, "raise net.core.wmem_default to 212992 or more",
                          "64 KiB do not go through a socket: %s", strerror(errno));
    }
    close(pair[0]);
    close(pair[1]);
}

void fby_check_server_memory(fby_doctor_t *doctor)
{
    int fd = memfd_create("forebay-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
        fby_doctor_report(doctor, FBY_VERDICT_FAIL, "a kernel and a sandbox with memfd_create and its seals",
                          "refused: %s; pool and snapshots cannot be lent", strerror(errno));
    } else if (fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) != 0) {
        fby_doctor_report(doctor, FBY_VERDICT_WARN, "Linux 5.1 or newer",
                          "no F_SEAL_FUTURE_WRITE: clients could write to snapshots of sessions");
    } else {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "memfd with every seal");
    }
    if (fd >= 0) {
        close(fd);
    }
}
