// Blocks on their way from cluster to cluster.
#pragma once

#include <functional>
#include <span>

#include "plan/builder.h"

namespace hetccl::plan {

/// Sends a piece of the output, which is complete after `ready`, to a rank.
using SendPiece = std::function<void(uint32_t message, int to, uint16_t stage, const Piece& piece,
                                     const Deps& ready)>;

/// The line of `blocks`, cut by the shares of each cluster of `path`.
std::vector<Cut> cuts_by_shares(const Builder& b, std::span<const int> path,
                                std::span<const uint32_t> blocks);

/// Passes a line along the clusters of `path`, of each of which `cuts` says who carries what, a
/// stage for each hop: who carries a piece sends on what it received itself, and broadcasts it
/// inside. In the first cluster, whose own ranks have it, it is complete after `ready`.
void pass_along(Builder& b, std::span<const int> path, std::span<const Cut> cuts, const Deps& ready,
                const SendPiece& send);

}  // namespace hetccl::plan
