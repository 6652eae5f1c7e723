// What ranks tell each other of what their libraries can be told.
#pragma once

#include <optional>
#include <span>

#include "base/json.h"
#include "base/tactic.h"

namespace hetccl::tune {

/// nullopt: the rank's library cannot be told anything.
[[nodiscard]] Json to_json(const std::optional<Tactics>& tactics);
/// Without any pair where `json` is of another version.
[[nodiscard]] std::optional<Tactics> tactics_from_json(const Json& json);

/// The pairs that every library can be told which can be told anything.
[[nodiscard]] Tactics common_tactics(std::span<const std::optional<Tactics>> ranks);

}  // namespace hetccl::tune
