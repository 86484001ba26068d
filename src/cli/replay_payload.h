/*
 * replay_payload.h - made-up bytes for blocks, so that every byte that comes back can be checked without keeping a copy.
 *
 * A payload follows from the block's chain hash and group alone; a token follows from a trace id and a position alone.
 */
#ifndef FBY_CLI_REPLAY_PAYLOAD_H
#define FBY_CLI_REPLAY_PAYLOAD_H

#include "base/base.h"

void fby_payload_fill(void *out, size_t bytes, const fby_hash_t *hash, uint32_t group);
/* What a caller does with a hold: copies the payload into `copy` and checks the copy. */
bool fby_payload_copy(void *copy, const void *payload, size_t bytes, const fby_hash_t *hash, uint32_t group);

/* The first `tokens` tokens of a request whose blocks of 512 tokens have these ids. Same id, same 512 tokens; two ids
   differ in every token, so that they differ in every whole block of any smaller size too. */
void fby_payload_tokens(const uint32_t *ids, uint64_t tokens, uint32_t *out);

#endif
