// A plan that is ready to run on one executor. It is lowered once for each kind of call, and looked
// up afterwards.
#pragma once

#include <memory>
#include <vector>

#include "device/device.h"
#include "lower/lower.h"

namespace hetccl::exec {

/// Returns the traits of a rank that has that device.
[[nodiscard]] lower::RankTraits traits_of(const device::Device& device, int local_rank);

/// Used by the executor's launching thread only.
class Program {
 public:
  /// The slicing of a call, and the Code that runs it, which lives as long as the program.
  struct Lowered {
    uint64_t slice_elements = 1;
    uint32_t n_slices = 1;
    const lower::Code* code = nullptr;
  };

  explicit Program(plan::RankPlan plan);

  [[nodiscard]] const plan::RankPlan& plan() const { return plan_; }
  /// Returns the ranks it exchanges messages with, ascending.
  [[nodiscard]] const std::vector<int>& peers() const { return peers_; }
  /// Returns whether it is a single call of the vendor's library, straight on the user's stream.
  [[nodiscard]] bool is_one_library_call() const { return one_library_call_; }
  [[nodiscard]] bool is_bound() const { return bound_; }
  /// Returns the target that `bind` was given.
  [[nodiscard]] const lower::Target& target() const { return target_; }
  /// Sets the target of all later calls.
  void bind(lower::Target target);
  /// Returns the Code for calls of `shape`, or InternalError if the plan breaks a rule of the plan
  /// IR.
  Result<Lowered> lower_for(const lower::CallShape& shape);

 private:
  struct Kept {
    lower::Geometry geometry;
    lower::Code code;
  };
  // A kind of call whose blocks are even.
  struct Kind {
    DataType type{};
    uint64_t count = 0;
    plan::Choice choice;
    uint8_t by_host = 0;
    bool registered = false;
    bool operator==(const Kind&) const = default;
  };
  static constexpr size_t kRecent = 16;
  // Caches the last sizes, because a training step's buckets come in few sizes.
  struct Recent {
    Kind kind;
    Lowered lowered;
  };

  plan::RankPlan plan_;
  std::vector<int> peers_;
  bool one_library_call_ = false, bound_ = false;
  lower::Target target_;
  std::vector<std::unique_ptr<Kept>> kept_;
  std::vector<Recent> recent_;  // at most kRecent; the oldest is replaced
  size_t next_recent_ = 0;
};

}  // namespace hetccl::exec
