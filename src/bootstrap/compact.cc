#include "bootstrap/compact.h"

#include <zlib.h>

namespace hetccl::bootstrap {

namespace {

// Below this, less than a network packet is saved.
constexpr size_t kWorthwhile = 1024;

}  // namespace

Bytes compact(Bytes bytes) {
  if (bytes.size() < kWorthwhile) return bytes;
  uLongf length = compressBound(bytes.size());
  Bytes deflated(length);
  const int result = compress2(deflated.data(), &length, bytes.data(), bytes.size(), Z_BEST_SPEED);
  if (result != Z_OK || length >= bytes.size()) return bytes;
  deflated.resize(length);
  deflated.shrink_to_fit();
  return deflated;
}

std::optional<Bytes> expand(Bytes compacted, size_t expanded_bytes) {
  if (compacted.size() == expanded_bytes) return compacted;
  if (compacted.size() > expanded_bytes) return std::nullopt;
  Bytes expanded(expanded_bytes);
  uLongf length = expanded.size();
  uLong taken = compacted.size();
  const int result = uncompress2(expanded.data(), &length, compacted.data(), &taken);
  const bool whole = length == expanded.size() && taken == compacted.size();
  if (result != Z_OK || !whole) return std::nullopt;
  return expanded;
}

}  // namespace hetccl::bootstrap
