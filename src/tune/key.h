// Decides which calls are tuned together.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/types.h"
#include "topology/topology.h"

namespace hetccl::tune {

/// A class of calls of one communicator. Every rank computes the same key for a call.
struct Key {
  Collective collective{};
  uint8_t size_class = 0;     ///< k: a block has more than 2^(k-1) and at most 2^k bytes
  uint8_t element_bytes = 0;  ///< of elements that are added; 0: the collective adds none
  int32_t root_cluster = -1;  ///< for rooted collectives
  auto operator<=>(const Key&) const = default;
};

/// Returns the size class of blocks of `bytes`.
[[nodiscard]] uint8_t size_class_of(uint64_t bytes);
/// Returns the key of a call with even blocks of `count` elements. The root must be a rank.
[[nodiscard]] Key key_of(const Signature& signature, uint64_t count,
                         const topology::Topology& topology);
/// Returns text for people: "all_reduce, at most 4 MiB, elements of 4 bytes".
[[nodiscard]] std::string text_of(const Key& key);

[[nodiscard]] Json to_json(const Key& key);
/// Returns nothing if `json` is no key.
[[nodiscard]] std::optional<Key> key_from_json(const Json& json);

}  // namespace hetccl::tune
