#include "exec/ticket.h"

#include <array>
#include <mutex>
#include <new>
#include <vector>

namespace hetccl::exec {

/// All completions of the process, in blocks that never move.
class Completions {
 public:
  static Completions& all() {
    static auto* const all = new Completions();  // never destroyed: threads may ask at exit
    return *all;
  }
  Completion& take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) add_block();
    Completion& one = *free_.back();
    free_.pop_back();
    return one;
  }
  void give_back(Completion& one) {
    const std::lock_guard lock(mutex_);
    free_.push_back(&one);
  }
  [[nodiscard]] const Completion* find(uint64_t number) const {
    if (number == 0 || number > kBlocks * kInBlock) return nullptr;
    const Completion* const block =
        blocks_[(number - 1) / kInBlock].load(std::memory_order_acquire);
    return block == nullptr ? nullptr : &block[(number - 1) % kInBlock];
  }

 private:
  static constexpr size_t kInBlock = 1024, kBlocks = 1024;

  void add_block() {
    if (n_blocks_ == kBlocks) throw std::bad_alloc();  // a million calls are in flight
    auto* const block = new Completion[kInBlock];
    free_.reserve(free_.size() + kInBlock);
    for (size_t i = kInBlock; i > 0; --i) {
      block[i - 1].number_ = n_blocks_ * kInBlock + i;
      free_.push_back(&block[i - 1]);
    }
    blocks_[n_blocks_++].store(block, std::memory_order_release);
  }

  std::mutex mutex_;  // guards what follows, and additions to `blocks_`
  std::vector<Completion*> free_;
  size_t n_blocks_ = 0;
  std::array<std::atomic<Completion*>, kBlocks> blocks_{};
};

Completion& Completion::take() {
  return Completions::all().take();
}

void Completion::give_back(Completion& completion) {
  if (completion.left.exchange(0) > 0) completion.ends.fetch_add(1, std::memory_order_release);
  Completions::all().give_back(completion);
}

const Completion* Completion::find(uint64_t number) {
  return Completions::all().find(number);
}

}  // namespace hetccl::exec
