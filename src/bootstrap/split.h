// How ranks of a session come to sessions of their own.
#pragma once

#include <cstdint>
#include <vector>

#include "bootstrap/bootstrap.h"

namespace hetccl::bootstrap {

inline constexpr int kNoColor = -1;  ///< of a rank that joins no part of a split

/// A rank's place in a session that is to be joined.
struct Seat {
  UniqueId id{};
  int rank = 0;
  int n_ranks = 0;  ///< 0: in none
};

/// This rank's seat among `members`, ranks of `session`, whose id is concealed.
Result<Seat> seat_among(const std::vector<int>& members, const UniqueId& concealed,
                        const Session& session);

/// Collective over `session`: ranks of one color get a session, in the order of their `key`s, then
/// of their ranks. The first of them makes its id, by `service`; its secret never travels. A color
/// below kNoColor, and a rank that exchanges something else, is an error on every rank. With
/// kNoColor the seat is in none.
Result<Seat> split(Session& session, Service& service, int color, int key, int64_t timeout_ms);

}  // namespace hetccl::bootstrap
