// How a caller learns that its call has ended.
#pragma once

#include <atomic>
#include <cstdint>

namespace hetccl::exec {

/// Counts ends of calls, one call at a time. Each belongs to one operation, which leads the call;
/// when that has gone it serves another, of whichever communicator: so it is never freed, and
/// whoever waits for a call may ask at any time.
class Completion {
 public:
  /// One that nobody has. The process's, as `give_back`; thread-safe.
  static Completion& take();
  /// Ends the call that it counts, if one is left.
  static void give_back(Completion& completion);
  /// The one with that number; null where there is none.
  static const Completion* find(uint64_t number);

  std::atomic<uint64_t> ends{0};
  std::atomic<uint32_t> left{0};  ///< operations of the call that have not ended
  /// Not 0; names it in the process.
  [[nodiscard]] uint64_t number() const { return number_; }

 private:
  friend class Completions;
  uint64_t number_ = 0;
};

/// Tells whether a call has ended. A value, which is good for ever; any thread asks.
class Ticket {
 public:
  /// Of a call that has ended.
  Ticket() = default;
  /// Of the call that `completion` counts next, before that is launched.
  explicit Ticket(const Completion& completion)
      : completion_(&completion), ends_(completion.ends.load(std::memory_order_relaxed)) {}
  /// One as it was told to a caller by `number` and `ends`: of a call that has ended where these
  /// are no ticket's.
  Ticket(uint64_t number, uint64_t ends) : completion_(Completion::find(number)), ends_(ends) {}

  [[nodiscard]] bool done() const {
    return completion_ == nullptr || completion_->ends.load(std::memory_order_acquire) != ends_;
  }
  /// 0 of a call that has ended when it returned.
  [[nodiscard]] uint64_t number() const {
    return completion_ == nullptr ? 0 : completion_->number();
  }
  [[nodiscard]] uint64_t ends() const { return ends_; }

 private:
  const Completion* completion_ = nullptr;
  uint64_t ends_ = 0;
};

}  // namespace hetccl::exec
