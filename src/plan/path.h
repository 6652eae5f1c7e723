// Blocks on their way from cluster to cluster.
#pragma once

#include <functional>
#include <span>

#include "plan/builder.h"

namespace hetccl::plan {

/// Sends a piece of the output, which is complete after `ready`, to a rank.
using SendPiece = std::function<void(uint32_t message, int to, uint16_t stage, const Piece& piece,
                                     const Deps& ready)>;

/// Passes the blocks of `line` along the clusters of `path`, a stage for each hop: border ranks
/// send on what they received themselves, and broadcast it inside. In the first cluster, whose own
/// ranks have it, it is complete after `ready`.
void pass_along(Builder& b, std::span<const int> path, std::span<const uint32_t> line,
                const Deps& ready, const SendPiece& send);

}  // namespace hetccl::plan
