// The value types that every seam uses: element types, reductions, collectives, call signatures.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hetccl {

/// Values equal NCCL's and RCCL's, so adaptors pass them on unchanged.
enum class DataType : uint8_t {
  Int8 = 0,
  Uint8 = 1,
  Int32 = 2,
  Uint32 = 3,
  Int64 = 4,
  Uint64 = 5,
  Float16 = 6,
  Float32 = 7,
  Float64 = 8,
  BFloat16 = 9,
  Float8E4m3 = 10,  ///< the "fn" form: no infinities, the largest is 448
  Float8E5m2 = 11,  ///< the largest finite is 57344
  Int16 = 64,       ///< NCCL has no 16-bit integers
  Uint16 = 65,
};

/// Values 0 to 4 equal NCCL's and RCCL's; these have no fixed value for PreMulSum. Avg divides the
/// sum of all ranks by their number, once; integers truncate toward zero. PreMulSum multiplies each
/// rank's elements by that rank's own factor before the sum. Band, Bor and Bxor combine the bits of
/// integers.
enum class RedOp : uint8_t {
  Sum = 0,
  Prod = 1,
  Max = 2,
  Min = 3,
  Avg = 4,
  PreMulSum = 5,
  Band = 64,  ///< NCCL has no bitwise operators
  Bor = 65,
  Bxor = 66,
};

/// The factor of a PreMulSum: one element of the call's type, stored in the first bytes.
struct Factor {
  alignas(8) uint8_t element[8] = {};
};

/// A rank's reduction. Ranks agree on `op`; each has its own factor.
struct Reducer {
  RedOp op{};
  Factor factor{};  ///< for PreMulSum
};

enum class Collective : uint8_t {
  AllReduce,
  ReduceScatter,
  AllGather,
  Broadcast,
  Reduce,
  Barrier,
  Gather,
  Scatter,
  AllToAll,
  PointToPoint,  ///< a message between two ranks, for headers and texts; has no plan
};

/// Returns the bytes of one element.
[[nodiscard]] size_t size_of(DataType type);
/// Return "float32", "sum", "all_reduce", "float8_e4m3": the names in error texts, JSON and the
/// command line.
[[nodiscard]] std::string_view name_of(DataType type);
[[nodiscard]] std::string_view name_of(RedOp op);
[[nodiscard]] std::string_view name_of(Collective collective);
/// Returns the collective of that name.
[[nodiscard]] std::optional<Collective> parse_collective(std::string_view name);
/// Returns "all_reduce, reduce_scatter, …", for error texts.
[[nodiscard]] std::string collective_names();
/// Returns whether it combines elements of several ranks.
[[nodiscard]] bool reduces(Collective collective);
/// Returns whether one rank differs from the others.
[[nodiscard]] bool is_rooted(Collective collective);
[[nodiscard]] bool is_valid(DataType type);
[[nodiscard]] bool is_valid(RedOp op);
[[nodiscard]] bool is_integer(DataType type);
[[nodiscard]] bool is_bitwise(RedOp op);
/// Returns whether `op` can combine elements of `type`. Both must be valid.
[[nodiscard]] bool applies(RedOp op, DataType type);

/// The encoding of floats between clusters; see base/encoding.h.
enum class Format : uint8_t { None, Int8, Int4, E4m3, E5m2 };
inline constexpr std::array kFormats = {Format::Int8, Format::Int4, Format::E4m3, Format::E5m2};
struct Encoding {
  static constexpr uint32_t kLeastBlock = 32, kMostBlock = 512;
  Format format = Format::None;
  uint16_t block = 256;     ///< elements: a power of two
  bool stochastic = false;  ///< codes are rounded up or down at random, right on average
  [[nodiscard]] bool is_none() const { return format == Format::None; }
  auto operator<=>(const Encoding&) const = default;
};

/// One rank's request. If signatures of ranks differ, the error shows both. `count` is NCCL's: for
/// all_reduce, broadcast and reduce the elements of the buffer; for all_gather the elements that
/// each rank sends; for reduce_scatter those that each rank receives; for gather, scatter and
/// all_to_all those from one rank to another; 0 for barrier. If blocks are `uneven`
/// ("all_gather_v"): for all_gather and reduce_scatter the elements of all ranks, for others 0,
/// because only the two ends of a block know its length.
struct Signature {
  Collective collective{};
  DataType type{};
  RedOp op{};
  int32_t root = 0;
  uint64_t count = 0;
  bool uneven = false;
  Encoding encoding{};  ///< between clusters
  bool operator==(const Signature&) const = default;
};
/// Returns "all_gather", or "all_gather_v" for an uneven one.
[[nodiscard]] std::string name_of(const Signature& call);
/// Returns "all_reduce (10 float32, sum)"; with its number in the communicator, "all_reduce #3 (10
/// float32, sum)".
[[nodiscard]] std::string describe(const Signature& call);
[[nodiscard]] std::string describe(const Signature& call, uint64_t sequence);

}  // namespace hetccl
