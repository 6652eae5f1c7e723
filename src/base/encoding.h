// How floats travel between clusters in fewer bits: in blocks, each of a scale and a code for every
// element. Device kernels are twins of this code: they give the same bits.
//
// A block holds its scale (a float), then its codes: int4 two to a byte, the first in the lower
// half. Only the last block of an array may have fewer elements. With `a` the largest magnitude in
// the block and `m` the format's largest code (127, 7, 448, 57344):
//
//   scale = a * (1 / m),  code = x * (1 / scale), rounded to nearest even,  decoded: code * scale
//
// each in fp32 with one rounding. A stochastic code is of x * (1 / scale) + d times the distance
// between neighbouring codes there, no larger than m, where d in [-1/2, 1/2) is a hash of the salt
// and the element's number: the same inputs always give the same codes.
//
// A block in which an element is no finite number decodes to NaNs, one whose scale is below 2^-126
// to zeros. Before it is rounded to the element's type, |decoded - x| is at most scale / 2 of int8
// and int4, the larger of |x| / 16 and scale / 1024 of e4m3, and of |x| / 8 and scale / 131072 of
// e5m2, times 1 + 2^-20; of stochastic codes twice that. (Of x within a millionth of the largest
// float it may be an infinity.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/reduce.h"
#include "base/status.h"
#include "base/types.h"

namespace hetccl {

/// Types of which `Encoding` is possible: float32, float16, bfloat16.
[[nodiscard]] bool has_encoding(DataType type);

/// "int8"; "" of none.
[[nodiscard]] std::string_view name_of(Format format);
/// "int8", "int4:128", "int4:stochastic", "int4:128:stochastic".
[[nodiscard]] std::string name_of(const Encoding& encoding);
/// InvalidArgument says what is possible. "" is none.
Result<Encoding> parse_encoding(std::string_view text);

/// The salt of the stochastic codes that `rank` makes in one call. It differs by rank and by call.
[[nodiscard]] uint32_t salt_of(uint64_t seed, uint64_t sequence, int rank);

/// The bytes of an array of so many elements, the first of which begins a block.
[[nodiscard]] size_t encoded_bytes(const Encoding& encoding, uint64_t elements);

/// Of source `which` of a reduction; of its result, Reduction::kMaxSources.
[[nodiscard]] size_t bytes_of_operand(const Reduction& reduction, int which);

/// Computes elements [begin, begin + count) of a Reduction of which some operands are encoded: the
/// sum or average of one to Reduction::kMaxSources sources, in fp32 and from left to right, rounded
/// once. `begin` is where a block begins, and so is the end, but for the whole's. Any processor
/// gives the same bits, whatever the thread's floating-point mode.
///
/// The `residual` of an encoded result, an array of the type that overlaps no operand, is added to
/// the sum, after the division. It then holds what the codes lack: that sum less what they decode
/// to, rounded once; or zeros of a block whose largest magnitude is no number, or 2^15 of float16
/// or 2^127 of others or more, where what is decoded, or the residual, may be beyond the type.
void reduce_encoded(const Reduction& reduction, size_t begin, size_t count);

}  // namespace hetccl
