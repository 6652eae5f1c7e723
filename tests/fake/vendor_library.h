// The host's library as if it were a vendor's: it may join fake devices of several "hosts", lack a
// type, makes communicators for pairs, and can be told how to run its calls.
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ccl/ccl.h"
#include "fake/told_communicator.h"

namespace hetccl::fake {

class VendorLibrary : public ccl::Library {
 public:
  VendorLibrary(std::unique_ptr<ccl::Library> real, const ccl::Reach& reach,
                std::optional<DataType> lacks = {})
      : real_(std::move(real)), reach_(reach), lacks_(lacks) {}
  [[nodiscard]] std::string name() const override { return real_->name(); }
  [[nodiscard]] std::string version() const override { return real_->version(); }
  [[nodiscard]] bool supports(DataType type, RedOp op) const override {
    return type != lacks_ && real_->supports(type, op);
  }
  [[nodiscard]] bool supports_exchange() const override { return real_->supports_exchange(); }
  [[nodiscard]] bool makes_pairs() const override { return true; }
  [[nodiscard]] ccl::Reach reach() const override { return reach_; }
  Result<ccl::UniqueId> unique_id(int n_ranks, const WaitLimit& limit) override {
    return real_->unique_id(n_ranks, limit);
  }
  void forget(const ccl::UniqueId& id) override { real_->forget(id); }
  Result<std::unique_ptr<ccl::Communicator>> init(const ccl::UniqueId& id, int n_ranks, int rank,
                                                  Waker* waker, const WaitLimit& limit) override {
    auto made = real_->init(id, n_ranks, rank, waker, limit);
    if (made.ok() && told != nullptr)
      made.value() = std::make_unique<ToldCommunicator>(std::move(made).value(), *told);
    return made;
  }
  Result<std::unique_ptr<ccl::PendingPair>> begin_pair(const ccl::PairSeat& seat, Waker* waker,
                                                       const WaitLimit& limit,
                                                       std::function<void()> wake) override {
    pairs_asked_for.fetch_add(1);
    {
      const std::lock_guard lock(blocks_mutex);
      blocks_by_id[std::string(std::begin(seat.id.bytes), std::end(seat.id.bytes))].push_back(
          seat.blocks);
    }
    if (seat.rank == pairs_refused_to)
      return error(ErrorCode::SystemError, "fake: there is no memory for a pair");
    return std::unique_ptr<ccl::PendingPair>(std::make_unique<Pending>(
        [this, seat, waker, ms = limit.timeout_ms](const Cancel& cancel) {
          auto made = real_->init(seat.id, 2, seat.rank, waker, {ms, &cancel});
          if (made.ok() && seat.rank == 1 && pairs_late.fetch_sub(1) > 0) made.value() = nullptr;
          return made;
        },
        std::move(wake)));
  }
  /// Not null: communicators can be told how to run, and note it there.
  static inline Told* told = nullptr;
  /// By all libraries of this process.
  static inline std::atomic<int> pairs_asked_for{0};
  /// By id: the limits on blocks that both ends of a communicator have passed.
  static inline std::mutex blocks_mutex;
  static inline std::map<std::string, std::vector<int>> blocks_by_id;
  /// The rank of a pair that gets no communicator.
  static inline std::atomic<int> pairs_refused_to{-1};
  /// So many communicators come to nothing at their rank 1, since it is kept from meeting rank 0.
  static inline std::atomic<int> pairs_late{0};

 private:
  // The real library waits for the other rank, on a thread of its own.
  class Pending final : public ccl::PendingPair {
   public:
    Pending(std::function<Made(const Cancel&)> init, std::function<void()> wake)
        : made_(std::async(std::launch::async,
                           [this, init = std::move(init), wake = std::move(wake)] {
                             auto made = init(*cancel_);
                             done_ = true;
                             wake();
                             return made;
                           })) {}
    ~Pending() override { cancel_->set(error(ErrorCode::Aborted, "nobody waits for the pair")); }
    Pending(const Pending&) = delete;
    Pending& operator=(const Pending&) = delete;
    std::optional<Made> poll(TimePoint /*now*/, TimePoint& /*again*/) override {
      if (!done_) return std::nullopt;
      return made_.get();
    }

   private:
    const std::unique_ptr<Cancel> cancel_ = std::move(Cancel::create()).value();
    std::atomic<bool> done_{false};
    std::future<Made> made_;  // the last, which waits for its thread
  };

  const std::unique_ptr<ccl::Library> real_;
  const ccl::Reach reach_;
  const std::optional<DataType> lacks_;
};

}  // namespace hetccl::fake
