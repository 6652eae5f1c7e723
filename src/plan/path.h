// Passes blocks from cluster to cluster.
#pragma once

#include <functional>
#include <span>

#include "plan/builder.h"

namespace hetccl::plan {

/// Sends a piece of the output, complete after `ready`, to rank `to`.
using SendPiece = std::function<void(uint32_t message, int to, uint16_t stage, const Piece& piece,
                                     const Deps& ready)>;

/// Cuts the line of `blocks` by the shares of each cluster of `path`.
std::vector<Cut> cuts_by_shares(const Builder& b, std::span<const int> path,
                                std::span<const uint32_t> blocks);

/// Passes a line along the clusters of `path`, one stage per hop. `cuts` holds each cluster's cut.
/// A holder sends on the pieces that it received itself and broadcasts them inside its cluster. In
/// the first cluster, whose ranks have the line already, it is complete after `ready`.
void forward_along(Builder& b, std::span<const int> path, std::span<const Cut> cuts,
                   const Deps& ready, const SendPiece& send);

}  // namespace hetccl::plan
