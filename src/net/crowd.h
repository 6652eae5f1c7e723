// Which unproven connection a crowded listener drops, so that a flood of strangers keeps no rank
// out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "net/socket.h"

namespace hetccl::net {

/// Whom connections of one address are counted for: an IPv4 address, or the /64 of an IPv6 one,
/// which a single host may own.
uint64_t source_of(const SocketAddress& address);

/// The connections of one listener that are to prove themselves, by age.
class Crowd {
 public:
  /// `limit`: of all connections. A source with more than an eighth of it is dropped from first.
  explicit Crowd(size_t limit) : share_(limit / 8) {}
  /// The next younger connection; `name` is returned by `next_to_drop`.
  void add(uint64_t name, uint64_t source) { members_.push_back({name, source}); }
  /// The oldest connection of the source that holds the most places, if that is more than its
  /// share; else the oldest of all. Nothing where there is none. A rank proves itself in one round
  /// trip, so the oldest is a stranger: by age a flood meets only itself, as long as it takes
  /// longer than a round trip to fill all places.
  [[nodiscard]] std::optional<uint64_t> next_to_drop() const;

 private:
  struct Member {
    uint64_t name, source;
  };
  const size_t share_;
  std::vector<Member> members_;
};

}  // namespace hetccl::net
