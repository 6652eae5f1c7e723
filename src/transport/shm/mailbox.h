// Receives offers of channels from other processes of the host.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>

#include "base/shared_memory.h"
#include "base/waker.h"
#include "net/auth.h"
#include "transport/transport.h"

namespace hetccl::transport::shm {

/// A channel that `from` has made for `to`. The proof covers all members before it.
struct Offer {
  uint64_t communicator = 0;
  int32_t from = -1;
  int32_t to = -1;
  SharedMemoryAddress segment;
  WakerAddress bell;  ///< rung by the acceptor
  uint8_t nonce[32] = {};
  net::Mac proof{};
};

/// The offerer's proof, and the acceptor's answer to it.
net::Mac prove_offer(const Offer& offer, const net::Secret& secret);
net::Mac prove_acceptance(const Offer& offer, const net::Secret& secret);

/// An inbox in shared memory. Any number of processes post; its owner takes.
class Mailbox {
 public:
  static constexpr size_t kSlots = 256;
  /// `bell` is rung by senders after a post.
  static Result<Mailbox> create(WakerAddress bell);
  static Result<Mailbox> attach(const SharedMemoryAddress& address);
  [[nodiscard]] SharedMemoryAddress address() const { return memory_.address(); }
  [[nodiscard]] WakerAddress bell() const;

  /// Returns the slot used; -1: all are full.
  int post(const Offer& offer);
  /// Withdraws an offer that nobody has taken. `offer` distinguishes it from a later one in that
  /// slot.
  void withdraw(int slot, const Offer& offer);
  /// Calls `wants` for every offer, and removes those for which it returns true.
  void take(const std::function<bool(const Offer&)>& wants);

 private:
  struct Slot;
  struct Layout;
  explicit Mailbox(SharedMemory memory) : memory_(std::move(memory)) {}
  [[nodiscard]] Slot* slots() const;
  SharedMemory memory_;
};

}  // namespace hetccl::transport::shm
