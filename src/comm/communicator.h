// One rank of one communicator: the only place where topology, plans, adaptors and the executor
// come together. It has three parts, by how long each lives and by what it knows:
//
// - Membership: who is in it, and what all ranks know of each other.
// - Fabric: what carries data between these members.
// - Dispatch: how a call becomes an operation.
//
// Dispatch uses the Fabric, and both use the Membership; nothing points the other way. What begins
// and ends a communicator, or splits it, is here.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/split.h"
#include "comm/dispatch.h"
#include "comm/gathering.h"
#include "comm/making.h"

namespace hetccl::comm {

/// Thread-safe.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  /// Collective over all ranks of `id`; blocks within the init timeout, unless
  /// `options.blocking` is false: then it is `in_progress` until it is ready or has failed.
  static Result<std::shared_ptr<Communicator>> create(Runtime& runtime,
                                                      const bootstrap::UniqueId& id,
                                                      CommunicatorOptions options);
  /// The same, prepared. It is `in_progress` from here on.
  static Result<Making> prepare(Runtime& runtime, const bootstrap::UniqueId& id,
                                CommunicatorOptions options);
  /// Aborts what is still in flight, being set up included.
  ~Communicator();
  /// Keeps `lease` until it has gone itself. Once, before others use it.
  void hold(std::shared_ptr<const void> lease) { lease_ = std::move(lease); }
  /// Collective: the ranks of equal `color` form a new communicator, ordered by `key`, then by
  /// their rank here. None for bootstrap::kNoColor. `options` but its rank and size is the new
  /// one's, on this one's device where it names none; null takes this one's.
  Result<Making> prepare_split(int color, int key, const CommunicatorOptions* options);
  /// Collective over the ranks that are not `excluded`, which form a new communicator in the order
  /// of their ranks here. The excluded ones take no part, and may be busy. `options` as there.
  Result<Making> prepare_shrink(std::span<const int> excluded, const CommunicatorOptions* options);

  /// Waits for everything in flight, within its deadlines, and says goodbye to the other ranks.
  /// Ends at once what is still being set up. A vendor's library that goes on is awaited until
  /// `deadline`.
  Status finish(TimePoint deadline = TimePoint::max());
  /// `finish`, in the background unless `blocking`.
  Status finalize();
  /// Whether a create or finalize goes on in the background.
  [[nodiscard]] bool in_progress() const;
  /// For the end of the process: `finish` if work is complete by `deadline`, else `abort`.
  void shut_down(TimePoint deadline);
  /// Fails the communicator on every rank, `why` being told to the others.
  void abort(const std::string& why);

  [[nodiscard]] Runtime& runtime() { return context_.runtime; }
  /// The number of its GPU, as in the device's name; -1: it is on the host.
  [[nodiscard]] int gpu() const { return context_.runtime.gpu_number(context_.options.device); }
  [[nodiscard]] bool blocking() const { return context_.options.blocking; }
  [[nodiscard]] const Membership& membership() const { return membership_; }
  [[nodiscard]] Dispatch& dispatch() { return dispatch_; }

 private:
  friend class Making;
  using Seat = bootstrap::Seat;  // in a communicator to come

  static Result<std::shared_ptr<Communicator>> make(Runtime& runtime, CommunicatorOptions options);
  Communicator(Runtime& runtime, CommunicatorOptions options, std::unique_ptr<Cancel> cancel)
      : context_(runtime, std::move(options), std::move(cancel)) {}
  Status begin(const bootstrap::UniqueId& id);  ///< `open`, in the background unless `blocking`
  Status open(const bootstrap::UniqueId& id);
  Status try_open(const bootstrap::UniqueId& id);
  void warn_of_layout() const;
  Status join(const bootstrap::UniqueId& id);
  Status drain(TimePoint deadline);
  // Ends the communicator because of what was thrown in the background.
  void on_exception(const Status& why);
  // split.cc
  Status ended();
  Result<std::shared_ptr<Communicator>> make_child(const CommunicatorOptions* options);
  Result<Seat> find_seat_among(const std::vector<int>& members, TimePoint deadline,
                               const Cancel& cancel);
  Status take(Result<Seat> seat);

  std::shared_ptr<const void> lease_;  ///< the first: it goes last
  Context context_;
  Membership membership_{context_};
  std::mutex gathers_;  // one shrink at a time
  Gathering gathering_{{[this]() -> bootstrap::Session& { return membership_.session(); },
                        [this](int rank) { return membership_.departures().has_left(rank); },
                        [this] { return ended(); }}};
  Fabric fabric_{context_, membership_};
  Dispatch dispatch_{context_, membership_, fabric_, chores_};
  // The last: its thread uses all of the above.
  Chores chores_{[this](const Status& why) { on_exception(why); }};
};

}  // namespace hetccl::comm
