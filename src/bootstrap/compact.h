// A gather's bytes as they travel. Ranks describe themselves in much the same words, and every rank
// gets the words of all: deflated, those of a thousand ranks are a tenth as long.
#pragma once

#include <optional>
#include <span>

#include "bootstrap/frame.h"

namespace hetccl::bootstrap {

/// `bytes` deflated, or as they are where that is no shorter.
Bytes compact(Bytes bytes);
/// What `compact` was given, `expanded_bytes` long; nullopt where it cannot have been. Never holds
/// more than `expanded_bytes`.
std::optional<Bytes> expand(Bytes compacted, size_t expanded_bytes);

}  // namespace hetccl::bootstrap
