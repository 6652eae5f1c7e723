// Where other processes of the host leave offers of channels for this transport.
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

/// A channel that `from` has made for `to`. The proof covers all that stands before it.
struct Offer {
  uint64_t communicator = 0;
  int32_t from = -1;
  int32_t to = -1;
  SharedMemoryAddress segment;
  WakerAddress bell;  ///< that the acceptor rings
  uint8_t nonce[32] = {};
  net::Mac proof{};
};

/// The offerer's proof, and the acceptor's answer to it.
net::Mac prove_offer(const Offer& offer, const net::Secret& secret);
net::Mac prove_acceptance(const Offer& offer, const net::Secret& secret);

/// One inbox in shared memory. Any number of processes post; its owner takes.
class Mailbox {
 public:
  static constexpr size_t kSlots = 256;
  /// `bell`: what others ring when they have posted.
  static Result<Mailbox> create(WakerAddress bell);
  static Result<Mailbox> attach(const SharedMemoryAddress& address);
  [[nodiscard]] SharedMemoryAddress address() const { return memory_.address(); }
  [[nodiscard]] WakerAddress bell() const;

  /// The slot used, or -1 while all are full.
  int post(const Offer& offer);
  /// Takes an offer back that nobody has taken. `offer` tells it from a later one.
  void withdraw(int slot, const Offer& offer);
  /// Shows every offer to `wants`; those for which it returns true are removed.
  void take(const std::function<bool(const Offer&)>& wants);

 private:
  struct Slot;
  struct Layout;
  explicit Mailbox(SharedMemory memory) : memory_(std::move(memory)) {}
  [[nodiscard]] Slot* slots() const;
  SharedMemory memory_;
};

}  // namespace hetccl::transport::shm
