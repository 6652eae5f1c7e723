// Which reductions a device or a vendor's library can do: a bit for each type and operator.
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

  /// Empty.
  ReductionSet() = default;
  /// Every operator with every type to which it applies.
  static ReductionSet all();
  /// Those for which `supports(type, op)`.
  template <typename Supports>
  static ReductionSet where(Supports&& supports);
  /// From another process; nothing where the length is wrong or a bit stands for no reduction.
  static std::optional<ReductionSet> from(std::span<const uint64_t> masks);

  /// False for a type or operator that does not exist. Avg and PreMulSum also need Sum, since the
  /// ranks between clusters add in several steps, and only one of these divides or multiplies.
  [[nodiscard]] bool has(DataType type, RedOp op) const;
  [[nodiscard]] const Masks& masks() const { return masks_; }
  ReductionSet& operator&=(const ReductionSet& other);
  bool operator==(const ReductionSet&) const = default;

 private:
  static constexpr size_t kNone = SIZE_MAX;
  // NCCL's values come first, ours begin at 64.
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
