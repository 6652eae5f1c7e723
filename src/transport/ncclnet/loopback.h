// A connection of a plug-in's device with itself. The device copies by it within this process's
// registered memory, to memory of a GPU that host threads cannot touch.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/cancel.h"
#include "transport/ncclnet/link.h"

namespace hetccl::transport::ncclnet {

/// One thread at a time.
class Loopback {
 public:
  static constexpr size_t kRoom = 8;  ///< copies under way

  /// A part of registered memory.
  struct Place {
    const Known* known = nullptr;
    void* data = nullptr;
  };

  /// Begins to connect. The connection must be made before `deadline`. SystemError where the device
  /// has no connections left.
  static Result<std::unique_ptr<Loopback>> create(const Route& route, TimePoint deadline);

  [[nodiscard]] bool has_room() const { return copies_.size() < kRoom; }
  [[nodiscard]] bool is_busy() const { return !copies_.empty(); }
  /// Begins a copy. Copies end in their order. A copy to memory that needs a flush ends after it.
  void copy(const Place& to, const Place& from, size_t bytes);
  /// The same from `from`, up to kMostWhole bytes that may change once this returns.
  void write(const Place& to, const void* from, size_t bytes);
  /// Goes on connecting and copying. Whether anything has moved. Errors are those of Link.
  Result<bool> advance(TimePoint now);
  /// The number of copies that have ended so far.
  [[nodiscard]] uint64_t ended() const { return ended_; }
  /// Waits until it is connected and all copies have ended.
  Status finish(const WaitLimit& limit);

  /// Registers `known` in both directions, once it is connected. SystemError.
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
  const ConnectionPair pair_;             // of in_ and out_
  const std::unique_ptr<Link> in_, out_;  // end before the slots
  Fifo<Copy> copies_;
  uint64_t ended_ = 0;
};

}  // namespace hetccl::transport::ncclnet
