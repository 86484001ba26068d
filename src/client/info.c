/* info.c - who is connected to the server. */
#include <errno.h>

#include "client/client.h"

int fby_client_server_info(fby_cache_t *cache, fby_server_info_t *info, fby_server_client_t *clients, size_t capacity,
                           size_t *count)
{
    fby_client_t *client;
    fby_answer_view_t answer;
    int rc = fby_client_begin_any(cache, &client);
    if (rc != 0) {
        return rc;
    }
    rc = clients == NULL && capacity > 0 ? fby_call_null("clients") : fby_call_sized("info", info);
    if (rc != 0) {
        return fby_call_end(cache, rc);
    }
    pthread_mutex_lock(&client->lock);
    rc = fby_client_ask(client, FBY_REQUEST_INFO, NULL, NULL, 0, &answer, NULL);
    if (rc >= 0) {
        size_t n = FBY_MIN((size_t)answer.count, capacity);
        fby_call_output(info, answer.body, sizeof(*info));
        if (clients != NULL && n > 0) {
            memcpy(clients, answer.elements, n * sizeof(*clients));
        }
        if (count != NULL) {
            *count = n;
        }
        rc = 0;
    }
    pthread_mutex_unlock(&client->lock);
    return fby_call_end(cache, rc);
}
