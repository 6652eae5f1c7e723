#include "tune/welcome.h"

#include <limits>

namespace hetccl::tune {
namespace {

// A list of another length is of another version, whose pairs are none here.
Tactics tactics_from(const std::vector<Json>& list) {
  Tactics::Bits bits{};
  if (list.size() != bits.size()) return {};
  for (size_t i = 0; i < bits.size(); ++i) {
    const auto value = list[i].integer(0, std::numeric_limits<uint32_t>::max());
    if (!value) return {};
    bits[i] = static_cast<uint32_t>(*value);
  }
  return Tactics(bits);
}

}  // namespace

Json to_json(const Welcome& welcome) {
  Json json{{"learnt", to_json(welcome.learnt)}};
  if (welcome.tactics) {
    const auto& bits = welcome.tactics->bits();
    json.set("tactics", std::vector<uint64_t>(bits.begin(), bits.end()));
  }
  return json;
}

Welcome welcome_from_json(const Json& json) {
  Welcome welcome;
  welcome.learnt = learnt_from_json(json["learnt"]);
  if (const auto* list = json["tactics"].elements()) welcome.tactics = tactics_from(*list);
  return welcome;
}

Tactics common_tactics(std::span<const Welcome> ranks) {
  std::optional<Tactics> common;
  for (const Welcome& rank : ranks) {
    if (!rank.tactics) continue;
    if (common) {
      *common &= *rank.tactics;
    } else {
      common = rank.tactics;
    }
  }
  return common.value_or(Tactics{});
}

}  // namespace hetccl::tune
