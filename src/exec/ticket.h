// Tells a caller that its call has ended.
#pragma once

#include <atomic>
#include <cstdint>

namespace hetccl::exec {

/// Counts the ends of calls, one call at a time. The operation that leads a call owns it;
/// afterwards another operation, of any communicator, may reuse it. It is never freed, so a caller
/// may ask about its call at any time.
class Completion {
 public:
  /// Returns an unused one of the process. Thread-safe, like `give_back`.
  static Completion& take();
  /// Ends the call that it counts, if one is left.
  static void give_back(Completion& completion);
  /// Returns the completion with that number; null: none.
  static const Completion* find(uint64_t number);

  std::atomic<uint64_t> ends{0};
  std::atomic<uint32_t> left{0};  ///< operations of the call that have not ended
  /// Identifies it in the process. Never 0.
  [[nodiscard]] uint64_t number() const { return number_; }

 private:
  friend class Completions;
  uint64_t number_ = 0;
};

/// Tells whether a call has ended. A value that stays valid for ever; any thread may ask.
class Ticket {
 public:
  /// Makes the ticket of a call that has ended.
  Ticket() = default;
  /// Makes the ticket of the call that `completion` counts next. Call before the launch.
  explicit Ticket(const Completion& completion)
      : completion_(&completion), ends_(completion.ends.load(std::memory_order_relaxed)) {}
  /// Restores a ticket from the `number` and `ends` that a caller was given. If they are no
  /// ticket's, the result counts as ended.
  Ticket(uint64_t number, uint64_t ends) : completion_(Completion::find(number)), ends_(ends) {}

  [[nodiscard]] bool done() const {
    return completion_ == nullptr || completion_->ends.load(std::memory_order_acquire) != ends_;
  }
  /// Returns 0 for a call that had ended when it returned.
  [[nodiscard]] uint64_t number() const {
    return completion_ == nullptr ? 0 : completion_->number();
  }
  [[nodiscard]] uint64_t ends() const { return ends_; }

 private:
  const Completion* completion_ = nullptr;
  uint64_t ends_ = 0;
};

}  // namespace hetccl::exec
