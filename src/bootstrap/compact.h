// Compresses a gather's bytes. Every rank gets the descriptions of all ranks, which are much alike:
// deflated, those of a thousand ranks are a tenth as long.
#pragma once

#include <optional>
#include <span>

#include "bootstrap/frame.h"

namespace hetccl::bootstrap {

/// Returns `bytes` deflated, or unchanged if that is no shorter.
Bytes compact(Bytes bytes);
/// Returns the input of `compact`, which was `expanded_bytes` long; nullopt if there is no such
/// input. Never holds more than `expanded_bytes`.
std::optional<Bytes> expand(Bytes compacted, size_t expanded_bytes);

}  // namespace hetccl::bootstrap
