// Chooses which unproven connection a crowded listener drops, so that a flood of strangers cannot
// keep a rank out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <unordered_map>

#include "net/socket.h"

namespace hetccl::net {

/// Returns the source that connections of an address count for: an IPv4 address, or the /64 of an
/// IPv6 one, because one host may own all of it.
uint64_t source_of(const SocketAddress& address);

/// The unproven connections of one listener, by age. Not thread-safe; must outlive its admissions.
class Crowd {
 public:
  /// One connection's admission, returned when destroyed or assigned to.
  class Admission {
   public:
    Admission() = default;
    Admission(Admission&& other) noexcept;
    Admission& operator=(Admission&& other) noexcept;
    ~Admission();

   private:
    friend class Crowd;
    Admission(Crowd& crowd, uint64_t name, uint64_t source)
        : crowd_(&crowd), name_(name), source_(source) {}

    Crowd* crowd_ = nullptr;
    uint64_t name_ = 0, source_ = 0;
  };

  /// `limit`: of all connections. A source with more than an eighth of it is dropped from first.
  explicit Crowd(size_t limit) : share_(limit / 8) {}
  /// Adds the youngest connection so far. `name` must grow; `next_to_drop` returns it.
  [[nodiscard]] Admission add(uint64_t name, uint64_t source);
  /// Returns the oldest connection of the source with the most connections, if they exceed its
  /// share, else the oldest of all; nothing if there is none. A rank proves itself in one round
  /// trip, so the oldest is a stranger. A flood thus only displaces itself, unless it fills the
  /// whole limit within a round trip.
  [[nodiscard]] std::optional<uint64_t> next_to_drop() const;

 private:
  using Names = std::set<uint64_t>;

  void remove(uint64_t name, uint64_t source);

  const size_t share_;
  Names all_;
  std::unordered_map<uint64_t, Names> by_source_;
};

}  // namespace hetccl::net
