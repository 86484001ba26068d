/* file_segment.h - what reading segments back shares with making them. */
#ifndef FBY_STORES_FILE_SEGMENT_H
#define FBY_STORES_FILE_SEGMENT_H

#include <sys/types.h>

#include "stores/file.h"

/* "segment-0000002a.fby" */
void fby_segment_name(uint32_t number, char name[32]);
/* A locked descriptor, or -errno; -EBUSY: another holder did not let go for 5 s. */
int fby_segment_open(const fby_file_t *file, const fby_file_dir_t *dir, const char *name, bool direct);
/* The segment in memory, its slots on no list. NULL: out of memory. */
fby_segment_t *fby_segment_make(fby_shelf_t *shelf, const fby_segment_header_t *header, uint32_t number);
/* Puts its FREE slots on the shelf's list, to be taken in order of offset. */
void fby_segment_list_free(fby_segment_t *segment);
/* Adds it to the directory, in order of number. */
void fby_segment_link(fby_file_dir_t *dir, fby_segment_t *segment);
/* Reads at an offset until `bytes` are there or the file ends. Bytes, or -errno. */
ssize_t fby_segment_read(int fd, void *memory, size_t bytes, uint64_t offset);

#endif
