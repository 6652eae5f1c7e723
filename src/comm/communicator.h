// One rank of one communicator. Only here do topology, plans, adaptors and the executor come
// together. It has three parts, split by lifetime and knowledge:
//
// - Membership: the members, and what all ranks know of each other.
// - Fabric: the library, channels and pairs that carry data between these members.
// - Dispatch: turns a call into an operation.
//
// Dispatch uses the Fabric, and both use the Membership; nothing points the other way. This class
// begins, ends and splits a communicator.
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
  /// Collective over all ranks of `id`. Blocks within the init timeout. If `options.blocking` is
  /// false it returns at once, and the communicator is `in_progress` until it is ready or failed.
  static Result<std::shared_ptr<Communicator>> create(Runtime& runtime,
                                                      const bootstrap::UniqueId& id,
                                                      CommunicatorOptions options);
  /// Prepares a communicator without starting it. It is `in_progress` from here on.
  static Result<Making> prepare(Runtime& runtime, const bootstrap::UniqueId& id,
                                CommunicatorOptions options);
  /// Aborts everything in flight, initialisation included.
  ~Communicator();
  /// Holds `lease` until the communicator is gone. Call once, before others use it.
  void hold(std::shared_ptr<const void> lease) { lease_ = std::move(lease); }
  /// Collective: the ranks of equal `color` form a new communicator, ordered by `key`, then by
  /// their rank here. Returns no communicator for bootstrap::kNoColor. `options` apply to the new
  /// one, except rank and size; an empty device means this one's device, and null takes all of this
  /// one's options.
  Result<Making> prepare_split(int color, int key, const CommunicatorOptions* options);
  /// Collective over the ranks that are not `excluded`: they form a new communicator in the order
  /// of their ranks here. Excluded ranks take no part and may be busy. `options` as in
  /// `prepare_split`.
  Result<Making> prepare_shrink(std::span<const int> excluded, const CommunicatorOptions* options);

  /// Waits for everything in flight, within its deadlines, then tells the other ranks that this one
  /// leaves. Cancels an initialisation at once. If a vendor's library call still runs, waits for it
  /// until `deadline`.
  Status finish(TimePoint deadline = TimePoint::max());
  /// Runs `finish`, in the background unless `blocking`.
  Status finalize();
  /// Returns whether a create or finalize still runs in the background.
  [[nodiscard]] bool in_progress() const;
  /// Called at the end of the process: runs `finish` if work completes by `deadline`, else `abort`.
  void shut_down(TimePoint deadline);
  /// Fails the communicator on every rank. The other ranks are told `why`.
  void abort(const std::string& why);

  [[nodiscard]] Runtime& runtime() { return context_.runtime; }
  /// Returns the GPU index of its device's name; -1: it is on the host.
  [[nodiscard]] int gpu() const { return context_.runtime.gpu_number(context_.options.device); }
  [[nodiscard]] bool blocking() const { return context_.options.blocking; }
  [[nodiscard]] const Membership& membership() const { return membership_; }
  [[nodiscard]] Dispatch& dispatch() { return dispatch_; }

 private:
  friend class Making;
  using Seat = bootstrap::Seat;  // in the new communicator

  static Result<std::shared_ptr<Communicator>> make(Runtime& runtime, CommunicatorOptions options);
  Communicator(Runtime& runtime, CommunicatorOptions options, std::unique_ptr<Cancel> cancel)
      : context_(runtime, std::move(options), std::move(cancel)) {}
  Status begin(const bootstrap::UniqueId& id);  ///< runs `open`, in the background unless
                                                ///< `blocking`
  Status open(const bootstrap::UniqueId& id);
  Status try_open(const bootstrap::UniqueId& id);
  void warn_of_layout() const;
  void log_layout() const;
  Status join(const bootstrap::UniqueId& id);
  Status drain(TimePoint deadline);
  // Fails the communicator for an exception that a chore threw.
  void on_exception(const Status& why);
  // Defined in split.cc.
  Status ended();
  Result<std::shared_ptr<Communicator>> make_child(const CommunicatorOptions* options);
  Result<Seat> find_seat(const std::vector<int>& members, TimePoint deadline, const Cancel& cancel);
  Status take(Result<Seat> seat);

  std::shared_ptr<const void> lease_;  ///< declared first, so destroyed last
  Context context_;
  Membership membership_{context_};
  std::mutex gathers_;  // allows one shrink at a time
  Gathering gathering_{{[this]() -> bootstrap::Session& { return membership_.session(); },
                        [this](int rank) { return membership_.departures().has_left(rank); },
                        [this] { return ended(); }}};
  Fabric fabric_{context_, membership_};
  Dispatch dispatch_{context_, membership_, fabric_, chores_};
  // Declared last, so destroyed first: its thread uses everything above.
  Chores chores_{[this](const Status& why) { on_exception(why); }};
};

}  // namespace hetccl::comm
