// Which unproven connection a crowded listener drops, so that a flood of strangers keeps no rank
// out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <unordered_map>

#include "net/socket.h"

namespace hetccl::net {

/// Whom connections of one address are counted for: an IPv4 address, or the /64 of an IPv6 one,
/// which a single host may own.
uint64_t source_of(const SocketAddress& address);

/// The connections of one listener that are to prove themselves, by age. Not thread-safe; outlives
/// its seats.
class Crowd {
 public:
  /// One connection's seat, given back when it is destroyed or assigned to.
  class Seat {
   public:
    Seat() = default;
    Seat(Seat&& other) noexcept;
    Seat& operator=(Seat&& other) noexcept;
    ~Seat();

   private:
    friend class Crowd;
    Seat(Crowd& crowd, uint64_t name, uint64_t source)
        : crowd_(&crowd), name_(name), source_(source) {}

    Crowd* crowd_ = nullptr;
    uint64_t name_ = 0, source_ = 0;
  };

  /// `limit`: of all connections. A source with more than an eighth of it is dropped from first.
  explicit Crowd(size_t limit) : share_(limit / 8) {}
  /// For a younger connection than all before; `name`, which grows, is returned by `next_to_drop`.
  [[nodiscard]] Seat add(uint64_t name, uint64_t source);
  /// The oldest connection of the source that holds the most seats, if that is more than its
  /// share; else the oldest of all. Nothing where there is none. A rank proves itself in one round
  /// trip, so the oldest is a stranger: by age a flood meets only itself, as long as it takes
  /// longer than a round trip to fill all seats.
  [[nodiscard]] std::optional<uint64_t> next_to_drop() const;

 private:
  using Names = std::set<uint64_t>;

  void remove(uint64_t name, uint64_t source);

  const size_t share_;
  Names all_;
  std::unordered_map<uint64_t, Names> by_source_;
};

}  // namespace hetccl::net
