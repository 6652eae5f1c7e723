// A connection of a plug-in's device with itself. Through it the device copies within this
// process's registered memory, and so reaches GPU memory that host threads cannot access.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/cancel.h"
#include "transport/ncclnet/link.h"

namespace hetccl::transport::ncclnet {

/// Used by one thread at a time.
class Loopback {
 public:
  static constexpr size_t kRoom = 8;  ///< the most copies under way

  /// A part of registered memory.
  struct Place {
    const Known* known = nullptr;
    void* data = nullptr;
  };

  /// Begins to connect; `advance` goes on, until `deadline`. Returns SystemError if the device has
  /// no connections left.
  static Result<std::unique_ptr<Loopback>> create(const Route& route, TimePoint deadline);

  [[nodiscard]] bool has_room() const { return copies_.size() < kRoom; }
  [[nodiscard]] bool is_busy() const { return !copies_.empty(); }
  /// Begins a copy. Copies end in the order in which they begin. If `to` needs a flush, the copy
  /// ends after the flush.
  void copy(const Place& to, const Place& from, size_t bytes);
  /// Like `copy`, from at most kMostWhole bytes of any memory, which may change once this returns.
  void write(const Place& to, const void* from, size_t bytes);
  /// Advances the connection and the copies without blocking. Returns whether anything has moved;
  /// errors as of Link.
  Result<bool> advance(TimePoint now);
  /// Returns the number of copies that have ended.
  [[nodiscard]] uint64_t ended() const { return ended_; }
  /// Waits until the connection is made and all copies have ended.
  Status finish(const WaitLimit& limit);

  /// Registers `known` in both directions. Requires a connection. Returns SystemError if the
  /// plug-in refuses.
  Status register_once(const Known& known);
  void forget(uint64_t number);

 private:
  struct Side {
    Place place;
    size_t begun = 0, complete = 0;
  };
  struct Copy {
    Side to, from;
    size_t bytes = 0;
    [[nodiscard]] bool ended() const { return to.complete == bytes && from.complete == bytes; }
  };

  Loopback(ConnectionPair pair, std::unique_ptr<Link> in, std::unique_ptr<Link> out);
  Result<bool> connect(TimePoint now);
  Result<bool> move(Link& link, Side Copy::* side);
  Result<bool> begin(Link& link, Side Copy::* side);
  [[nodiscard]] bool is_open() const { return in_->is_open() && out_->is_open(); }

  std::vector<std::byte> slots_;
  const Known slots_known_;
  const ConnectionPair pair_;             // the right to make in_ and out_
  const std::unique_ptr<Link> in_, out_;  // destroyed before the slots that they use
  Fifo<Copy> copies_;
  uint64_t ended_ = 0;
};

}  // namespace hetccl::transport::ncclnet
