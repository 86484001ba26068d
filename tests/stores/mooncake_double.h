/* mooncake_double.h - the directory behind the conformance double (mooncake_double.c). */
#ifndef FBY_TESTS_STORES_MOONCAKE_DOUBLE_H
#define FBY_TESTS_STORES_MOONCAKE_DOUBLE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CODE_INTERNAL = -1,
    CODE_PARAMETERS = -600,
    CODE_MISSING = -704,
    CODE_LEASE = -706,
    CODE_TRANSFER = -800,
    CODE_RPC = -900,
    MOST_KEYS = 1024,
    MOST_BUFFERS = 64,
};

typedef struct client {
    struct client *next; /* all that were ever made: a half-made one belongs to nobody */
    bool ready, broken;
    char directory[512];
    long lease_ms;
    pthread_mutex_t lock; /* guards the buffers */
    struct {
        uint8_t *base;
        size_t bytes;
    } buffers[MOST_BUFFERS];
} client_t;

/* A line for `calls`. */
void note(const client_t *client, const char *call, size_t n);
bool is_switched(const client_t *client, const char *name);
/* The number in a switch's file; 0 when there is none. */
int switch_number(const client_t *client, const char *name);
void make_objects(const client_t *client);

/* One object: bytes or 0, else a code. A put of a key that is there changes nothing. get without a buffer moves
   nothing. */
int put_object(const client_t *client, const char *key, const void *value, size_t bytes);
int64_t get_object(const client_t *client, const char *key, void *buffer, size_t capacity);
int64_t object_size(const client_t *client, const char *key);
int has_object(const client_t *client, const char *key);
int remove_object(const client_t *client, const char *key, bool force);

#endif
