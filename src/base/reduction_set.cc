#include "base/reduction_set.h"

namespace hetccl {

ReductionSet ReductionSet::all() {
  return where([](DataType, RedOp) { return true; });
}

std::optional<ReductionSet> ReductionSet::from(std::span<const uint64_t> masks) {
  if (masks.size() != kOps) return std::nullopt;
  const ReductionSet every = all();
  ReductionSet set;
  for (size_t op = 0; op < kOps; ++op) {
    if ((masks[op] & ~uint64_t{every.masks_[op]}) != 0) return std::nullopt;
    set.masks_[op] = static_cast<uint16_t>(masks[op]);
  }
  return set;
}

size_t ReductionSet::place_of(size_t value, size_t n_first, size_t n) {
  if (value < n_first) return value;
  const size_t place = value - 64 + n_first;
  return value >= 64 && place < n ? place : kNone;
}

bool ReductionSet::bit(DataType type, RedOp op) const {
  const size_t t = place_of(type), o = place_of(op);
  return t != kNone && o != kNone && (masks_[o] >> t & 1U) != 0;
}

bool ReductionSet::has(DataType type, RedOp op) const {
  const bool adds = op == RedOp::Avg || op == RedOp::PreMulSum;
  return bit(type, op) && (!adds || bit(type, RedOp::Sum));
}

ReductionSet& ReductionSet::operator&=(const ReductionSet& other) {
  for (size_t op = 0; op < kOps; ++op) {
    masks_[op] = static_cast<uint16_t>(masks_[op] & other.masks_[op]);
  }
  return *this;
}

}  // namespace hetccl
