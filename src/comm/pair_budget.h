// How many pairs a process has, over all its communicators, and how much of the device each takes.
// Kernels of a pair wait on the device for its other end: all that wait at once need room there.
#pragma once

#include <mutex>
#include <utility>

namespace hetccl::comm {

/// Thread-safe; outlives what is taken of it.
class PairBudget {
 public:
  static constexpr int kMostPairs = 8;

  /// The blocks of one pair, which it gives back when it ends.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept { *this = std::move(other); }
    Share& operator=(Share&& other) noexcept;
    ~Share();
    /// The thread blocks that the kernels of each direction may take; 0: there is no pair.
    [[nodiscard]] int blocks() const { return blocks_; }
    /// Gives back the blocks beyond that.
    void keep(int blocks);

   private:
    friend PairBudget;
    PairBudget* budget_ = nullptr;
    int blocks_ = 0;
  };

  /// One more pair on a device of so many multiprocessors (0: unknown). The first pairs have as
  /// many blocks as make NCCL fast; the last have few.
  Share take(int multiprocessors);

 private:
  void give_back(int pairs, int blocks);

  std::mutex mutex_;
  int pairs_ = 0, blocks_ = 0;  // of one direction
};

}  // namespace hetccl::comm
