#include "tune/tactics_json.h"

#include <charconv>
#include <limits>
#include <string>
#include <vector>

#include "base/status.h"

namespace hetccl::tune {
namespace {

std::optional<uint64_t> number_from(const std::string* digits) {
  uint64_t value = 0;
  if (digits == nullptr) return std::nullopt;
  const char* const end = digits->data() + digits->size();
  const auto read = std::from_chars(digits->data(), end, value, 16);
  return read.ec == std::errc() && read.ptr == end ? std::optional(value) : std::nullopt;
}

}  // namespace

Json to_json(const std::optional<Tactics>& tactics) {
  if (!tactics) return {};
  const auto& bits = tactics->bits();
  return {{"pairs", std::vector<uint64_t>(bits.begin(), bits.end())},
          {"costs", format("%llx", static_cast<unsigned long long>(tactics->costs()))}};
}

std::optional<Tactics> tactics_from_json(const Json& json) {
  if (json.is_null()) return std::nullopt;
  const auto* list = json["pairs"].elements();
  const auto costs = number_from(json["costs"].text());
  Tactics::Bits bits{};
  if (list == nullptr || list->size() != bits.size() || !costs) return Tactics();
  for (size_t i = 0; i < bits.size(); ++i) {
    const auto value = (*list)[i].integer(0, std::numeric_limits<uint32_t>::max());
    if (!value) return Tactics();
    bits[i] = static_cast<uint32_t>(*value);
  }
  return Tactics(bits, *costs);
}

Tactics common_tactics(std::span<const std::optional<Tactics>> ranks) {
  std::optional<Tactics> common;
  for (const auto& rank : ranks) {
    if (!rank) continue;
    common ? * common &= *rank : common.emplace(*rank);
  }
  return common.value_or(Tactics());
}

}  // namespace hetccl::tune
