/* Keyed BLAKE2s (RFC 7693): a code over bytes that can be made only with the key. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { kProofBytes = 32, kProofKeyBytes = 32, kProofBlock = 64 };

typedef struct {
  uint32_t state[8];
  uint64_t bytes; /* consumed, without those in `block` */
  size_t held;
  uint8_t block[kProofBlock];
} Proof;

static const uint32_t kProofStart[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

static inline uint32_t rotate_right(uint32_t word, unsigned by) {
  return word >> by | word << (32 - by);
}

static inline void mix_words(uint32_t* v, int a, int b, int c, int d, uint32_t x, uint32_t y) {
  v[a] += v[b] + x;
  v[d] = rotate_right(v[d] ^ v[a], 16);
  v[c] += v[d];
  v[b] = rotate_right(v[b] ^ v[c], 12);
  v[a] += v[b] + y;
  v[d] = rotate_right(v[d] ^ v[a], 8);
  v[c] += v[d];
  v[b] = rotate_right(v[b] ^ v[c], 7);
}

static inline void take_block(Proof* proof, int is_last) {
  static const uint8_t kOrders[10][16] = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                                          {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
                                          {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
                                          {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
                                          {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
                                          {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
                                          {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
                                          {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
                                          {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
                                          {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};
  uint32_t v[16], m[16];
  memcpy(m, proof->block, sizeof m); /* machines are little-endian (ucx.h) */
  memcpy(v, proof->state, sizeof proof->state);
  memcpy(v + 8, kProofStart, sizeof kProofStart);
  v[12] ^= (uint32_t)proof->bytes;
  v[13] ^= (uint32_t)(proof->bytes >> 32);
  if (is_last) v[14] = ~v[14];
  for (int round = 0; round < 10; ++round) {
    const uint8_t* order = kOrders[round];
    for (int i = 0; i < 4; ++i)
      mix_words(v, i, 4 + i, 8 + i, 12 + i, m[order[2 * i]], m[order[2 * i + 1]]);
    for (int i = 0; i < 4; ++i)
      mix_words(v, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, m[order[8 + 2 * i]],
                m[order[9 + 2 * i]]);
  }
  for (int i = 0; i < 8; ++i) proof->state[i] ^= v[i] ^ v[8 + i];
}

static inline void add_to_proof(Proof* proof, const void* data, size_t bytes) {
  const uint8_t* next = data;
  while (bytes > 0) {
    if (proof->held == kProofBlock) { /* more follows, so this block is not the last */
      proof->bytes += kProofBlock;
      take_block(proof, 0);
      proof->held = 0;
    }
    const size_t room = kProofBlock - proof->held, n = bytes < room ? bytes : room;
    memcpy(proof->block + proof->held, next, n);
    proof->held += n;
    next += n;
    bytes -= n;
  }
}

static inline void begin_proof(Proof* proof, const uint8_t* key) {
  uint8_t first[kProofBlock] = {0};
  memset(proof, 0, sizeof *proof);
  memcpy(proof->state, kProofStart, sizeof kProofStart);
  proof->state[0] ^= 0x01010000 ^ kProofKeyBytes << 8 ^ kProofBytes;
  memcpy(first, key, kProofKeyBytes);
  add_to_proof(proof, first, sizeof first);
}

static inline void end_proof(Proof* proof, uint8_t* code) {
  memset(proof->block + proof->held, 0, kProofBlock - proof->held);
  proof->bytes += proof->held;
  take_block(proof, 1);
  memcpy(code, proof->state, kProofBytes);
}

/* Compares in constant time. */
static inline int is_same_proof(const uint8_t* a, const uint8_t* b) {
  unsigned difference = 0;
  for (int i = 0; i < kProofBytes; ++i) difference |= (unsigned)(a[i] ^ b[i]);
  return difference == 0;
}
