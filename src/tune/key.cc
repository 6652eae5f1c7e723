#include "tune/key.h"

#include <algorithm>
#include <bit>

#include "base/divide.h"

namespace hetccl::tune {
namespace {

constexpr int kMostClass = 63;

std::string size_text(int size_class) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  return format("%u %s", 1U << static_cast<unsigned>(size_class % 10), kUnits[size_class / 10]);
}

}  // namespace

uint8_t size_class_of(uint64_t bytes) {
  const uint64_t most = uint64_t{1} << static_cast<unsigned>(kMostClass);
  return static_cast<uint8_t>(std::bit_width(std::clamp<uint64_t>(bytes, 1, most) - 1));
}

Key key_of(const Signature& signature, uint64_t count, const topology::Topology& topology) {
  Key key;
  key.collective = signature.collective;
  const uint64_t element = size_of(signature.type);
  key.size_class = size_class_of(multiply_saturated(count, element));
  if (reduces(signature.collective)) key.element_bytes = static_cast<uint8_t>(element);
  if (is_rooted(signature.collective)) key.root_cluster = topology.cluster_of(signature.root);
  return key;
}

std::string text_of(const Key& key) {
  std::string text(name_of(key.collective));
  text += ", at most " + size_text(key.size_class);
  if (key.element_bytes > 0) text += format(", elements of %u bytes", key.element_bytes);
  if (key.root_cluster >= 0) text += format(", root in cluster %d", key.root_cluster);
  return text;
}

Json to_json(const Key& key) {
  Json json{{"collective", name_of(key.collective)},
            {"size_class", static_cast<uint32_t>(key.size_class)}};
  if (key.element_bytes > 0) json.set("element_bytes", static_cast<uint32_t>(key.element_bytes));
  if (key.root_cluster >= 0) json.set("root_cluster", key.root_cluster);
  return json;
}

std::optional<Key> key_from_json(const Json& json) {
  const std::string* name = json["collective"].text();
  const auto collective = name == nullptr ? std::nullopt : parse_collective(*name);
  const auto size_class = json["size_class"].integer(0, kMostClass);
  if (!collective || !size_class) return std::nullopt;
  Key key{*collective, static_cast<uint8_t>(*size_class)};
  if (const Json* bytes = json.find("element_bytes")) {
    const auto value = bytes->integer(1, 16);
    if (!value) return std::nullopt;
    key.element_bytes = static_cast<uint8_t>(*value);
  }
  if (const Json* cluster = json.find("root_cluster")) {
    const auto value = cluster->integer(0, INT32_MAX);
    if (!value) return std::nullopt;
    key.root_cluster = static_cast<int32_t>(*value);
  }
  const bool adds = reduces(key.collective) == (key.element_bytes > 0);
  const bool rooted = is_rooted(key.collective) == (key.root_cluster >= 0);
  return adds && rooted ? std::optional(key) : std::nullopt;
}

}  // namespace hetccl::tune
