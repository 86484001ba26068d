/*
 * glue.h - what the binding adds to forebay.h: work over whole buffers, which Python would do item by item. cffi lets go
 * of the interpreter's lock around each of these. Declarations only up to the mark: the binding reads them too.
 */
#ifndef FOREBAY_PYTHON_GLUE_H
#define FOREBAY_PYTHON_GLUE_H

#include <forebay/forebay.h>
#include <string.h>

/* Narrows to 32 bits. The index of the first token outside of 0 to 2^32-1, or -1. */
static int64_t fbypy_narrow(const int64_t *tokens, size_t n, uint32_t *out);
/* The index of the first negative token, or -1. */
static int64_t fbypy_negative(const int32_t *tokens, size_t n);
/* Copies n payloads of `bytes` one after the other; a place whose slot is NULL is left as it is. The number copied. */
static size_t fbypy_gather(char *target, const void **slots, size_t n, size_t bytes);
static size_t fbypy_scatter(void **slots, const char *source, size_t n, size_t bytes);

/* ---- Bodies (the binding's declarations end here) --------------------------------------------------------------- */

static int64_t fbypy_narrow(const int64_t *tokens, size_t n, uint32_t *out)
{
    for (size_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || tokens[i] > (int64_t)UINT32_MAX) {
            return (int64_t)i;
        }
        out[i] = (uint32_t)tokens[i];
    }
    return -1;
}

static int64_t fbypy_negative(const int32_t *tokens, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (tokens[i] < 0) {
            return (int64_t)i;
        }
    }
    return -1;
}

static size_t fbypy_gather(char *target, const void **slots, size_t n, size_t bytes)
{
    size_t copied = 0;
    for (size_t i = 0; i < n; i++) {
        if (slots[i] != NULL) {
            memcpy(target + i * bytes, slots[i], bytes);
            copied++;
        }
    }
    return copied;
}

static size_t fbypy_scatter(void **slots, const char *source, size_t n, size_t bytes)
{
    size_t copied = 0;
    for (size_t i = 0; i < n; i++) {
        if (slots[i] != NULL) {
            memcpy(slots[i], source + i * bytes, bytes);
            copied++;
        }
    }
    return copied;
}

#endif
