#include "plan/plan.h"

#include <algorithm>

#include "base/encoding.h"

namespace hetccl::plan {

bool operator==(Fraction a, Fraction b) {
  return uint64_t{a.num} * b.den == uint64_t{b.num} * a.den;
}

bool operator<(Fraction a, Fraction b) {
  return uint64_t{a.num} * b.den < uint64_t{b.num} * a.den;
}

uint64_t element(Fraction fraction, uint64_t length, uint64_t grain) {
  if (fraction.num == fraction.den) return length;
  // floor(length * num / den), without a product of more than 64 bits.
  const uint64_t whole = length / fraction.den, rest = length % fraction.den;
  const uint64_t at = whole * fraction.num + rest * fraction.num / fraction.den;
  return at - at % grain;
}

bool reads_send(StepKind kind, const ShardRegion& shard, int local_rank) {
  return kind == StepKind::CclReduce || shard.root == local_rank;
}

bool writes_recv(StepKind kind, const ShardRegion& shard, int local_rank) {
  if (kind == StepKind::CclReduce) return shard.root == local_rank;
  return shard.receiver < 0 || shard.receiver == local_rank;
}

uint64_t grain_of(DataType type, const Encoding& encoding) {
  const uint64_t line = 64 / size_of(type);
  return encoding.is_none() ? line : std::max<uint64_t>(line, encoding.block);
}

size_t bytes_of(uint64_t elements, DataType type, const Encoding& encoding, bool encoded) {
  return encoded ? encoded_bytes(encoding, elements) : elements * size_of(type);
}

SlicePart part_of(const Region& region, uint64_t count, uint64_t slice_elements, uint32_t k,
                  uint64_t grain) {
  const uint64_t first = uint64_t{k} * slice_elements;
  const uint64_t length = first < count ? std::min(slice_elements, count - first) : 0;
  return {first, length, element(region.begin, length, grain), element(region.end, length, grain)};
}

size_t bytes_of(const Region& region, const SlicePart& part, DataType type,
                const Encoding& encoding) {
  return bytes_of(region.blocks * (part.end - part.begin), type, encoding, region.encoded);
}

}  // namespace hetccl::plan
