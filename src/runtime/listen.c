#include "runtime/listen.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool port_parse(const char *text, in_port_t *out)
{
    size_t length = strlen(text);
    if (length == 0 || length > 5 || strspn(text, "0123456789") != length) {
        return false;
    }
    unsigned long port = strtoul(text, NULL, 10);
    *out = htons((uint16_t)port);
    return port <= UINT16_MAX;
}

static bool host_parse(const char *host, in_port_t port, fby_listen_t *out)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = port};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = port};
    size_t length = strlen(host);
    if (host[0] == '[' && host[length - 1] == ']') {
        char inner[INET6_ADDRSTRLEN];
        snprintf(inner, sizeof(inner), "%.*s", (int)(length - 2), host + 1);
        memcpy(&out->address, &v6, sizeof(v6));
        out->length = sizeof(v6);
        return length - 2 < sizeof(inner) &&
               inet_pton(AF_INET6, inner, &((struct sockaddr_in6 *)&out->address)->sin6_addr) == 1;
    }
    const char *numeric = length == 0 || strcmp(host, "localhost") == 0 ? "127.0.0.1" : host;
    memcpy(&out->address, &v4, sizeof(v4));
    out->length = sizeof(v4);
    return inet_pton(AF_INET, numeric, &((struct sockaddr_in *)&out->address)->sin_addr) == 1;
}

bool fby_listen_parse(const char *text, fby_listen_t *out)
{
    char host[64];
    in_port_t port;
    *out = (fby_listen_t){.on = strcmp(text, "off") != 0};
    if (!out->on) {
        return true;
    }
    const char *colon = strrchr(text, ':');
    if (colon == NULL || (size_t)(colon - text) >= sizeof(host) || !port_parse(colon + 1, &port)) {
        return false;
    }
    snprintf(host, sizeof(host), "%.*s", (int)(colon - text), text);
    return host_parse(host, port, out);
}

const char *fby_listen_text(const struct sockaddr_storage *address, char *out, size_t capacity)
{
    char host[INET6_ADDRSTRLEN] = "";
    if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;
        inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
        snprintf(out, capacity, "[%s]:%u", host, ntohs(v6->sin6_port));
        return out;
    }
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
    inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
    snprintf(out, capacity, "%s:%u", host, ntohs(v4->sin_port));
    return out;
}
