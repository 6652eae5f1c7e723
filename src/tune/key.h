// Which calls are tuned together.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/types.h"
#include "topology/topology.h"

namespace hetccl::tune {

/// A class of calls of one communicator. Every rank finds the same key for a call.
struct Key {
  Collective collective{};
  uint8_t size_class = 0;     ///< k: a block has more than 2^(k-1) and at most 2^k bytes
  uint8_t element_bytes = 0;  ///< of the elements that are added; 0: the collective adds none
  int32_t root_cluster = -1;  ///< of a rooted collective
  auto operator<=>(const Key&) const = default;
};

/// The size class of blocks of `bytes`.
[[nodiscard]] uint8_t size_class_of(uint64_t bytes);
/// The key of a call with even blocks of `count` elements; the root is a rank.
[[nodiscard]] Key key_of(const Signature& signature, uint64_t count,
                         const topology::Topology& topology);
/// "all_reduce, at most 4 MiB, elements of 4 bytes", for people.
[[nodiscard]] std::string text_of(const Key& key);

[[nodiscard]] Json to_json(const Key& key);
/// Nothing where `json` is no key.
[[nodiscard]] std::optional<Key> key_from_json(const Json& json);

}  // namespace hetccl::tune
