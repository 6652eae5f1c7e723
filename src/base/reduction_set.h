// The reductions that a device or a vendor's library can do: one bit for each type and operator.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/types.h"

namespace hetccl {

class ReductionSet {
 public:
  static constexpr size_t kTypes = 14;
  static constexpr size_t kOps = 9;
  /// By operator, in the order of RedOp; bit i is the i-th type in the order of DataType.
  using Masks = std::array<uint16_t, kOps>;

  /// Makes an empty set.
  ReductionSet() = default;
  /// Returns every operator with every type to which it applies.
  static ReductionSet all();
  /// Returns the reductions for which `supports(type, op)`.
  template <typename Supports>
  static ReductionSet where(Supports&& supports);
  /// Decodes masks of another process. Returns nothing if the length is wrong or a bit means no
  /// reduction.
  static std::optional<ReductionSet> from(std::span<const uint64_t> masks);

  /// Returns false for a type or operator that does not exist. Avg and PreMulSum also need Sum,
  /// because ranks between clusters add in several steps, of which only one divides or multiplies.
  [[nodiscard]] bool has(DataType type, RedOp op) const;
  [[nodiscard]] const Masks& masks() const { return masks_; }
  ReductionSet& operator&=(const ReductionSet& other);
  bool operator==(const ReductionSet&) const = default;

 private:
  static constexpr size_t kNone = SIZE_MAX;
  // NCCL's values come first; hetccl's begin at 64.
  static size_t place_of(DataType type) { return place_of(static_cast<uint8_t>(type), 12, kTypes); }
  static size_t place_of(RedOp op) { return place_of(static_cast<uint8_t>(op), 6, kOps); }
  static size_t place_of(size_t value, size_t n_first, size_t n);
  static DataType type_at(size_t place) {
    return static_cast<DataType>(place < 12 ? place : place + 64 - 12);
  }
  static RedOp op_at(size_t place) {
    return static_cast<RedOp>(place < 6 ? place : place + 64 - 6);
  }
  [[nodiscard]] bool bit(DataType type, RedOp op) const;

  Masks masks_{};
};

template <typename Supports>
ReductionSet ReductionSet::where(Supports&& supports) {
  ReductionSet set;
  for (size_t op = 0; op < kOps; ++op) {
    for (size_t type = 0; type < kTypes; ++type) {
      if (!applies(op_at(op), type_at(type)) || !supports(type_at(type), op_at(op))) continue;
      set.masks_[op] = static_cast<uint16_t>(set.masks_[op] | 1U << type);
    }
  }
  return set;
}

}  // namespace hetccl
