// The transport seam: channels between two ranks that move bytes between memory that hosts (or,
// with RDMA, NICs) can reach. A channel is FIFO in both directions, so there are no tags. Every
// message carries a header that is checked against the posted receive; a difference is an error
// that names both calls.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cancel.h"
#include "base/status.h"
#include "base/types.h"

namespace hetccl {
class Waker;
class ShmSource;
struct Config;
struct Log;
}  // namespace hetccl

namespace hetccl::transport {

/// The description of a message in its header. Sender and receiver must agree on all of it.
struct MessageInfo {
  uint64_t communicator = 0;  ///< the communicator's agreed number
  uint64_t sequence = 0;      ///< of the collective in its communicator
  uint32_t slice = 0;
  uint32_t step = 0;    ///< the plan's number of this message, or its tag; equal at both ends
  Signature signature;  ///< of the call, to explain a mismatch
  uint64_t beside = 0;  ///< bytes in the channel's window, which are not sent
  uint64_t round = 0;   ///< the tuning round that chose the call's setting
};

/// The kind of memory: the host's or a device's.
enum class MemoryKind : uint8_t { Host, Device };

/// Memory for a transport to register.
struct Memory {
  std::byte* data = nullptr;
  size_t bytes = 0;
  MemoryKind kind = MemoryKind::Host;
  /// The caller's dma-buf of device memory, which begins at `dmabuf_offset`. -1: none, and drivers
  /// must find the memory by its address.
  int dmabuf = -1;
  size_t dmabuf_offset = 0;
  bool needs_flush = false;  ///< see device::Device::needs_flush
};

/// Registered memory: until this ends, its transport's channels access it without registering it
/// again. No channel may use any of it when this ends.
class Registration {
 public:
  virtual ~Registration() = default;
};

/// A posted transfer of `bytes` at `data`, or in the pieces of `list`. Memory and list stay valid
/// until it has completed or the channel is closed.
struct Parcel {
  void* data = nullptr;  ///< read by post_send, written by post_recv
  size_t bytes = 0;      ///< may be 0: the header still travels
  MessageInfo info;
  size_t streams = 0;       ///< this message's share of the channel's streams; 0: all
  bool registered = false;  ///< all of it is registered with the transport
  /// If not empty, the message's memory, in order, instead of `data`; some pieces may be empty, and
  /// all have `bytes` in total. Needs Channel::takes_lists. Each end may cut the message otherwise.
  std::span<const iovec> list{};
};

/// A channel to one peer. One thread at a time (the engine's driver) calls it, `close` included.
class Channel {
 public:
  virtual ~Channel() = default;
  /// Start a transfer. Transfers start and complete in the order posted. Any number may be
  /// outstanding; posting never blocks, and may already move bytes. Outstanding receives must not
  /// overlap, because several threads may write them.
  virtual void post_send(const Parcel& transfer) = 0;
  virtual void post_recv(const Parcel& transfer) = 0;
  /// Return how many of the posted transfers have completed: their send buffers may be overwritten,
  /// their received data read.
  [[nodiscard]] virtual uint64_t sends_completed() const = 0;
  [[nodiscard]] virtual uint64_t recvs_completed() const = 0;
  /// Returns whether posts may have lists. Both ends return the same. Thread-safe.
  [[nodiscard]] virtual bool takes_lists() const { return false; }
  /// Once all posted receives are complete, returns the message that the peer has begun to send, or
  /// nothing. `progress` returns true when this changes.
  [[nodiscard]] virtual std::optional<MessageInfo> incoming() { return std::nullopt; }
  /// Returns the first failure: RemoteError if the peer is gone, InvalidUsage if headers differ.
  /// Sticky; nothing completes after it.
  [[nodiscard]] virtual const Status& status() const = 0;
  /// After this returns, no byte of user memory is touched.
  virtual void close() = 0;
  /// Returns the memory that both ends have mapped because both asked for it (PeerId::window):
  /// page-aligned, initially zero; empty if the transport has none. Lives as long as the channel.
  [[nodiscard]] virtual std::span<std::byte> window() { return {}; }
  /// Returns the number of connections that share its messages (Parcel::streams). Thread-safe.
  [[nodiscard]] virtual size_t streams() const { return 1; }
};

/// The data that a peer needs to connect: opaque bytes, carried by the bootstrap.
using Address = std::vector<uint8_t>;

/// Identifies a channel. Both ends pass the same communicator, each other's rank, and the same
/// window.
struct PeerId {
  uint64_t communicator = 0;
  int self = 0;
  int peer = 0;
  size_t window = 0;  ///< bytes of shared memory wanted, if the transport can
  /// The NICs of this rank and of the peer that should carry the channel (Topology::cards), if
  /// hosts have several; empty: any. Hints: the ends may differ in them.
  std::vector<std::string> cards{}, peer_cards{};
  std::string bus{};  ///< PCI address of this rank's device; "": it is on the host
};

/// One end of a channel to be. Transports are chosen by it.
struct ChannelEnd {
  std::string_view host;       ///< equal: one host
  bool shares_memory = false;  ///< it can map memory of other ranks on its host
  MemoryKind memory = MemoryKind::Host;
};

/// An adaptor's score of a channel between these ends; 0: it cannot connect them. Must be pure and
/// symmetric, because both ends choose by it.
using Score = std::function<int(const ChannelEnd& local, const ChannelEnd& peer)>;

/// One transport of one Runtime: its listener and its channels. Both ends connect. Unless noted,
/// one thread at a time calls it.
class Transport {
 public:
  virtual ~Transport() = default;
  [[nodiscard]] virtual std::string name() const = 0;  ///< "tcp", "shm"
  /// Returns this rank's address. It listens before this returns.
  virtual Result<Address> listen() = 0;
  /// Takes the result of `connect`. Must be brief, because other connects need the calling thread.
  using Connected = std::function<void(Result<std::unique_ptr<Channel>>)>;
  /// Begins to connect to `peer`, which listens at `address`. Calls `connected` once: when both
  /// ends connect and have proven that they know `secret`, or when `limit` ends (Timeout naming the
  /// peer's rank). May call it before returning. `address` and `secret` are copied. A connect waits
  /// only for its own peer. Thread-safe.
  virtual void connect_later(const PeerId& id, const Address& address,
                             const std::vector<uint8_t>& secret, const WaitLimit& limit,
                             Connected connected) = 0;
  /// Connects and waits for the result.
  Result<std::unique_ptr<Channel>> connect(const PeerId& id, const Address& address,
                                           const std::vector<uint8_t>& secret,
                                           const WaitLimit& limit) {
    std::promise<Result<std::unique_ptr<Channel>>> made;
    connect_later(id, address, secret, limit,
                  [&made](auto channel) { made.set_value(std::move(channel)); });
    return made.get_future().get();
  }
  /// Returns whether its channels access device memory of this rank's `end` directly. Otherwise
  /// they take host memory, and device memory that is registered. Pure.
  [[nodiscard]] virtual bool reaches(const ChannelEnd& end) const {
    return end.memory == MemoryKind::Host;
  }
  /// Returns whether a channel to a peer that listens at `peer` is possible, as far as addresses
  /// show. Both ends get the same answer. Pure.
  [[nodiscard]] virtual bool can_reach(const Address& /*peer*/) const { return true; }
  /// Returns a line for each NIC or port that it uses, or the reason why not, for `hetccl info`.
  [[nodiscard]] virtual std::vector<std::string> describe() const { return {}; }
  /// Checks that the process may open the descriptors of that many channels, before the first
  /// connects. Returns SystemError if not. Thread-safe.
  virtual Status reserve(size_t /*channels*/) { return {}; }
  /// Returns whether it can use `register_memory`.
  [[nodiscard]] virtual bool registers() const { return false; }
  /// Registers memory; it hides earlier registrations that it overlaps. Returns null if the
  /// transport cannot use it, SystemError if a driver refuses. Thread-safe; may take long.
  virtual Result<std::unique_ptr<Registration>> register_memory(const Memory& memory) {
    static_cast<void>(memory);
    return std::unique_ptr<Registration>();
  }
  /// Returns whether one transfer may span several registrations.
  [[nodiscard]] virtual bool joins_registrations() const { return true; }
  /// Returns the number of NICs that reach registered memory.
  [[nodiscard]] virtual size_t n_cards() const { return 0; }
  /// Makes a NIC copy within registered memory, to test whether it reaches it. Returns RemoteError
  /// or Timeout if not. Thread-safe; blocks.
  virtual Status copy_by_card(size_t card, void* to, const void* from, size_t bytes,
                              const WaitLimit& limit) {
    static_cast<void>(card), static_cast<void>(to), static_cast<void>(from);
    static_cast<void>(bytes), static_cast<void>(limit);
    return error(ErrorCode::Unsupported, "%s has no cards", name().c_str());
  }
  /// Rank `self` makes no more connects in `communicator`: drops what peers began there and it has
  /// not taken. They see a closed channel. Thread-safe.
  virtual void forget(uint64_t communicator, int self) = 0;
  /// Moves data without blocking. Returns true if anything moved.
  virtual bool progress() = 0;
  /// Called before the engine sleeps (`on`), and after. With `on`, the engine calls `progress` once
  /// more; from then on `poll_fd` must poll readable when `progress` has something to do.
  virtual void arm(bool /*on*/) {}
  /// Returns a descriptor that, at least while armed, polls readable when `progress` has something
  /// to do; -1: shared memory (see shm_source).
  [[nodiscard]] virtual int poll_fd() const = 0;
  [[nodiscard]] virtual ShmSource* shm_source() = 0;
  /// Returns the bytes of payload and headers handed to the wire so far.
  [[nodiscard]] virtual uint64_t bytes_sent() const = 0;
};

}  // namespace hetccl::transport
