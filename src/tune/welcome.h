// What ranks tell each other before their first call.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/json.h"
#include "base/tactic.h"
#include "tune/knowledge.h"

namespace hetccl::tune {

struct Welcome {
  std::optional<Tactics> tactics;  ///< of this rank's library; nothing: it decides alone
  std::vector<Learnt> learnt;      ///< by earlier jobs; rank 0's counts
};
[[nodiscard]] Json to_json(const Welcome& welcome);
/// What is missing or cannot be read is left empty.
[[nodiscard]] Welcome welcome_from_json(const Json& json);

/// What every library that can be told anything takes.
[[nodiscard]] Tactics common_tactics(std::span<const Welcome> ranks);

}  // namespace hetccl::tune
