// An endpoint: an engine for data from point to point that is no communicator. Endpoints are made
// alone; they connect and leave at any time, many to many; one gives the other memory to read or
// write, and either moves blocks without the other's help.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/cancel.h"
#include "bootstrap/bootstrap.h"
#include "comm/runtime.h"
#include "onesided/greeting.h"
#include "onesided/link.h"

namespace hetccl::onesided {

struct EndpointOptions {
  std::string name;    ///< for peers and messages
  std::string device;  ///< as a communicator's
};

/// How a region is registered, beside Access.
inline constexpr uint32_t kHostMemory = 1U << 2;

struct PeerInfo {
  uint64_t number = 0;
  std::string name;
  std::string where;      ///< host and process
  std::string transport;  ///< that carries its data
  Status gone;            ///< why it is not connected any more; ok while it is
  LinkStatistics statistics;
};

/// Thread-safe. The runtime outlives it.
class Endpoint {
 public:
  static Result<std::shared_ptr<Endpoint>> create(comm::Runtime& runtime, EndpointOptions options);
  ~Endpoint() { close(TimePoint::max()); }
  /// Ends all transfers, with Aborted, and leaves its peers; what is called later fails.
  /// Keeps until the process ends what a device still copies at `deadline`.
  void close(TimePoint deadline);
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  /// For other endpoints, by whatever way: name, where to knock, and the regions that have labels.
  [[nodiscard]] std::string metadata() const;

  /// Lets peers put to memory, or get from it; `flags` of Access and kHostMemory. Memory is of the
  /// endpoint's device, unless it is the host's. InvalidArgument naming the argument.
  Result<uint64_t> add_region(void* data, size_t bytes, uint32_t flags, std::string label);
  /// Waits until nothing touches the memory any more. Peers that have not ended what they do there
  /// after `timeout_ms` are lost.
  Status remove_region(uint64_t id, int64_t timeout_ms);

  /// Blocks. The number of the peer, which is never used again. Timeout naming it.
  Result<uint64_t> connect(std::string_view metadata, int64_t timeout_ms);
  /// Ends its transfers with Aborted. InvalidArgument where there is no such peer.
  Status disconnect(uint64_t peer);
  /// Those that are connected, and the last that are gone.
  [[nodiscard]] std::vector<PeerInfo> peers() const;
  [[nodiscard]] Result<PeerInfo> peer(uint64_t number) const;

  Result<std::shared_ptr<const BlockList>> prepare(std::span<const Block> blocks) const {
    return BlockList::make(regions_, blocks);
  }
  struct Call {
    bool puts = true;
    std::shared_ptr<const BlockList> blocks;
    std::optional<Bytes> notification;  ///< for the peer, once all has moved
    int64_t timeout_ms = 0;             ///< 0: the configuration's
    void* stream = nullptr;             ///< device memory is ready after what it holds
  };
  /// Begins a transfer. Does not wait. Errors as of Link::start.
  Result<std::shared_ptr<Transfer>> begin(uint64_t peer, Call call);
  /// Whether it is done by `deadline`.
  bool wait(const Transfer& transfer, TimePoint deadline);
  void cancel(uint64_t peer, Transfer& transfer, const char* reason);

  Status notify(uint64_t peer, Bytes notification);
  /// The oldest notification; waits for one until `deadline`. Aborted once it is closed.
  Result<std::optional<Mailbox::Letter>> take_notification(TimePoint deadline);
  [[nodiscard]] const Config& settings() const { return runtime_.config(); }
  [[nodiscard]] const Clock& clock() const { return runtime_.engine().clock(); }

 private:
  struct Peer {
    PeerInfo info;
    std::shared_ptr<Cancel> cancel;  // of the session
    comm::WindowBudget::Share window;
    std::unique_ptr<bootstrap::Session> session;  // null once it is gone
    std::shared_ptr<Link> link;                   // the same
  };
  struct Fate;
  struct Forgets;
  struct Meeting {
    std::thread thread;
    std::shared_ptr<std::atomic<bool>> ended;
  };

  Endpoint(comm::Runtime& runtime, EndpointOptions options)
      : runtime_(runtime), options_(std::move(options)) {}
  Status open();
  Status on_knock(std::span<const uint8_t> words);
  void keep_door();
  void receive_visitors(std::unique_lock<std::mutex>& lock);
  void bury(std::unique_lock<std::mutex>& lock);
  void tell_keeper();
  void leave(const Peer& peer, const Status& why);
  void end(Peer peer, TimePoint deadline);
  void forget(const bootstrap::Session& session) const;
  Status check_owner(const void* data, bool on_device) const;
  Result<std::unique_ptr<bootstrap::Session>> join(const bootstrap::UniqueId& id, int rank,
                                                   const Greeting& mine, const WaitLimit& limit,
                                                   const std::shared_ptr<Fate>& fate);
  Result<uint64_t> meet(const bootstrap::UniqueId& id, int rank, int64_t timeout_ms);
  Result<std::shared_ptr<Link>> link_to(uint64_t peer) const;
  [[nodiscard]] std::vector<std::shared_ptr<Link>> links() const;
  static PeerInfo describe(const Peer& peer);
  static Status check_notification(const Bytes& notification);
  Result<Gates::Gate> add_gate(void* native);
  Result<std::shared_ptr<Cancel>> add_cancel();
  [[nodiscard]] Greeting greet() const;
  void register_with_cards(Region& region);
  /// Two that have met, before there is a link.
  struct Pair {
    const bootstrap::Session& session;
    const Greeting& mine;
    const Greeting& theirs;
    WaitLimit limit;
  };
  /// A way for a link's data. `options` learn what follows from it.
  struct Carrier {
    std::unique_ptr<transport::Channel> channel;
    std::unique_ptr<exec::Window> window;  // of the channel
  };
  Result<Carrier> connect_channel(const Pair& pair, Link::Options& options);
  Status open_device_side();

  comm::Runtime& runtime_;
  const EndpointOptions options_;
  std::string device_name_;  // "cuda" has become "cuda:0"
  device::Device* device_ = nullptr;
  bool on_device_ = false;  // hosts do not reach its memory
  DeviceSide device_side_;
  std::unique_ptr<Gates> gates_;
  std::atomic<bool> closed_{false};
  Regions regions_;
  Mailbox mailbox_;
  bootstrap::UniqueId door_{};
  bool door_open_ = false;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable news_;
  std::deque<bootstrap::UniqueId> visitors_;
  std::deque<Meeting> meetings_;
  std::vector<std::weak_ptr<Cancel>> cancels_;  // of those that connect, and are connected
  std::map<uint64_t, Peer> peers_;
  uint64_t next_peer_ = 1;
  bool buries_ = false;  // a link is over
  bool stop_ = false;
  std::once_flag closes_;
  std::thread keeper_;
};

}  // namespace hetccl::onesided
