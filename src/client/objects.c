/* objects.c - what this process holds over which connection, and who reads a connection without a lock. */
#include <errno.h>
#include <stdlib.h>

#include "client/client.h"

/* ---- A table that grows ----------------------------------------------------------------------------------------- */

enum { FIRST_ROOM = 64 };

static bool table_grow(fby_handles_t *table)
{
    fby_handles_t larger;
    uint32_t room = table->entry == NULL ? FIRST_ROOM : table->most * 2;
    if (fby_handles_init(&larger, room) != 0) {
        return false;
    }
    for (uint32_t i = 0; table->entry != NULL && i <= table->mask; i++) {
        if (table->entry[i].handle != 0) {
            (void)fby_handles_set(&larger, table->entry[i].handle, table->entry[i].value);
        }
    }
    fby_handles_free(table);
    *table = larger;
    return true;
}

bool fby_table_set(fby_handles_t *table, uint64_t key, uint64_t value)
{
    return (table->entry != NULL && fby_handles_set(table, key, value)) ||
           (table_grow(table) && fby_handles_set(table, key, value));
}

uint64_t fby_table_get(const fby_handles_t *table, uint64_t key)
{
    const uint64_t *value = table->entry != NULL ? fby_handles_find(table, key) : NULL;
    return value != NULL ? *value : 0;
}

/* ---- Links ------------------------------------------------------------------------------------------------------ */

/* Sequentially consistent against a change of `link`: who comes in later finds the new one. */
const fby_link_t *fby_client_read(fby_client_t *client)
{
    atomic_fetch_add(&client->readers, 1);
    return atomic_load(&client->link);
}

void fby_client_unread(fby_client_t *client)
{
    atomic_fetch_sub(&client->readers, 1);
}

fby_link_t *fby_link_ref(fby_link_t *link)
{
    atomic_fetch_add_explicit(&link->refs, 1, memory_order_relaxed);
    return link;
}

static void links_free(fby_link_t *list)
{
    while (list != NULL) {
        fby_link_t *next = list->next;
        fby_link_free(list);
        list = next;
    }
}

/* Nobody references a retired link, and it is not the client's: once nobody reads, nobody can. */
void fby_link_unref(fby_client_t *client, fby_link_t *link)
{
    if (link == NULL || atomic_fetch_sub_explicit(&link->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    pthread_mutex_lock(&client->objects_lock);
    link->next = client->retired;
    client->retired = link;
    fby_link_t *list = NULL;
    if (atomic_load(&client->readers) == 0) {
        list = client->retired;
        client->retired = NULL;
    }
    pthread_mutex_unlock(&client->objects_lock);
    links_free(list);
}

void fby_client_free_retired(fby_client_t *client)
{
    links_free(client->retired);
    client->retired = NULL;
}

/* ---- Holds and puts --------------------------------------------------------------------------------------------- */

static fby_object_t *object_of(const fby_client_t *client, uint64_t handle)
{
    return (fby_object_t *)(uintptr_t)fby_table_get(&client->objects, handle);
}

static void object_free(fby_client_t *client, fby_object_t *object)
{
    if (object != NULL) {
        fby_put_record_free(object->record);
        fby_link_unref(client, object->link);
        free(object);
    }
}

int fby_client_keep(fby_client_t *client, uint64_t handle, fby_put_record_t *record)
{
    fby_object_t *object = calloc(1, sizeof(*object)), *replaced = NULL;
    if (object == NULL) {
        return -ENOMEM;
    }
    object->link = fby_link_ref(atomic_load(&client->link));
    object->readers = 1;
    object->record = record;
    pthread_mutex_lock(&client->objects_lock);
    replaced = object_of(client, handle);
    bool kept = fby_table_set(&client->objects, handle, (uint64_t)(uintptr_t)object);
    pthread_mutex_unlock(&client->objects_lock);
    if (!kept) {
        fby_link_unref(client, object->link);
        free(object);
        return -ENOMEM;
    }
    object_free(client, replaced);
    return 0;
}

int fby_client_keep_hold(fby_client_t *client, fby_hold_t hold)
{
    fby_answer_view_t answer;
    const fby_msg_object_t about = {.handle = hold};
    int rc = hold != 0 ? fby_client_keep(client, hold, NULL) : 0;
    if (rc != 0) {
        (void)fby_client_ask(client, FBY_REQUEST_HOLD_RELEASE, &about, NULL, 0, &answer, NULL);
    }
    return rc;
}

void fby_client_forget(fby_client_t *client, uint64_t handle, bool all)
{
    pthread_mutex_lock(&client->objects_lock);
    fby_object_t *object = object_of(client, handle);
    if (object != NULL) {
        object->readers = all ? 0 : object->readers - 1;
        if (object->readers > 0) {
            object = NULL;
        } else {
            (void)fby_handles_remove(&client->objects, handle);
        }
    }
    pthread_mutex_unlock(&client->objects_lock);
    object_free(client, object);
}

fby_link_t *fby_client_link_of(fby_client_t *client, uint64_t handle)
{
    pthread_mutex_lock(&client->objects_lock);
    const fby_object_t *object = object_of(client, handle);
    fby_link_t *link = object != NULL ? fby_link_ref(object->link) : NULL;
    pthread_mutex_unlock(&client->objects_lock);
    return link;
}

void fby_client_add_readers(fby_client_t *client, uint64_t handle, uint32_t add)
{
    pthread_mutex_lock(&client->objects_lock);
    fby_object_t *object = object_of(client, handle);
    if (object != NULL) {
        object->readers += add;
    }
    pthread_mutex_unlock(&client->objects_lock);
}

bool fby_client_is_former(fby_client_t *client, uint64_t handle)
{
    pthread_mutex_lock(&client->objects_lock);
    const fby_object_t *object = object_of(client, handle);
    bool is_former = object != NULL && object->link != atomic_load(&client->link);
    pthread_mutex_unlock(&client->objects_lock);
    return is_former;
}

void fby_client_forget_all(fby_client_t *client)
{
    for (uint32_t i = 0; client->objects.entry != NULL && i <= client->objects.mask; i++) {
        object_free(client, (fby_object_t *)(uintptr_t)client->objects.entry[i].value);
    }
    fby_handles_free(&client->objects);
}
