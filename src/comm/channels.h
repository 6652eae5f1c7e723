// A communicator's channels to other ranks. Channels that plans need are made at init. All others
// are made in the background on first use, without blocking the caller.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <vector>

#include "base/json.h"
#include "comm/chores.h"
#include "comm/membership.h"
#include "exec/executor.h"

namespace hetccl::comm {

/// The thread that opens the communicator calls `open`, `attach` and the getters. Threads that
/// launch call `reach` and `meet` under the launch mutex. The thread that destroys the communicator
/// calls `stop` and `close`. Transports connect on their own threads and hand channels over under
/// Engine::exclusively.
class Channels {
 public:
  /// Drops connections that other ranks began and never finished. Called at the end, also if this
  /// rank failed before it made channels.
  static void forget_visitors(Runtime& runtime, const bootstrap::Session& session);

  /// The context, the membership (already introduced) and the device must outlive it. Windows take
  /// at most `share`.
  Channels(const Context& context, Membership& membership, device::Device& device,
           WindowBudget::Share share)
      : context_(context),
        membership_(membership),
        device_(device),
        rank_(membership.rank()),
        window_share_(std::move(share)),
        explaining_([this](const Status& why) { report(why); }) {}

  /// Makes the channels and windows that plans between clusters need.
  Status open();
  /// Returns the channels that `open` made, by peer.
  [[nodiscard]] const std::map<int, std::unique_ptr<transport::Channel>>& opened() const {
    return channels_;
  }
  [[nodiscard]] bool has_windows() const { return !windows_.empty(); }
  /// Returns the largest number of connections in one channel of `open`.
  [[nodiscard]] size_t streams() const { return streams_; }
  /// Hands the channels to `executor`, and later ones as they are made. Requires that the engine is
  /// not driving. The executor must outlive `stop`.
  void attach(exec::Executor& executor);

  /// Connects to those peers of a program that have no channel yet.
  void reach(const std::vector<int>& peers);
  /// Connects to the peers of `messages`.
  Status meet(std::span<const exec::Message> messages);

  /// Returns the number under which message channels connect, so that they never meet channels of
  /// collectives.
  static uint64_t messages_number(const bootstrap::Session& session);
  /// Returns the limit for connecting to a peer that may call much later.
  static WaitLimit patient_limit(const Cancel& cancel);
  /// Returns whether `peer` is in another cluster.
  [[nodiscard]] bool crosses(int peer) const;
  /// Returns how `peer` is reached, before a channel or window exists.
  [[nodiscard]] exec::Peer way_to(int peer) const;
  /// Returns the ranks that each transport reaches, by the transport's name.
  [[nodiscard]] std::map<std::string, std::vector<int>> by_transport() const;
  /// Returns, for `dump`, the ranks that each transport reaches and how it moves this rank's
  /// memory.
  [[nodiscard]] std::vector<Json> describe_transports() const;

  /// Waits until no connection is being made. `Context::cancel` ends the wait.
  void stop();
  /// Requires that nothing uses the channels any more.
  void close();

 private:
  // Returns the best transport that both ranks have; null: none.
  [[nodiscard]] transport::Transport* transport_to(int peer) const;
  /// Returns the id with no window requested.
  [[nodiscard]] transport::PeerId id_of(uint64_t number, int peer) const;
  Status reserve(const std::vector<int>& peers) const;
  void try_cards() const;
  Status open_windows(int peer, size_t for_collectives);
  /// Connects by the best transport that both ranks have. Blocks until the peer connects.
  Result<std::unique_ptr<transport::Channel>> make_channel(const transport::PeerId& id) const;
  Status meet(int peer);
  /// The transport and address for connecting to a peer.
  struct Way {
    transport::Transport* transport = nullptr;
    const transport::Address* address = nullptr;
  };
  Result<Way> find_way(int peer) const;
  void report(const Status& why);
  /// Returns whether `peer` has left. Waits at most Verdict::kNewsTime for the news.
  [[nodiscard]] bool await_departure(int peer) const;
  void connect_later(int peer, bool for_messages);
  void use(int peer, bool for_messages, std::unique_ptr<transport::Channel> channel);
  void end_connecting();
  void explain_later(int peer, bool for_messages, const Status& why);
  void explain(int peer, bool for_messages, const Status& why);

  const Context& context_;
  Membership& membership_;
  device::Device& device_;
  const int rank_;
  // Filled by `open`, later only under Engine::exclusively.
  std::map<int, std::unique_ptr<transport::Channel>> channels_, message_channels_;
  size_t streams_ = 1;
  WindowBudget::Share window_share_;
  std::map<int, std::unique_ptr<exec::Window>> windows_, message_windows_;  // of `channels_`
  exec::Executor* executor_ = nullptr;

  // Guarded by the communicator's launch mutex.
  std::set<int> reached_, met_;  // peers connected or being connected: for plans, for messages

  std::mutex mutex_;  // guards the members below
  std::condition_variable ended_;
  size_t begun_ = 0;   // connections being made
  Chores explaining_;  // reports connections that failed
};

}  // namespace hetccl::comm
