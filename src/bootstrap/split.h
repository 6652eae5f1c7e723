// Makes sessions of some ranks of a session.
#pragma once

#include <cstdint>
#include <vector>

#include "bootstrap/bootstrap.h"

namespace hetccl::bootstrap {

inline constexpr int kNoColor = -1;  ///< of a rank that is in no part of a split

/// A rank's place in a session that it will join.
struct Seat {
  UniqueId id{};
  int rank = 0;
  int n_ranks = 0;  ///< 0: in none
};

/// Returns this rank's seat among `members`, ranks of `session`, whose id is concealed.
Result<Seat> seat_of(const std::vector<int>& members, const UniqueId& concealed,
                     const Session& session);

/// Collective over `session`: ranks of one color get a session, in the order of their `key`s, then
/// of their ranks. The first of them makes its id by `service`; the secret is never sent. A color
/// below kNoColor, or a rank in another exchange, is an error on every rank. With kNoColor the seat
/// is in no session.
Result<Seat> split(Session& session, Service& service, int color, int key, int64_t timeout_ms);

}  // namespace hetccl::bootstrap
