/*
 * doctor_ports.c - ports of Mooncake's processes that other machines can reach: from /proc, without asking anybody.
 *
 * Every Mooncake client and storage node opens ports on all interfaces, whatever it is told. The listening sockets of
 * this network namespace are matched by inode with the descriptors of the processes that may be looked at.
 */
#include <dirent.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/doctor.h"

enum { MOST_LISTENERS = 1024, LISTEN_STATE = 0x0A };

typedef struct listener {
    uint64_t inode;
    unsigned port;
    bool is_v6, every_interface;
} listener_t;

typedef struct listeners {
    listener_t item[MOST_LISTENERS];
    size_t count;
} listeners_t;

/* ---- Sockets that listen beyond loopback ------------------------------------------------------------------------- */

/* The address as /proc prints it: words of the machine's byte order in hex. */
static bool beyond_loopback(const char *hex, bool is_v6, bool *every_interface)
{
    *every_interface = strspn(hex, "0") == (is_v6 ? 32U : 8U);
    if (!is_v6) {
        return strcmp(hex + 6, "7F") != 0; /* little-endian: the first byte of the address comes last */
    }
    bool loopback = strcmp(hex, "00000000000000000000000001000000") == 0;
    bool mapped = strncmp(hex, "0000000000000000FFFF0000", 24) == 0 && strcmp(hex + 30, "7F") == 0;
    return !loopback && !mapped;
}

static void read_listeners(const char *path, bool is_v6, listeners_t *out)
{
    char line[512], address[33];
    FILE *file = fopen(path, "re");
    while (file != NULL && out->count < MOST_LISTENERS && fgets(line, sizeof(line), file) != NULL) {
        listener_t found = {.is_v6 = is_v6};
        unsigned state;
        if (sscanf(line, " %*d: %32[0-9A-F]:%x %*[0-9A-F]:%*x %x %*s %*s %*s %*s %*s %" SCNu64, address, &found.port,
                   &state, &found.inode) == 4 &&
            state == LISTEN_STATE && beyond_loopback(address, is_v6, &found.every_interface)) {
            out->item[out->count++] = found;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
}

/* ---- Processes --------------------------------------------------------------------------------------------------- */

/* Text of a file below /proc/PID, cut to fit; "" when it cannot be read. */
static size_t read_process_file(const char *pid, const char *name, char *out, size_t capacity)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%.20s/%s", pid, name);
    FILE *file = fopen(path, "re");
    size_t length = file != NULL ? fread(out, 1, capacity - 1, file) : 0;
    if (file != NULL) {
        fclose(file);
    }
    out[length] = '\0';
    return length;
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* By its name, its program, or the script that an interpreter runs: our agent is one of those. */
static bool is_mooncake(const char *pid, char name[256])
{
    char link[64], text[4096];
    read_process_file(pid, "comm", name, 256);
    name[strcspn(name, "\n")] = '\0';
    if (strstr(name, "mooncake") != NULL) {
        return true;
    }
    snprintf(link, sizeof(link), "/proc/%.20s/exe", pid);
    ssize_t length = readlink(link, text, sizeof(text) - 1);
    text[length > 0 ? length : 0] = '\0';
    if (strstr(last_part(text), "mooncake") != NULL) {
        return true;
    }
    size_t bytes = read_process_file(pid, "cmdline", text, sizeof(text)), first = strlen(text) + 1;
    const char *script = first < bytes ? text + first : "";
    if (*script != '-' && strstr(last_part(script), "mooncake") != NULL) {
        snprintf(name, 256, "%.255s", last_part(script));
        return true;
    }
    return false;
}

static const listener_t *find_listener(const listeners_t *listeners, const char *link)
{
    uint64_t inode;
    for (size_t i = 0; sscanf(link, "socket:[%" SCNu64 "]", &inode) == 1 && i < listeners->count; i++) {
        if (listeners->item[i].inode == inode) {
            return &listeners->item[i];
        }
    }
    return NULL;
}

static size_t report_process(fby_doctor_t *doctor, const char *pid, const char *name, const listeners_t *listeners)
{
    char path[64], link[64];
    size_t found = 0;
    snprintf(path, sizeof(path), "/proc/%.20s/fd", pid);
    DIR *directory = opendir(path);
    for (const struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        ssize_t length = readlinkat(dirfd(directory), entry->d_name, link, sizeof(link) - 1);
        link[length > 0 ? length : 0] = '\0';
        const listener_t *listener = find_listener(listeners, link);
        if (listener != NULL) {
            fby_doctor_report(
                doctor, FBY_VERDICT_WARN,
                "run it in a network namespace of its own (as scripts/with-store does), or close the port "
                "to others with a firewall",
                "port %u of %.64s, process %.20s, on %s%s", listener->port, name, pid,
                listener->every_interface ? "every interface" : "an address beyond loopback",
                listener->is_v6 ? " (IPv6)" : "");
            found++;
        }
    }
    if (directory != NULL) {
        closedir(directory);
    }
    return found;
}

/* In a namespace that has loopback only, a port on every interface is reached by nobody else. */
static bool has_network(void)
{
    struct ifaddrs *list = NULL;
    bool found = false;
    if (getifaddrs(&list) != 0) {
        return true;
    }
    for (const struct ifaddrs *at = list; at != NULL; at = at->ifa_next) {
        found = found || (at->ifa_addr != NULL && (at->ifa_flags & IFF_UP) != 0 && (at->ifa_flags & IFF_LOOPBACK) == 0);
    }
    freeifaddrs(list);
    return found;
}

void fby_check_mooncake_ports(fby_doctor_t *doctor)
{
    static listeners_t listeners;
    char name[256];
    size_t found = 0;
    if (!has_network()) {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "this network namespace has loopback only");
        return;
    }
    listeners.count = 0;
    read_listeners("/proc/net/tcp", false, &listeners);
    read_listeners("/proc/net/tcp6", true, &listeners);
    DIR *directory = opendir("/proc");
    for (const struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        bool is_process = strspn(entry->d_name, "0123456789") == strlen(entry->d_name);
        if (is_process && is_mooncake(entry->d_name, name)) {
            found += report_process(doctor, entry->d_name, name, &listeners);
        }
    }
    if (directory != NULL) {
        closedir(directory);
    }
    if (found == 0) {
        fby_doctor_report(doctor, FBY_VERDICT_OK, NULL, "no process of Mooncake here listens beyond loopback now");
    }
}
