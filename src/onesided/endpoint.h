// One end of one-sided transfers. An endpoint needs no communicator: each is created alone, and any
// two may connect and disconnect at any time. It registers regions of memory; connected peers put
// blocks there, or get blocks from there, without a call on this side.
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
  std::string device;  ///< a device's name, as in CommunicatorOptions
};

/// Flag of a region's registration, besides those of Access.
inline constexpr uint32_t kHostMemory = 1U << 2;

struct PeerInfo {
  uint64_t number = 0;
  std::string name;
  std::string where;      ///< host and process
  std::string transport;  ///< carries its data
  Status gone;            ///< why it is disconnected; ok while it is connected
  LinkStatistics statistics;
};

/// Thread-safe. The runtime must outlive it.
class Endpoint {
 public:
  static Result<std::shared_ptr<Endpoint>> create(comm::Runtime& runtime, EndpointOptions options);
  ~Endpoint() { close(TimePoint::max()); }
  /// Ends all transfers with Aborted and leaves its peers; later calls fail. Resources that a
  /// device still copies from or to at `deadline` are kept until the process ends.
  void close(TimePoint deadline);
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  /// Returns the bytes of pinned memory that copies of pieces go through, without windows.
  [[nodiscard]] size_t pinned_bytes() const {
    return device_side_.out->pinned_bytes() + device_side_.in->pinned_bytes();
  }
  /// Returns what other endpoints need to connect here: the name, the door's address and the
  /// labelled regions. The user carries it to them.
  [[nodiscard]] std::string metadata() const;

  /// Lets peers put to memory or get from it. `flags` combines Access and kHostMemory, which means
  /// that the memory is the host's, not the endpoint's device's. InvalidArgument names the
  /// argument.
  Result<uint64_t> add_region(void* data, size_t bytes, uint32_t flags, std::string label);
  /// Waits until nothing uses the memory. Peers whose transfers still use it after `timeout_ms` are
  /// disconnected.
  Status remove_region(uint64_t id, int64_t timeout_ms);

  /// Connects to the endpoint that `metadata` describes, and waits for it. Returns the peer's
  /// number, which is never reused. A Timeout names the peer.
  Result<uint64_t> connect(std::string_view metadata, int64_t timeout_ms);
  /// Leaves the peer; transfers with it end with Aborted. InvalidArgument if there is no such peer.
  Status disconnect(uint64_t peer);
  /// Returns the connected peers, and the last ones that have gone.
  [[nodiscard]] std::vector<PeerInfo> peers() const;
  [[nodiscard]] Result<PeerInfo> peer(uint64_t number) const;

  Result<std::shared_ptr<const BlockList>> prepare(std::span<const Block> blocks) const {
    return BlockList::make(regions_, blocks);
  }
  struct Call {
    bool puts = true;
    std::shared_ptr<const BlockList> blocks;
    std::optional<Bytes> notification;  ///< delivered to the peer once all data has moved
    int64_t timeout_ms = 0;             ///< 0: as configured
    void* stream = nullptr;             ///< device memory is ready after its work
  };
  /// Starts a transfer without waiting. Returns the errors of Link::start.
  Result<std::shared_ptr<Transfer>> begin(uint64_t peer, Call call);
  /// Waits for the transfer until `deadline`. Returns whether it is done.
  bool wait(const Transfer& transfer, TimePoint deadline);
  void cancel(uint64_t peer, Transfer& transfer, const char* reason);

  Status notify(uint64_t peer, Bytes notification);
  /// Takes the oldest notification; waits for one until `deadline`. Aborted once the endpoint is
  /// closed.
  Result<std::optional<Mailbox::Letter>> take_notification(TimePoint deadline);
  /// Returns a descriptor that polls readable while a notification waits, or a peer has been lost
  /// since the last `forget_losses`. It lives as long as the endpoint.
  Result<int> descriptor() { return mailbox_.descriptor(); }
  void forget_losses() { mailbox_.forget_losses(); }
  [[nodiscard]] const Config& settings() const { return runtime_.config(); }
  [[nodiscard]] const Clock& clock() const { return runtime_.engine().clock(); }

 private:
  struct Peer {
    PeerInfo info;
    std::shared_ptr<Cancel> cancel;  // cancels the session
    comm::WindowBudget::Share window;
    std::unique_ptr<bootstrap::Session> session;  // null once the peer is gone
    std::shared_ptr<Link> link;                   // null once the peer is gone
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
  void serve_door();
  void receive_visitors(std::unique_lock<std::mutex>& lock);
  void free_ended(std::unique_lock<std::mutex>& lock);
  void notify_door();
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
  /// Two endpoints that have met and have no link yet.
  struct Pair {
    const bootstrap::Session& session;
    const Greeting& mine;
    const Greeting& theirs;
    WaitLimit limit;
  };
  /// The channel, and perhaps window, that will carry a link's data. `options` are completed to
  /// match.
  struct Carrier {
    std::unique_ptr<transport::Channel> channel;
    std::unique_ptr<exec::Window> window;  // shares memory beside the channel
  };
  Result<Carrier> connect_channel(const Pair& pair, Link::Options& options);
  Status open_device_side();

  comm::Runtime& runtime_;
  const EndpointOptions options_;
  std::string device_name_;  // "cuda" has become "cuda:0"
  device::Device* device_ = nullptr;
  bool on_device_ = false;  // hosts cannot access its memory
  DeviceSide device_side_;
  std::unique_ptr<Gates> gates_;
  std::atomic<bool> closed_{false};
  Regions regions_;
  Mailbox mailbox_;
  bootstrap::UniqueId door_{};
  bool door_open_ = false;

  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable news_;
  std::deque<bootstrap::UniqueId> visitors_;
  std::deque<Meeting> meetings_;
  std::vector<std::weak_ptr<Cancel>> cancels_;  // of peers that are connecting or connected
  std::map<uint64_t, Peer> peers_;
  uint64_t next_peer_ = 1;
  bool has_ended_ = false;  // a link or meeting has ended
  bool stop_ = false;
  std::once_flag closes_;
  std::thread door_thread_;
};

}  // namespace hetccl::onesided
