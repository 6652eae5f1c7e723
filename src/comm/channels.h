// A communicator's channels to other ranks: those that plans need from the first are made at init,
// the rest in the background when a call first needs them, which never blocks its caller.
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

/// `open`, `attach` and what reads channels by the thread that opens the communicator; `reach` and
/// `meet` by the threads that launch, under its launch mutex; `stop` and `close` by the thread that
/// destroys it. Transports make channels meanwhile, which are handed over where nobody drives
/// (Engine::exclusively).
class Channels {
 public:
  /// Drops what others began to connect to this rank, which never did. At the end, also where the
  /// ranks did not get as far as to make channels.
  static void forget_visitors(Runtime& runtime, const bootstrap::Session& session);

  /// The context, the members, who are introduced, and the device outlive it. Windows take no more
  /// than `share`.
  Channels(const Context& context, Membership& membership, device::Device& device,
           WindowBudget::Share share)
      : context_(context),
        membership_(membership),
        device_(device),
        rank_(membership.rank()),
        window_share_(std::move(share)),
        explaining_([this](const Status& why) { report(why); }) {}

  /// Makes the channels, and their windows, that plans between clusters need.
  Status open();
  /// Those of `open`, by peer.
  [[nodiscard]] const std::map<int, std::unique_ptr<transport::Channel>>& opened() const {
    return channels_;
  }
  [[nodiscard]] bool has_windows() const { return !windows_.empty(); }
  /// The connections of that channel of `open` that has most.
  [[nodiscard]] size_t streams() const { return streams_; }
  /// Hands the channels to `executor`, and later ones when they are made. Call where nobody drives.
  /// It outlives `stop`.
  void attach(exec::Executor& executor);

  /// Connects to the peers of a program that have no channel yet.
  void reach(const std::vector<int>& peers);
  /// Connects to the other ends of messages.
  Status meet(std::span<const exec::Message> messages);

  /// The number of this communicator's messages: their channels meet none of its collectives'.
  static uint64_t messages_number(const bootstrap::Session& session);
  /// The limit of what waits for another end, which may be long in coming.
  static WaitLimit patient_limit(const Cancel& cancel);
  /// Whether that rank is in another cluster.
  [[nodiscard]] bool crosses(int peer) const;
  /// How that rank is reached, without a channel or a window.
  [[nodiscard]] exec::Peer way_to(int peer) const;
  /// The ranks that each transport reaches, and how it moves this rank's memory, for `dump`.
  [[nodiscard]] std::vector<Json> describe_transports() const;

  /// Returns once nothing connects any more, which `Context::cancel` ends.
  void stop();
  /// Nothing uses the channels any more.
  void close();

 private:
  // The best that both ranks have; null where there is none.
  [[nodiscard]] transport::Transport* transport_to(int peer) const;
  /// Without a window.
  [[nodiscard]] transport::PeerId id_of(uint64_t number, int peer) const;
  Status reserve(const std::vector<int>& peers) const;
  void try_cards() const;
  Status open_windows(int peer, size_t for_collectives);
  /// A channel by the best transport that both ranks have. Blocks while ranks set up.
  Result<std::unique_ptr<transport::Channel>> make_channel(const transport::PeerId& id) const;
  Status meet(int peer);
  /// How to connect with `peer`.
  struct Way {
    transport::Transport* transport = nullptr;
    const transport::Address* address = nullptr;
  };
  Result<Way> find_way(int peer) const;
  void report(const Status& why);
  /// Has `peer` left, or does news of that come in a moment? Blocks for that.
  [[nodiscard]] bool has_left_soon(int peer) const;
  void connect_later(int peer, bool for_messages);
  void use(int peer, bool for_messages, std::unique_ptr<transport::Channel> channel);
  void end_connecting();
  void explain_later(int peer, bool for_messages, const Status& why);
  void explain(int peer, bool for_messages, const Status& why);

  const Context& context_;
  Membership& membership_;
  device::Device& device_;
  const int rank_;
  // Made by `open`, and then where nobody drives.
  std::map<int, std::unique_ptr<transport::Channel>> channels_, message_channels_;
  size_t streams_ = 1;
  WindowBudget::Share window_share_;
  std::map<int, std::unique_ptr<exec::Window>> windows_, message_windows_;  // of `channels_`
  exec::Executor* executor_ = nullptr;

  // Guarded by the communicator's launch mutex.
  std::set<int> reached_, met_;  // ranks that are connected, or being so: for plans, for messages

  std::mutex mutex_;  // guards what follows
  std::condition_variable ended_;
  size_t begun_ = 0;   // connections that transports make
  Chores explaining_;  // why some were not made
};

}  // namespace hetccl::comm
