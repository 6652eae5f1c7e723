// Limits how many pairs a process has, over all its communicators, and how much of the device each
// takes. A pair's kernel spins on the device until the other end's kernel runs. So all kernels that
// may spin at once must fit on the device.
#pragma once

#include <mutex>
#include <utility>

namespace hetccl::comm {

/// Thread-safe; must outlive its shares.
class PairBudget {
 public:
  static constexpr int kMostPairs = 8;

  /// The thread blocks of one pair. Returned to the budget at the end.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept { *this = std::move(other); }
    Share& operator=(Share&& other) noexcept;
    ~Share();
    /// Returns the thread blocks that kernels of each direction may take; 0: no pair.
    [[nodiscard]] int blocks() const { return blocks_; }
    /// Returns the blocks beyond `blocks` to the budget.
    void keep(int blocks);

   private:
    friend PairBudget;
    PairBudget* budget_ = nullptr;
    int blocks_ = 0;
  };

  /// Takes one more pair on a device with that many multiprocessors (0: unknown). The first pairs
  /// get enough blocks to make NCCL fast; the last get few.
  Share take(int multiprocessors);

 private:
  void give_back(int pairs, int blocks);

  std::mutex mutex_;
  int pairs_ = 0, blocks_ = 0;  // in one direction
};

}  // namespace hetccl::comm
