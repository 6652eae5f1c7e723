#include "comm/channels.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/exception.h"
#include "base/numa.h"
#include "plan/planner.h"

namespace hetccl::comm {

using std::chrono::milliseconds;

namespace {

// Keeps channels for messages apart from those for collectives.
constexpr uint64_t kMessagesMark = 0x6d65737361676573;  // "messages"
// The peer may call much later. Deadlines belong to the operations that wait for the channel.
constexpr int64_t kPatienceMs = 100'000'000'000;
constexpr milliseconds kNewsLookTime{10};

exec::Window* find_window(const std::map<int, std::unique_ptr<exec::Window>>& windows, int peer) {
  const auto found = windows.find(peer);
  return found == windows.end() ? nullptr : found->second.get();
}

}  // namespace

uint64_t Channels::messages_number(const bootstrap::Session& session) {
  return session.communicator() ^ kMessagesMark;
}

WaitLimit Channels::patient_limit(const Cancel& cancel) {
  WaitLimit limit(kPatienceMs, &cancel);
  limit.patient = true;
  return limit;
}

void Channels::forget_visitors(Runtime& runtime, const bootstrap::Session& session) {
  for (const auto& listening : runtime.listening()) {
    for (const uint64_t number : {session.communicator(), messages_number(session)}) {
      listening.transport->forget(number, session.rank());
    }
  }
}

bool Channels::crosses(int peer) const {
  return membership_.topology().cluster_of(rank_) != membership_.topology().cluster_of(peer);
}

exec::Peer Channels::way_to(int peer) const {
  exec::Peer way{.rank = peer, .crosses = crosses(peer)};
  const transport::Transport* const transport = transport_to(peer);
  const topology::RankInfo& info = membership_.info(rank_);
  way.direct = transport == nullptr ? info.host_access : transport->reaches(end_of(info));
  way.registers = transport != nullptr && transport->registers();
  if (way.direct || !way.registers) return way;
  way.direct = way.registered = context_.runtime.memory_of(device_)->reaches(*transport);
  return way;
}

std::map<std::string, std::vector<int>> Channels::by_transport() const {
  std::map<std::string, std::vector<int>> peers;
  for (int peer = 0; peer < membership_.session().n_ranks(); ++peer) {
    const transport::Transport* const one = peer == rank_ ? nullptr : transport_to(peer);
    if (one != nullptr) peers[one->name()].push_back(peer);
  }
  return peers;
}

std::vector<Json> Channels::describe_transports() const {
  std::vector<Json> found;
  for (const auto& [name, reached] : by_transport()) {
    const exec::Peer way = way_to(reached.front());
    const char* memory = way.direct ? "device" : "pinned";
    if (membership_.info(rank_).host_access) memory = "system";
    std::string reason;
    if (!way.direct) reason = "it moves memory of hosts";
    if (!way.direct && way.registers)
      reason = context_.runtime.memory_of(device_)->why_not(*transport_to(reached.front()));
    found.push_back({{"memory", memory}, {"name", name}, {"peers", reached}, {"reason", reason}});
  }
  return found;
}

// Tests at init whether NICs can reach this device's memory, before a tensor depends on it. All
// peers count, because messages may go to any rank.
void Channels::try_cards() const {
  const auto& config = context_.runtime.config();
  exec::RegisteredMemory* const memory = context_.runtime.memory_of(device_);
  if (memory == nullptr || membership_.info(rank_).host_access || !config.rdma_gpu) return;
  bool registers = false;
  for (int peer = 0; peer < membership_.session().n_ranks() && !registers; ++peer) {
    const transport::Transport* const one = peer == rank_ ? nullptr : transport_to(peer);
    registers = one != nullptr && one->registers();
  }
  if (!registers) return;
  memory->try_cards(context_.init_limit());
  for (const auto& listening : context_.runtime.listening()) {
    const transport::Transport& transport = *listening.transport;
    if (!transport.registers()) continue;
    const std::string reason = memory->why_not(transport);
    context_.runtime.log().info("transport %s moves the memory of %s %s%s",
                                transport.name().c_str(), device_.model().c_str(),
                                reason.empty() ? "itself" : "through the host's: ", reason.c_str());
  }
}

// Opens the channels of plans. Device ranks of one host share pinned memory that both reach. It is
// pinned here, because pinning later may wait for the device.
Status Channels::open() {
  const std::vector<int> peers = plan::peers(rank_, membership_.topology());
  HETCCL_TRY(reserve(peers));
  try_cards();
  size_t kept = 0;
  const OnNode near(numa_node_of(device_.bus_id()));  // places shared memory near the device
  for (const int peer : peers) {
    const auto shared = static_cast<size_t>(membership_.topology().window(rank_, peer));
    const size_t messages = exec::Window::bytes_for_messages(
        shared, membership_.info(rank_).host_access, membership_.info(peer).host_access);
    transport::PeerId id = id_of(membership_.session().communicator(), peer);
    id.window = shared + messages;
    HETCCL_ASSIGN(channels_[peer], make_channel(id));
    reached_.insert(peer);
    streams_ = std::max(streams_, channels_[peer]->streams());
    const size_t window = channels_[peer]->window().size();
    if (window == 0) continue;
    if (window != shared + messages) {
      return error(
          ErrorCode::InternalError,
          "a channel with rank %d shares %zu bytes of memory, not %zu. This is a defect of "
          "its transport: please report it",
          peer, window, shared + messages);
    }
    HETCCL_TRY(open_windows(peer, shared));
    kept += window;
  }
  window_share_.keep(kept);
  return {};
}

// Collectives use the first bytes of the channel's window, messages the rest.
Status Channels::open_windows(int peer, size_t for_collectives) {
  const auto memory = channels_[peer]->window();
  HETCCL_ASSIGN(windows_[peer],
                exec::Window::open(device_, memory.first(for_collectives), rank_ < peer));
  if (memory.size() == for_collectives) return {};
  HETCCL_ASSIGN(message_windows_[peer],
                exec::Window::open(device_, memory.subspan(for_collectives), rank_ < peer));
  return {};
}

void Channels::attach(exec::Executor& executor) {
  executor_ = &executor;
  for (const auto& [peer, channel] : channels_) {
    exec::Peer way = way_to(peer);
    way.channel = channel.get();
    way.window = find_window(windows_, peer);
    executor.connect(way);
  }
}

transport::Transport* Channels::transport_to(int peer) const {
  const auto end = [&](int one) { return end_of(membership_.info(one)); };
  const auto& addresses = membership_.introduction().addresses[static_cast<size_t>(peer)];
  return context_.runtime.transport(end(rank_), end(peer), addresses);
}

transport::PeerId Channels::id_of(uint64_t number, int peer) const {
  const auto names = [&](int rank) {
    std::vector<std::string> cards;
    for (const topology::Nic& nic : membership_.topology().cards(rank)) cards.push_back(nic.name);
    return cards;
  };
  return {number, rank_, peer, 0, names(rank_), names(peer), membership_.info(rank_).bus_id};
}

// Checks the process's limit of descriptors now, so that exceeding it fails at once, not at the
// init timeout.
Status Channels::reserve(const std::vector<int>& peers) const {
  std::map<transport::Transport*, size_t> channels;
  for (const int peer : peers) ++channels[transport_to(peer)];
  for (const auto& [transport, n] : channels) {
    if (transport != nullptr) HETCCL_TRY(transport->reserve(n));
  }
  return {};
}

Result<Channels::Way> Channels::find_way(int peer) const {
  auto* transport = transport_to(peer);
  if (transport == nullptr) {
    const std::string& wanted = context_.runtime.config().transport;
    return error(ErrorCode::RemoteError, "rank %d offers no transport that rank %d can use%s%s",
                 peer, rank_, wanted.empty() ? "" : ", with HETCCL_TRANSPORT=", wanted.c_str());
  }
  const auto& addresses = membership_.introduction().addresses[static_cast<size_t>(peer)];
  return Way{transport, &addresses.at(transport->name())};
}

Result<std::unique_ptr<transport::Channel>> Channels::make_channel(
    const transport::PeerId& id) const {
  HETCCL_ASSIGN(const Way way, find_way(id.peer));
  return way.transport->connect(id, *way.address, membership_.session().secret(),
                                context_.init_limit());
}

void Channels::reach(const std::vector<int>& peers) {
  std::vector<int> missing;
  for (const int peer : peers) {
    if (reached_.insert(peer).second) missing.push_back(peer);
  }
  if (missing.empty()) return;
  context_.engine().exclusively([&] {
    for (const int peer : missing) executor_->connect(way_to(peer));
  });
  for (const int peer : missing) connect_later(peer, false);
}

Status Channels::meet(std::span<const exec::Message> messages) {
  for (const exec::Message& message : messages) {
    if (message.peer != exec::kAnyRank) {
      HETCCL_TRY(meet(message.peer));
      continue;
    }
    const int n_ranks = membership_.session().n_ranks();
    for (int peer = 0; peer < n_ranks; ++peer) HETCCL_TRY(meet(peer));
  }
  return {};
}

Status Channels::meet(int peer) {
  if (peer == rank_ || met_.contains(peer)) return {};
  // Make the ends before the engine stops driving: a driver may block here until the engine has
  // moved data.
  exec::Peer way = way_to(peer);
  way.window = find_window(message_windows_, peer);
  HETCCL_ASSIGN(auto ends, executor_->make_ends(way));
  context_.engine().exclusively([&] { executor_->meet(peer, std::move(ends)); });
  met_.insert(peer);
  connect_later(peer, true);
  return {};
}

// Connects in the background, because the peer may never call. Ranks connect in no common order, so
// no channel may wait for another one.
void Channels::connect_later(int peer, bool for_messages) {
  const auto way = find_way(peer);
  if (!way.ok()) return explain_later(peer, for_messages, way.status());
  const auto connected = [this, peer, for_messages](auto made) {
    try {
      if (made.ok()) {
        use(peer, for_messages, std::move(made).value());
      } else if (!context_.cancel->is_set()) {
        explain_later(peer, for_messages, made.status());
      }
    } catch (...) {
      report_exception([this](const Status& why) { report(why); });
    }
    end_connecting();
  };
  {
    const std::lock_guard lock(mutex_);
    ++begun_;
  }
  const auto& session = membership_.session();
  const uint64_t number = for_messages ? messages_number(session) : session.communicator();
  try {
    way.value().transport->connect_later(id_of(number, peer), *way.value().address,
                                         session.secret(), patient_limit(*context_.cancel),
                                         connected);
  } catch (...) {
    end_connecting();
    throw;
  }
}

void Channels::end_connecting() {
  const std::lock_guard lock(mutex_);
  --begun_;
  ended_.notify_all();
}

void Channels::report(const Status& why) {
  membership_.verdict().report_own(rank_, why.with("connecting"));
}

// Explains on another thread than the transport's, because it takes a while.
void Channels::explain_later(int peer, bool for_messages, const Status& why) {
  const Status posted = explaining_.post([=, this] { explain(peer, for_messages, why); });
  if (!posted.ok()) report(posted);
}

void Channels::explain(int peer, bool for_messages, const Status& why) {
  Verdict& verdict = membership_.verdict();
  // Messages to that peer then report that it has left. A receive from any rank may match other
  // peers.
  if (for_messages && await_departure(peer)) return;
  // The lost connection may be an effect of a failure that all ranks are about to be told.
  if (!context_.cancel->is_set()) verdict.wait(Verdict::kNewsTime);
  if (context_.cancel->is_set() || verdict.failed()) return;
  verdict.report_own(peer, why.with(format("connecting to rank %d", peer)));
}

bool Channels::await_departure(int peer) const {
  const exec::Departures& departures = membership_.departures();
  for (auto waited = milliseconds(0); waited < Verdict::kNewsTime; waited += kNewsLookTime) {
    if (departures.has_left(peer)) return true;
    if (context_.cancel->is_set() || membership_.verdict().failed()) return false;
    std::this_thread::sleep_for(kNewsLookTime);
  }
  return departures.has_left(peer);
}

void Channels::use(int peer, bool for_messages, std::unique_ptr<transport::Channel> made) {
  auto& engine = context_.engine();
  engine.exclusively([&] {
    // A second channel would be a defect; the first one may be in use.
    auto& channels = for_messages ? message_channels_ : channels_;
    const auto known = channels.try_emplace(peer, std::move(made)).first;
    executor_->connect({.rank = peer,
                        .channel = known->second.get(),
                        .crosses = crosses(peer),
                        .for_messages = for_messages});
  });
  engine.notify();
}

void Channels::stop() {
  {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return begun_ == 0; });
  }
  explaining_.wait();
}

// Closing a window may call a driver that waits for other ranks' work, so the engine must drive
// meanwhile. Channels themselves are driven by it, so they close exclusively.
void Channels::close() {
  windows_.clear();
  message_windows_.clear();
  window_share_.keep(0);
  context_.engine().exclusively([&] {
    channels_.clear();
    message_channels_.clear();
  });
}

}  // namespace hetccl::comm
