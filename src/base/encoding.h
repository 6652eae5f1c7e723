// Encodes floats in fewer bits for the way between clusters: in blocks, each of a scale and a code
// for every element. Device kernels are twins of this code: they give the same bits.
//
// A block holds its scale (a float), then its codes: int4 two to a byte, the first in the lower
// half. Only the last block of an array may have fewer elements. With `a` the largest magnitude in
// the block and `m` the format's largest code (127, 7, 448, 57344):
//
//   scale = a * (1 / m),  code = x * (1 / scale), rounded to nearest even,  decoded: code * scale
//
// each in fp32 with one rounding. For a stochastic code, d times the distance between neighbouring
// codes is added to x * (1 / scale) before it is rounded, up to at most m. d in [-1/2, 1/2) is a
// hash of the salt and the element's number, so the same inputs always give the same codes.
//
// A block with an element that is not finite decodes to NaNs, one whose scale is below 2^-126 to
// zeros. Before the result is rounded to the element's type, |decoded - x| is at most (1 + 2^-20)
// times: scale / 2 for int8 and int4; the larger of |x| / 16 and scale / 1024 for e4m3; the larger
// of |x| / 8 and scale / 131072 for e5m2; twice that for stochastic codes. (If x is within a
// millionth of the largest float, the result may be an infinity.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/reduce.h"
#include "base/status.h"
#include "base/types.h"

namespace hetccl {

/// Returns whether elements can be encoded: float32, float16, bfloat16.
[[nodiscard]] bool has_encoding(DataType type);

/// Returns "int8"; "" for none.
[[nodiscard]] std::string_view name_of(Format format);
/// Returns "int8", "int4:128", "int4:stochastic", "int4:128:stochastic".
[[nodiscard]] std::string name_of(const Encoding& encoding);
/// Parses such a name; "" means none. InvalidArgument lists what is possible.
Result<Encoding> parse_encoding(std::string_view text);

/// Returns the salt of the stochastic codes that `rank` makes in one call. It differs by rank and
/// by call.
[[nodiscard]] uint32_t salt_of(uint64_t seed, uint64_t sequence, int rank);

/// Returns the bytes of an array of `elements` whose first element begins a block.
[[nodiscard]] size_t encoded_bytes(const Encoding& encoding, uint64_t elements);

/// Returns the bytes of source `which` of a reduction, or of its result for Reduction::kMaxSources.
[[nodiscard]] size_t bytes_of_operand(const Reduction& reduction, int which);

/// Computes elements [begin, begin + count) of a Reduction with encoded operands: the sum or
/// average of 1 to Reduction::kMaxSources sources, in fp32, from left to right, rounded once.
/// `begin` must be the start of a block; so must the end, unless it is the end of the arrays. Gives
/// the same bits on any processor, whatever the thread's floating-point mode.
///
/// The `residual` of an encoded result is an array of the element type that overlaps no operand. It
/// is added to the sum, after the division. Then it becomes what the codes lack: that sum minus the
/// decoded value, rounded once. It becomes zeros in a block whose largest magnitude is NaN, or at
/// least 2^15 (float16) or 2^127 (others), because the decoded value or the residual may overflow
/// the type there.
void reduce_encoded(const Reduction& reduction, size_t begin, size_t count);

}  // namespace hetccl
