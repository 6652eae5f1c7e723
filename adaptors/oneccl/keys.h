/* Integer keys for maxima and minima of floats.
 *
 * oneCCL's maxima and minima of floats lose a NaN. So the ranks reduce keys instead: integers in
 * the order of the floats. A NaN has the greatest key for a maximum and the least key for a
 * minimum, so it wins. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "hetccl/adaptor.h"

typedef struct {
  size_t bytes;     /* of an element; 0: elements are reduced without keys */
  size_t key_bytes; /* oneCCL lacks 16-bit integers */
  int64_t magnitude, infinity;
} KeyForm;

static KeyForm key_form(hetcclDataType_t type, hetcclRedOp_t op) {
  if (op == hetcclMax || op == hetcclMin) {
    if (type == hetcclFloat16) return (KeyForm){2, 4, INT16_MAX, 0x7c00};
    if (type == hetcclBfloat16) return (KeyForm){2, 4, INT16_MAX, 0x7f80};
    if (type == hetcclFloat32) return (KeyForm){4, 4, INT32_MAX, 0x7f800000};
    if (type == hetcclFloat64) return (KeyForm){8, 8, INT64_MAX, 0x7ff0000000000000};
  }
  return (KeyForm){0};
}

static int64_t load_integer(const char* at, size_t bytes) {
  int16_t two;
  int32_t four;
  int64_t eight;
  if (bytes == 2) return memcpy(&two, at, 2), two;
  if (bytes == 4) return memcpy(&four, at, 4), four;
  return memcpy(&eight, at, 8), eight;
}

/* Little endian, as on all processors that oneCCL supports. */
static void store_integer(char* at, size_t bytes, int64_t value) {
  memcpy(at, &value, bytes);
}

static int64_t swap_order(int64_t bits_or_key, int64_t magnitude) {
  return bits_or_key < 0 ? bits_or_key ^ magnitude : bits_or_key;
}

static void make_keys(char* keys, const char* floats, size_t n, KeyForm form, hetcclRedOp_t op) {
  const int64_t nan = op == hetcclMax ? form.magnitude : -form.magnitude - 1;
  for (size_t i = 0; i < n; ++i) {
    const int64_t bits = load_integer(floats + i * form.bytes, form.bytes);
    const int is_nan = (bits & form.magnitude) > form.infinity;
    store_integer(keys + i * form.key_bytes, form.key_bytes,
                  is_nan ? nan : swap_order(bits, form.magnitude));
  }
}

static void read_keys(char* floats, const char* keys, size_t n, KeyForm form) {
  for (size_t i = 0; i < n; ++i) {
    const int64_t key = load_integer(keys + i * form.key_bytes, form.key_bytes);
    store_integer(floats + i * form.bytes, form.bytes, swap_order(key, form.magnitude));
  }
}
