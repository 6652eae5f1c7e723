// A library's communicator that takes a tactic for its sums, which decides how long they take.
// Records the tactic of each call, on all ranks of this process.
#pragma once

#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "fake/forwarding_communicator.h"

namespace hetccl::fake {

/// Thread-safe.
class Told {
 public:
  /// Ring and tree, simple and ll.
  [[nodiscard]] static Tactics possible() {
    Tactics tactics;
    for (const int algorithm : {Tactic::kRing, Tactic::kTree})
      for (const int protocol : {Tactic::kSimple, Tactic::kLl})
        tactics.add(LibraryCall::AllReduce, algorithm, protocol);
    return tactics;
  }
  /// The best is ring, simple, 8 channels.
  [[nodiscard]] static std::chrono::microseconds time_of(const Tactic& tactic) {
    if (tactic.algorithm == 0) return std::chrono::microseconds(800);
    const double apart = std::abs(std::log2(std::max<double>(tactic.channels, 1)) - 3);
    const int slower = (tactic.algorithm == Tactic::kRing + 1 ? 0 : 300) +
                       (tactic.protocol == Tactic::kSimple + 1 ? 0 : 300);
    return std::chrono::microseconds(200 + slower + static_cast<int>(100 * apart));
  }
  void note(uint64_t number, const Tactic& tactic) {
    const std::lock_guard lock(mutex_);
    const auto [call, first] = calls_.try_emplace(number, tactic);
    if (!first && call->second != tactic) ++differing_;
    last_ = tactic;
    seen_.insert({tactic.algorithm, tactic.protocol, tactic.channels});
  }
  /// Calls for which ranks were told different things.
  [[nodiscard]] int differing() const {
    const std::lock_guard lock(mutex_);
    return differing_;
  }
  [[nodiscard]] size_t distinct() const {
    const std::lock_guard lock(mutex_);
    return seen_.size();
  }
  [[nodiscard]] Tactic last() const {
    const std::lock_guard lock(mutex_);
    return last_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, Tactic> calls_;
  std::set<std::tuple<int, int, int>> seen_;
  Tactic last_;
  int differing_ = 0;
};

class ToldCommunicator : public ForwardingCommunicator {
 public:
  ToldCommunicator(std::unique_ptr<ccl::Communicator> real, Told& told)
      : ForwardingCommunicator(std::move(real)), told_(told) {}
  void number_calls(uint64_t number) override {
    number_ = number;
    real_->number_calls(number);
  }
  void set_tactic(const Tactic& tactic) override { tactic_ = tactic; }
  [[nodiscard]] std::optional<Tactics> tactics() const override { return Told::possible(); }
  Status all_reduce(const void* send, void* recv, size_t count, DataType type, const Reducer& how,
                    void* stream) override {
    told_.note(number_, tactic_);
    std::this_thread::sleep_for(Told::time_of(tactic_));
    return real_->all_reduce(send, recv, count, type, how, stream);
  }

 private:
  Told& told_;
  uint64_t number_ = 0;
  Tactic tactic_;
};

}  // namespace hetccl::fake
