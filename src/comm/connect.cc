// Channels to other ranks: those that plans need from the first are made at init, the rest in the
// background when a call first needs them, which never blocks its caller.
#include <algorithm>
#include <thread>

#include "comm/communicator.h"

namespace hetccl::comm {

using std::chrono::milliseconds;

namespace {

// A channel for messages meets no channel of collectives.
constexpr uint64_t kMessagesMark = 0x6d65737361676573;  // "messages"
// The other end may be long in coming: deadlines are those of what waits for the channel.
constexpr int64_t kPatienceMs = 100'000'000'000;
constexpr milliseconds kLookTime{10};

}  // namespace

uint64_t Communicator::messages_number() const {
  return session_->communicator() ^ kMessagesMark;
}

Result<std::unique_ptr<transport::Channel>> Communicator::make_channel(const transport::PeerId& id,
                                                                       const WaitLimit& limit) {
  const int peer = id.peer;
  const auto end = [&](int one) { return end_of(topology().infos()[static_cast<size_t>(one)]); };
  const auto& addresses = introduction_->addresses[static_cast<size_t>(peer)];
  auto* transport = runtime_.transport(end(rank()), end(peer), addresses);
  if (transport == nullptr) {
    return error(Code::RemoteError, "rank %d offers no transport that rank %d can use", peer,
                 rank());
  }
  return transport->connect(id, addresses.at(transport->name()), session_->secret(), limit);
}

// All ranks make the channels of one collective in ascending order: of all that wait, the two of
// the lowest pair wait for each other.
void Communicator::reach(Program& program) {
  std::vector<int> missing;
  for (const int peer : program.exec.peers()) {
    if (reached_.insert(peer).second) missing.push_back(peer);
  }
  program.reached = true;
  if (missing.empty()) return;
  runtime_.engine().exclusively([&] {
    for (const int peer : missing) executor_->connect({peer, nullptr, crosses(peer)});
  });
  connect_later(std::move(missing), false);
}

// Ranks send and receive in no common order, so that no channel may wait for another to be made.
Status Communicator::meet(std::span<const exec::Message> messages) {
  for (const exec::Message& message : messages) {
    if (message.peer != exec::kAnyRank) {
      HETCCL_TRY(meet(message.peer));
      continue;
    }
    for (int peer = 0; peer < n_ranks(); ++peer) HETCCL_TRY(meet(peer));
  }
  return {};
}

Status Communicator::meet(int peer) {
  if (peer == rank() || !met_.insert(peer).second) return {};
  Status status;
  const auto window = message_windows_.find(peer);
  runtime_.engine().exclusively([&] {
    status =
        messages_->meet(peer, window == message_windows_.end() ? nullptr : window->second.get());
  });
  HETCCL_TRY(std::move(status));
  connect_later({peer}, true);
  return {};
}

void Communicator::connect_later(std::vector<int> peers, bool for_messages) {
  auto chores = std::find_if(connecting_.begin(), connecting_.end(),
                             [](Chores& some) { return some.idle(); });
  if (chores == connecting_.end()) chores = connecting_.emplace(connecting_.end());
  const Status posted = chores->post([this, peers = std::move(peers), for_messages] {
    for (const int peer : peers) {
      const Status status = connect(peer, for_messages).with(format("connecting to rank %d", peer));
      if (status.ok()) continue;
      // Messages that want it say that it has left; a receive from any rank wants others, too.
      if (for_messages && has_left_soon(peer)) continue;
      {
        // It may be how a failure looks from here of which all are about to be told.
        std::unique_lock lock(failure_mutex_);
        verdict_.wait_for(lock, kNewsTime, [&] { return !failure_.ok() || cancel_->is_set(); });
      }
      if (cancel_->is_set() || failed_.load()) return;
      return report(status.code(), peer, format("rank %d: %s", rank(), status.message().c_str()));
    }
  });
  if (posted.ok()) return;
  report(posted.code(), rank(), format("rank %d: %s", rank(), posted.message().c_str()));
}

bool Communicator::has_left_soon(int peer) const {
  for (auto waited = milliseconds(0); waited < kNewsTime; waited += kLookTime) {
    if (departures_.has_left(peer)) return true;
    if (cancel_->is_set() || failed_.load()) return false;
    std::this_thread::sleep_for(kLookTime);
  }
  return departures_.has_left(peer);
}

// What others began to connect and this rank never did.
void Communicator::forget_visitors() {
  for (const auto& listening : runtime_.listening()) {
    for (const uint64_t number : {session_->communicator(), messages_number()}) {
      listening.transport->forget(number, rank());
    }
  }
}

Status Communicator::connect(int peer, bool for_messages) {
  const uint64_t number = for_messages ? messages_number() : session_->communicator();
  WaitLimit limit(kPatienceMs, cancel_.get());
  limit.patient = true;
  HETCCL_ASSIGN(auto made, make_channel({number, rank(), peer}, limit));
  auto& engine = runtime_.engine();
  engine.exclusively([&] {
    auto& channel = (for_messages ? message_channels_ : channels_)[peer];
    channel = std::move(made);
    for_messages ? messages_->connect(peer, channel.get(), crosses(peer))
                 : executor_->connect({peer, channel.get(), crosses(peer)});
  });
  engine.notify();
  return {};
}

}  // namespace hetccl::comm
