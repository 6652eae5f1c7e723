// The transport seam: channels between two ranks that move bytes between memory that hosts (or,
// with RDMA, NICs) reach. A channel is FIFO both ways, so there are no tags; but every message
// carries a header that is checked against the receive it meets, and a difference is an error that
// names both calls.
#pragma once

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

/// What the header of a message says of it. Sender and receiver must agree on all of it.
struct MessageInfo {
  uint64_t communicator = 0;  ///< the communicator's agreed number
  uint64_t sequence = 0;      ///< of the collective within its communicator
  uint32_t slice = 0;
  uint32_t step = 0;    ///< the plan's number of this message, or its tag; equal at both ends
  Signature signature;  ///< of the call, so that a mismatch can be explained
  uint64_t beside = 0;  ///< bytes of data that lie in the channel's window, and do not travel
  uint64_t round = 0;   ///< of tuning, in which the call's setting was decided
};

/// The owner of memory.
enum class MemoryKind : uint8_t { Host, Device };

/// Memory for a transport to register.
struct Memory {
  std::byte* data = nullptr;
  size_t bytes = 0;
  MemoryKind kind = MemoryKind::Host;
  /// A dma-buf that holds a device's from `dmabuf_offset` on; the caller's. -1: there is none,
  /// and drivers must find the memory by its address.
  int dmabuf = -1;
  size_t dmabuf_offset = 0;
  bool needs_flush = false;  ///< see device::Device::needs_flush
};

/// Memory that a transport knows: its channels move data from and to it without registering it
/// anew, until this ends. No channel may move any of it then.
class Registration {
 public:
  virtual ~Registration() = default;
};

/// A posted transfer: `bytes` at `data`, which stays valid until the transfer has completed or the
/// channel is closed.
struct Parcel {
  void* data = nullptr;  ///< read by post_send, written by post_recv
  size_t bytes = 0;      ///< may be 0: the header still travels
  MessageInfo info;
  size_t streams = 0;       ///< of a channel that has several, this message takes so many; 0: all
  bool registered = false;  ///< all of it lies in memory that the transport knows
};

/// One peer. Calls from one thread at a time (the engine's driver), `close` included.
class Channel {
 public:
  virtual ~Channel() = default;
  /// Transfers are started, and complete, in the order posted. Any number may be outstanding;
  /// posting never blocks and may already move bytes. Receives that are outstanding together write
  /// to memory of their own each: several threads may move them.
  virtual void post_send(const Parcel& transfer) = 0;
  virtual void post_recv(const Parcel& transfer) = 0;
  /// How many posted so far have completed: send data may be overwritten, received data read.
  [[nodiscard]] virtual uint64_t sends_completed() const = 0;
  [[nodiscard]] virtual uint64_t recvs_completed() const = 0;
  /// The message that the peer has begun to send once every receive posted so far is complete;
  /// empty where there is none yet. `progress` has moved something when that changes.
  [[nodiscard]] virtual std::optional<MessageInfo> incoming() { return std::nullopt; }
  /// The first failure: RemoteError when the peer is gone, InvalidUsage when headers differ.
  /// Sticky; nothing completes after it.
  [[nodiscard]] virtual const Status& status() const = 0;
  /// No byte of user memory is touched after this returns.
  virtual void close() = 0;
  /// The memory that both ends have mapped because both asked for it (PeerId::window), page-aligned
  /// and zeroed at first; empty where the transport has none. Lives as long as the channel.
  [[nodiscard]] virtual std::span<std::byte> window() { return {}; }
  /// Among how many connections its messages are shared out (Parcel::streams). Thread-safe.
  [[nodiscard]] virtual size_t streams() const { return 1; }
};

/// What a peer needs in order to connect: opaque bytes, carried by the bootstrap.
using Address = std::vector<uint8_t>;

/// Who connects with whom. Both ends pass the same communicator, each other's rank, and the same
/// window.
struct PeerId {
  uint64_t communicator = 0;
  int self = 0;
  int peer = 0;
  size_t window = 0;  ///< bytes of memory for both ends to share, where the transport can
  /// Names of the cards of this rank and of the peer that are to carry the channel
  /// (Topology::cards) where hosts have several; empty: any. Hints: ends may differ in them.
  std::vector<std::string> cards{}, peer_cards{};
  std::string bus{};  ///< PCI address of this rank's device; "": it is on the host
};

/// One end of a channel to be: what its transport is chosen by.
struct ChannelEnd {
  std::string_view host;       ///< equal: one host
  bool shares_memory = false;  ///< maps memory of other ranks on its host
  MemoryKind memory = MemoryKind::Host;
};

/// An adaptor's: how good a channel between these ends would be, 0 where it can make none. Pure,
/// and the same whichever end is `local`, since both ends choose by it.
using Score = std::function<int(const ChannelEnd& local, const ChannelEnd& peer)>;

/// One transport of one Runtime: its listener and its channels. Both ends connect. Unless noted,
/// calls from one thread at a time.
class Transport {
 public:
  virtual ~Transport() = default;
  [[nodiscard]] virtual std::string name() const = 0;  ///< "tcp", "shm"
  /// Where this rank listens; listening starts before this returns.
  virtual Result<Address> listen() = 0;
  /// Takes what `connect` returns. By a thread that others need: must be brief.
  using Connected = std::function<void(Result<std::unique_ptr<Channel>>)>;
  /// Begins to make a channel to `peer`, which listens at `address`: once both ends do, and have
  /// proven to know `secret`, or once `limit` ends it (Timeout naming the peer's rank), calls
  /// `connected`, once. May do so before it returns. `address` and `secret` are copied. Connects
  /// wait for none but their own peer. Thread-safe.
  virtual void connect_later(const PeerId& id, const Address& address,
                             const std::vector<uint8_t>& secret, const WaitLimit& limit,
                             Connected connected) = 0;
  /// The same, blocking.
  Result<std::unique_ptr<Channel>> connect(const PeerId& id, const Address& address,
                                           const std::vector<uint8_t>& secret,
                                           const WaitLimit& limit) {
    std::promise<Result<std::unique_ptr<Channel>>> made;
    connect_later(id, address, secret, limit,
                  [&made](auto channel) { made.set_value(std::move(channel)); });
    return made.get_future().get();
  }
  /// Whether its channels read and write the memory of a device like that at this rank's `end`
  /// themselves; else they take memory of the host, and of devices what is registered. Pure.
  [[nodiscard]] virtual bool reaches(const ChannelEnd& end) const {
    return end.memory == MemoryKind::Host;
  }
  /// Whether a channel can be made with who listens at `peer`, as far as that shows before they
  /// connect: both ends find the same. Pure.
  [[nodiscard]] virtual bool can_reach(const Address& /*peer*/) const { return true; }
  /// A line for each card or port that it uses, or why not, for `hetccl info`.
  [[nodiscard]] virtual std::vector<std::string> describe() const { return {}; }
  /// Makes sure that the process may open what so many channels take, before the first is
  /// connected. SystemError where it may not. Thread-safe.
  virtual Status reserve(size_t /*channels*/) { return {}; }
  /// Whether it has a use for `register_memory`.
  [[nodiscard]] virtual bool registers() const { return false; }
  /// Registers memory. A later registration hides those that it overlaps. Null where the
  /// transport has no use for it. SystemError where drivers refuse. Thread-safe; may take long.
  virtual Result<std::unique_ptr<Registration>> register_memory(const Memory& memory) {
    static_cast<void>(memory);
    return std::unique_ptr<Registration>();
  }
  /// Whether one transfer may lie in several registrations.
  [[nodiscard]] virtual bool joins_registrations() const { return true; }
  /// The number of cards that reach registered memory.
  [[nodiscard]] virtual size_t n_cards() const { return 0; }
  /// Has a card copy within registered memory, to try whether it reaches it. RemoteError or Timeout
  /// where it does not. Thread-safe; blocks.
  virtual Status copy_by_card(size_t card, void* to, const void* from, size_t bytes,
                              const WaitLimit& limit) {
    static_cast<void>(card), static_cast<void>(to), static_cast<void>(from);
    static_cast<void>(bytes), static_cast<void>(limit);
    return error(ErrorCode::Unsupported, "%s has no cards", name().c_str());
  }
  /// Rank `self` connects no more within `communicator`: lets go of what peers began there that it
  /// has not taken, which they see as a closed channel. Thread-safe.
  virtual void forget(uint64_t communicator, int self) = 0;
  /// Moves what can be moved without blocking: true when anything moved.
  virtual bool progress() = 0;
  /// The engine is about to sleep, or has slept. With `on` it calls `progress` once more; from then
  /// on `poll_fd` polls readable when `progress` has something to do.
  virtual void arm(bool /*on*/) {}
  /// A descriptor that polls readable when `progress` has something to do, at least while armed, or
  /// -1 for shared memory (see shm_source).
  [[nodiscard]] virtual int poll_fd() const = 0;
  [[nodiscard]] virtual ShmSource* shm_source() = 0;
  /// Payload and headers that this end has handed to the wire so far.
  [[nodiscard]] virtual uint64_t bytes_sent() const = 0;
};

}  // namespace hetccl::transport
