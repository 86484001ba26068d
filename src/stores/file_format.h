/*
 * file_format.h - the two headers a file store writes besides objects; docs/object-format.md specifies every byte.
 *
 * Parsers take any bytes: they are what a damaged or hostile directory meets first.
 */
#ifndef FBY_STORES_FILE_FORMAT_H
#define FBY_STORES_FILE_FORMAT_H

#include "base/base.h"

#define FBY_FILE_VERSION 1u    /* of superblock and segment header */
#define FBY_HEADER_BYTES 4096u /* of each */
#define FBY_DIRECT_ALIGN 4096u /* offsets, lengths and memory of direct I/O */
#define FBY_BUFFERED_ALIGN 64u /* of slots where direct I/O is not to be had */
#define FBY_SUPER_MODELS 160u  /* most models whose epoch one directory keeps */

typedef struct fby_super {
    uint32_t models;
    struct {
        uint8_t name[16]; /* XXH3-128 of the option model= */
        uint64_t epoch;   /* highest seen */
    } model[FBY_SUPER_MODELS];
} fby_super_t;

typedef struct fby_segment_header {
    uint32_t object_bytes; /* payload and trailer */
    uint32_t stride;       /* distance of slots */
    uint32_t count;        /* slots */
} fby_segment_header_t;

typedef enum fby_format_fault { FBY_FORMAT_OK, FBY_FORMAT_DAMAGED, FBY_FORMAT_NEWER } fby_format_fault_t;

/* *version is set unless the magic is wrong. */
fby_format_fault_t fby_super_parse(const uint8_t bytes[FBY_HEADER_BYTES], fby_super_t *out, uint32_t *version);
void fby_super_write(const fby_super_t *super, uint8_t bytes[FBY_HEADER_BYTES]);
fby_format_fault_t fby_segment_header_parse(const uint8_t bytes[FBY_HEADER_BYTES], fby_segment_header_t *out,
                                            uint32_t *version);
void fby_segment_header_write(const fby_segment_header_t *header, uint8_t bytes[FBY_HEADER_BYTES]);
/* Header and slots; at most INT64_MAX for a header that parsed. */
uint64_t fby_segment_file_bytes(const fby_segment_header_t *header);

#endif
