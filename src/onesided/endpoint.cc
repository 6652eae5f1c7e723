#include "onesided/endpoint.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <utility>

#include "base/host_identity.h"
#include "base/keep.h"
#include "base/printable.h"
#include "base/thread.h"

namespace hetccl::onesided {

using std::chrono::milliseconds;

namespace {

constexpr size_t kChunkBytes = size_t{4} << 20;
constexpr size_t kChunksEachWay = 8;
// Bytes of a window between two endpoints on one host; windows below the second size are of no use.
constexpr size_t kWindowBytes = size_t{32} << 20;
constexpr size_t kLeastRing = 2 * kMaxPiece;
constexpr size_t kPage = 4096;
constexpr milliseconds kFlushTime{500};

std::string describe_process(const Greeting& greeting) {
  return format("host %s, pid %" PRId64, greeting.host_name.c_str(), greeting.pid);
}

std::string describe_peer(const Greeting& greeting) {
  return format("\"%s\" (%s)", greeting.name.c_str(), describe_process(greeting).c_str());
}

Status destroyed() {
  return error(ErrorCode::Aborted, "this endpoint is destroyed");
}

Status no_peer(uint64_t number) {
  return error(ErrorCode::InvalidArgument, "there is no peer %" PRIu64, number);
}

// At least 1, so that a wait that comes too late reports its own timeout.
int64_t ms_until(TimePoint deadline, TimePoint now) {
  return std::max<int64_t>(std::chrono::duration_cast<milliseconds>(deadline - now).count(), 1);
}

Status check_name(const std::string& name) {
  if (name.empty()) return error(ErrorCode::InvalidArgument, "name is empty");
  if (name.size() <= kMaxName && printable(name, kMaxName) == name) return {};
  return error(ErrorCode::InvalidArgument,
               "name is longer than %zu bytes, or holds what cannot be printed", kMaxName);
}

}  // namespace

/// Passes the end of a session on to its link. The session may end before the link exists.
struct Endpoint::Fate {
  std::mutex mutex;
  Status why;
  bool left = false;
  std::weak_ptr<Link> link;

  void settle(const Status& cause) {
    std::shared_ptr<Link> found;
    {
      const std::lock_guard lock(mutex);
      if (why.ok()) why = cause;
      found = link.lock();
    }
    if (found) found->fail(cause.with(found->options().name));
  }
  void leave() {
    std::shared_ptr<Link> found;
    {
      const std::lock_guard lock(mutex);
      left = true;
      found = link.lock();
    }
    if (found) found->depart();
  }
  void join(const std::shared_ptr<Link>& made) {
    Status cause;
    bool departs = false;
    {
      const std::lock_guard lock(mutex);
      link = made;
      cause = why;
      departs = left;
    }
    if (!cause.ok()) made->fail(cause.with(made->options().name));
    if (departs) made->depart();
  }
};

/// Makes transports forget a meeting if it fails.
struct Endpoint::Forgets {
  Endpoint* endpoint;
  const bootstrap::Session* session;  // null: it has succeeded
  ~Forgets() {
    if (session != nullptr) endpoint->forget(*session);
  }
};

Result<std::shared_ptr<Endpoint>> Endpoint::create(comm::Runtime& runtime,
                                                   EndpointOptions options) {
  HETCCL_TRY(check_name(options.name));
  std::shared_ptr<Endpoint> made(new Endpoint(runtime, std::move(options)));
  HETCCL_TRY(made->open());
  return made;
}

Status Endpoint::open() {
  device_name_ = runtime_.resolve_device(options_.device);
  HETCCL_ASSIGN(device_, runtime_.device(device_name_));
  on_device_ = (device_->capabilities() & device::kHostAccessible) == 0;
  HETCCL_TRY(open_device_side());
  HETCCL_ASSIGN(door_thread_, start_thread("hetccl-door", [this] { serve_door(); }));
  HETCCL_ASSIGN(door_, runtime_.service().open_door(
                           [this](std::span<const uint8_t> words) { return on_knock(words); }));
  door_open_ = true;
  return {};
}

// On host memory, too, pieces are copied if they travel in windows, or in runs of a channel that
// takes no lists. The chunks for such runs are pinned for the first link that needs them.
Status Endpoint::open_device_side() {
  for (auto* const pool : {&device_side_.out, &device_side_.in})
    *pool = std::make_shared<ChunkPool>(*device_, kChunkBytes, kChunksEachWay);
  if (on_device_) HETCCL_TRY(device_side_.reserve());
  HETCCL_ASSIGN(device_side_.copies_out, Stager::create(*device_));
  HETCCL_ASSIGN(device_side_.copies_in, Stager::create(*device_));
  gates_ = std::make_unique<Gates>(*device_);
  return {};
}

void Endpoint::close(TimePoint deadline) {
  std::call_once(closes_, [this, deadline] {
    if (door_open_) runtime_.service().close_door(door_);
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      for (const auto& one : cancels_) {
        if (const auto cancel = one.lock()) cancel->set(destroyed());
      }
    }
    news_.notify_all();
    if (door_thread_.joinable()) door_thread_.join();  // ends the meetings too
    std::map<uint64_t, Peer> peers;
    {
      const std::lock_guard lock(mutex_);
      peers.swap(peers_);
    }
    for (auto& [number, peer] : peers) leave(peer, destroyed());
    for (auto& [number, peer] : peers) end(std::move(peer), deadline);
    closed_.store(true);
    runtime_.engine().notify(true);
  });
}

// Sends pending messages first.
void Endpoint::leave(const Peer& peer, const Status& why) {
  if (!peer.link) return;
  auto& engine = runtime_.engine();
  engine.wait([&] { return peer.link->flushed() || peer.link->over(); },
              engine.clock().now() + kFlushTime);
  peer.link->fail(why);
}

std::string Endpoint::metadata() const {
  Metadata metadata{options_.name, door_, {}};
  for (const auto& region : regions_.all()) {
    if (region->label.empty()) continue;
    metadata.regions.push_back({region->id, region->bytes, region->access, region->label});
  }
  return encode(metadata);
}

// --- regions

Result<uint64_t> Endpoint::add_region(void* data, size_t bytes, uint32_t flags, std::string label) {
  constexpr uint32_t kFlags = kGet | kPut | kHostMemory;
  if ((flags & ~kFlags) != 0) {
    return error(ErrorCode::InvalidArgument, "flags is 0x%x: it has bits that mean nothing", flags);
  }
  if (label.size() > kMaxName) {
    return error(ErrorCode::InvalidArgument, "label has %zu bytes: at most %zu are possible",
                 label.size(), kMaxName);
  }
  auto region = std::make_shared<Region>();
  region->data = static_cast<std::byte*>(data);
  region->bytes = bytes;
  region->on_device = on_device_ && (flags & kHostMemory) == 0;
  region->access = flags & (kGet | kPut);
  region->label = std::move(label);
  if (data != nullptr) HETCCL_TRY(check_owner(data, region->on_device));
  if (data != nullptr && bytes > 0) register_with_cards(*region);
  return regions_.add(std::move(region));
}

// Refuses memory of another owner: a kernel that reads it would destroy the process's context.
Status Endpoint::check_owner(const void* data, bool on_device) const {
  const std::string gpu = runtime_.host_pointers().gpu_of(data);
  // An adaptor's device may be another vendor's by name.
  const bool is_anothers = gpu != device_name_ && gpu.starts_with(device_->vendor() + ":");
  if (!gpu.empty() && (!on_device || is_anothers)) {
    return error(ErrorCode::InvalidArgument,
                 "data is memory of the GPU %s, and this endpoint takes memory of %s: make an "
                 "endpoint with the device \"%s\" for it",
                 gpu.c_str(), on_device ? device_name_.c_str() : "the host", gpu.c_str());
  }
  if (gpu.empty() && on_device && runtime_.gpu_number(device_name_) >= 0) {
    return error(ErrorCode::InvalidArgument,
                 "data is the host's memory, and this endpoint is on %s: register it with "
                 "hetcclRegionHost",
                 device_->model().c_str());
  }
  return {};
}

// Registers a region if possible. Unregistered memory moves as well, through registered buffers.
void Endpoint::register_with_cards(Region& region) {
  const bool uses_device = region.on_device || !on_device_;
  exec::RegisteredMemory* const memory = uses_device ? runtime_.memory_of(*device_) : nullptr;
  if (memory == nullptr) return;
  if (!region.on_device) {
    auto kept = memory->keep(region.data, region.bytes);
    region.registered = kept.ok() && kept.value() != nullptr;
    if (region.registered) region.holds.push_back(std::move(kept).value());
  } else if (runtime_.config().rdma_gpu) {
    memory->try_cards(runtime_.config().init_timeout_ms);
    region.registered = memory->hold(region.data, region.bytes, region.holds);
  }
}

Status Endpoint::remove_region(uint64_t id, int64_t timeout_ms) {
  HETCCL_ASSIGN(const std::shared_ptr<Region> region, regions_.remove(id));
  auto& engine = runtime_.engine();
  const auto unused = [&] { return region->uses == 0; };
  const TimePoint deadline = engine.clock().now() + milliseconds(timeout_ms);
  if (engine.wait(unused, deadline)) return {};
  for (const auto& link : links()) {
    if (link->touches(*region)) {
      link->fail(error(ErrorCode::Timeout,
                       "%s still used region %" PRIx64 ", which was removed, after %" PRId64 " ms",
                       link->options().name.c_str(), id, timeout_ms));
    }
  }
  engine.wait(unused, TimePoint::max());
  return {};
}

// --- peers

Greeting Endpoint::greet() const {
  const Config& config = runtime_.config();
  Greeting greeting;
  greeting.protocol = kProtocol;
  greeting.name = options_.name;
  greeting.host = config.host_id.empty() ? host_identity() : config.host_id;
  greeting.host_name = host_name();
  greeting.pid = getpid();
  greeting.shares_memory = config.transport_shm && runtime_.shares_memory();
  for (const auto& listening : runtime_.listening()) {
    greeting.addresses[listening.transport->name()] = listening.address;
  }
  return greeting;
}

Result<uint64_t> Endpoint::connect(std::string_view metadata, int64_t timeout_ms) {
  HETCCL_ASSIGN(const Metadata theirs, metadata_from(metadata));
  bootstrap::Service& service = runtime_.service();
  HETCCL_ASSIGN(const bootstrap::UniqueId id, service.unique_id_for(theirs.door));
  const bootstrap::UniqueId concealed = bootstrap::conceal(id);
  const TimePoint deadline = clock().now() + milliseconds(timeout_ms);
  const std::string context = format("connecting to endpoint \"%s\"", theirs.name.c_str());
  HETCCL_ASSIGN(const auto cancel, add_cancel());
  Status knocked = service.knock(theirs.door, concealed, {timeout_ms, cancel.get()});
  if (!knocked.ok()) {
    service.withdraw(id);
    return knocked.with(context);
  }
  auto met = meet(id, 0, ms_until(deadline, clock().now()));
  if (met.ok()) return met;
  service.withdraw(id);
  return met.status().with(context);
}

// Requires that the link is lost or over.
void Endpoint::end(Peer peer, TimePoint deadline) {
  if (!peer.link) return;
  auto& engine = runtime_.engine();
  if (!engine.wait([&] { return peer.link->over(); }, deadline)) {
    return keep_until_exit(std::move(peer));  // the device may still copy
  }
  engine.remove(*peer.link);
  peer.session->leave(0);
  forget(*peer.session);
}

void Endpoint::forget(const bootstrap::Session& session) const {
  for (const auto& listening : runtime_.listening())
    listening.transport->forget(session.communicator(), session.rank());
}

// Makes a Cancel for one session, which watches it.
Result<std::shared_ptr<Cancel>> Endpoint::add_cancel() {
  HETCCL_ASSIGN(std::shared_ptr<Cancel> made, Cancel::create());
  const std::lock_guard lock(mutex_);
  if (stop_) return destroyed();
  std::erase_if(cancels_, [](const auto& one) { return one.expired(); });
  cancels_.push_back(made);
  return made;
}

// Joins a session of the two endpoints. When it ends, the link ends.
Result<std::unique_ptr<bootstrap::Session>> Endpoint::join(const bootstrap::UniqueId& id, int rank,
                                                           const Greeting& mine,
                                                           const WaitLimit& limit,
                                                           const std::shared_ptr<Fate>& fate) {
  bootstrap::JoinOptions join;
  join.rank = rank;
  join.n_ranks = 2;
  join.description = "endpoint " + describe_peer(mine);
  join.timeout_ms = limit.timeout_ms;
  join.cancel = limit.cancel;
  join.on_failure = [fate](const bootstrap::Failure& failure) {
    fate->settle({failure.code, failure.reason});
  };
  join.on_left = [fate](int, uint64_t) { fate->leave(); };
  return runtime_.service().join(id, std::move(join));
}

Result<uint64_t> Endpoint::meet(const bootstrap::UniqueId& id, int rank, int64_t timeout_ms) {
  const auto fate = std::make_shared<Fate>();
  HETCCL_ASSIGN(const auto cancel, add_cancel());
  const WaitLimit limit{timeout_ms, cancel.get()};
  const TimePoint deadline = limit.deadline();
  const auto left = [&] { return ms_until(deadline, limit.now()); };
  Greeting mine = greet();
  comm::WindowBudget::Share share;
  if (mine.shares_memory) share = runtime_.windows().take(*device_);
  mine.window_bytes = std::min(share.bytes(), kWindowBytes);
  HETCCL_ASSIGN(auto session, join(id, rank, mine, limit, fate));
  Forgets forgets{this, session.get()};
  const auto greetings = session->all_gather(encode(mine), left());
  if (!greetings.ok()) return greetings.status();
  HETCCL_ASSIGN(const Greeting theirs,
                greeting_from(greetings.value()[static_cast<size_t>(1 - rank)]));
  Link::Options options;
  options.name = describe_peer(theirs);
  options.communicator = session->communicator();
  options.liveness_ms = runtime_.config().liveness_ms;
  PeerInfo info;
  info.name = theirs.name;
  info.where = describe_process(theirs);
  HETCCL_ASSIGN(Carrier carrier,
                connect_channel({*session, mine, theirs, {left(), cancel.get()}}, options));
  if (carrier.window == nullptr && !carrier.channel->takes_lists())
    HETCCL_TRY(device_side_.reserve());
  share.keep(carrier.channel->window().size());
  info.transport = options.transport;
  options.on_over = [this] {
    mailbox_.note_loss();
    notify_door();
  };
  std::shared_ptr<Link> link;
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return destroyed();
    options.number = info.number = next_peer_++;
    link =
        std::make_shared<Link>(runtime_.engine(), regions_, mailbox_, std::move(options),
                               std::move(carrier.channel), std::move(carrier.window), device_side_);
    forgets.session = nullptr;
    peers_.emplace(info.number, Peer{info, cancel, std::move(share), std::move(session), link});
  }
  // Not under the lock, which `on_over` takes on the engine's thread.
  runtime_.engine().add(*link, [raw = link.get()](const Status& why) { raw->fail(why); });
  runtime_.engine().notify(true);
  fate->join(link);
  return info.number;
}

Result<Endpoint::Carrier> Endpoint::connect_channel(const Pair& pair, Link::Options& options) {
  const Greeting &mine = pair.mine, &theirs = pair.theirs;
  const transport::ChannelEnd end{mine.host, mine.shares_memory};
  transport::Transport* const transport =
      runtime_.transport(end, {theirs.host, theirs.shares_memory}, theirs.addresses);
  if (transport == nullptr) {
    return error(ErrorCode::RemoteError, "%s offers no transport that this endpoint can use",
                 options.name.c_str());
  }
  options.shm_source = transport->shm_source();
  options.transport = transport->name();
  exec::RegisteredMemory* const memory = runtime_.memory_of(*device_);
  options.reaches_device =
      transport->registers() && memory != nullptr && memory->reaches(*transport);
  const int self = pair.session.rank();
  transport::PeerId id{pair.session.communicator(), self, 1 - self};
  id.bus = device_->bus_id();
  const uint64_t window = std::min(mine.window_bytes, theirs.window_bytes) / kPage * kPage;
  if (options.shm_source != nullptr && lower::Ring::bytes_of_window(window) >= kLeastRing)
    id.window = window;
  HETCCL_TRY(transport->reserve(1));
  Carrier carrier;
  HETCCL_ASSIGN(carrier.channel, transport->connect(id, theirs.addresses.at(transport->name()),
                                                    pair.session.secret(), pair.limit));
  const auto shared = carrier.channel->window();
  if (!shared.empty()) {
    HETCCL_ASSIGN(carrier.window, exec::Window::open(*device_, shared, self == 0));
  }
  return carrier;
}

Status Endpoint::disconnect(uint64_t peer) {
  Peer gone;
  {
    const std::lock_guard lock(mutex_);
    auto found = peers_.extract(peer);
    if (found.empty()) return no_peer(peer);
    gone = std::move(found.mapped());
  }
  leave(gone, error(ErrorCode::Aborted, "this endpoint has left \"%s\"", gone.info.name.c_str()));
  end(std::move(gone), TimePoint::max());
  return {};
}

std::vector<PeerInfo> Endpoint::peers() const {
  const std::lock_guard lock(mutex_);
  std::vector<PeerInfo> all;
  for (const auto& [number, peer] : peers_) all.push_back(describe(peer));
  return all;
}

Result<PeerInfo> Endpoint::peer(uint64_t number) const {
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find(number);
  if (found == peers_.end()) return no_peer(number);
  return describe(found->second);
}

PeerInfo Endpoint::describe(const Peer& peer) {
  PeerInfo info = peer.info;
  if (!peer.link) return info;
  info.statistics = peer.link->statistics();
  info.gone = peer.link->cause();
  return info;
}

std::vector<std::shared_ptr<Link>> Endpoint::links() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Link>> all;
  for (const auto& [number, peer] : peers_) {
    if (peer.link) all.push_back(peer.link);
  }
  return all;
}

Result<std::shared_ptr<Link>> Endpoint::link_to(uint64_t peer) const {
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return no_peer(peer);
  if (found->second.link) return found->second.link;
  return found->second.info.gone;
}

// --- transfers

Result<std::shared_ptr<Transfer>> Endpoint::begin(uint64_t peer, Call call) {
  HETCCL_ASSIGN(const std::shared_ptr<Link> link, link_to(peer));
  Transfer::Options options;
  if (call.notification) HETCCL_TRY(check_notification(*call.notification));
  options.notification = std::move(call.notification);
  const int64_t ms = call.timeout_ms > 0 ? call.timeout_ms : runtime_.config().timeout_ms;
  options.deadline = clock().now() + milliseconds(ms);
  if (on_device_) {
    HETCCL_ASSIGN(options.gate, add_gate(call.stream));
  }
  auto transfer = std::make_shared<Transfer>(call.puts, std::move(call.blocks), std::move(options));
  HETCCL_TRY(link->start(transfer));
  return transfer;
}

Result<Gates::Gate> Endpoint::add_gate(void* native) {
  if (device_->is_capturing(native)) {
    return error(ErrorCode::InvalidUsage,
                 "stream is being captured into a graph: transfers cannot be part of one");
  }
  HETCCL_ASSIGN(const auto stream, device_->wrap_stream(native));
  return gates_->add(*stream);
}

bool Endpoint::wait(const Transfer& transfer, TimePoint deadline) {
  return runtime_.engine().wait([&] { return transfer.done(); }, deadline);
}

void Endpoint::cancel(uint64_t peer, Transfer& transfer, const char* reason) {
  const auto link = link_to(peer);  // no link: the transfer is done
  if (link.ok()) link.value()->cancel(transfer, error(ErrorCode::Aborted, "%s", reason));
}

// --- notifications

Status Endpoint::check_notification(const Bytes& notification) {
  if (notification.size() <= kMaxNotification) return {};
  return error(ErrorCode::InvalidArgument, "a notification of %zu bytes: at most %zu are possible",
               notification.size(), kMaxNotification);
}

Status Endpoint::notify(uint64_t peer, Bytes notification) {
  HETCCL_TRY(check_notification(notification));
  HETCCL_ASSIGN(const std::shared_ptr<Link> link, link_to(peer));
  return link->notify(std::move(notification));
}

Result<std::optional<Mailbox::Letter>> Endpoint::take_notification(TimePoint deadline) {
  auto& engine = runtime_.engine();
  const auto ready = [this] { return !mailbox_.empty() || closed_.load(); };
  while (engine.wait(ready, deadline)) {
    bool makes_room = false;
    auto letter = mailbox_.take(&makes_room);
    if (makes_room) engine.notify(true);
    if (letter) return letter;
    if (closed_.load()) return destroyed();
  }
  return std::optional<Mailbox::Letter>();
}

}  // namespace hetccl::onesided
