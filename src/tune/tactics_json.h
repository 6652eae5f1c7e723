// Encodes the tactics that a rank's library accepts, for other ranks.
#pragma once

#include <optional>
#include <span>

#include "base/json.h"
#include "base/tactic.h"

namespace hetccl::tune {

/// nullopt: the library accepts none.
[[nodiscard]] Json to_json(const std::optional<Tactics>& tactics);
/// Returns no pairs if `json` is of another version.
[[nodiscard]] std::optional<Tactics> tactics_from_json(const Json& json);

/// Returns the pairs that all libraries accept, ignoring libraries that accept none.
[[nodiscard]] Tactics common_tactics(std::span<const std::optional<Tactics>> ranks);

}  // namespace hetccl::tune
