// A queue that keeps its memory: pushing only allocates while it grows beyond its longest so far.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace hetccl {

template <typename T>
class Fifo {
 public:
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] size_t size() const { return size_; }
  T& front() { return slots_[head_]; }
  /// Returns the element `index` places behind the front.
  T& operator[](size_t index) { return slots_[(head_ + index) & (slots_.size() - 1)]; }
  const T& operator[](size_t index) const { return slots_[(head_ + index) & (slots_.size() - 1)]; }
  void push(T value) {
    if (size_ == slots_.size()) grow();
    (*this)[size_++] = std::move(value);
  }
  void pop() {
    head_ = (head_ + 1) & (slots_.size() - 1);
    --size_;
  }
  void clear() { head_ = size_ = 0; }

 private:
  void grow() {
    std::vector<T> larger(slots_.empty() ? 16 : slots_.size() * 2);  // a power of two
    for (size_t i = 0; i < size_; ++i) larger[i] = std::move((*this)[i]);
    slots_ = std::move(larger);
    head_ = 0;
  }
  std::vector<T> slots_;
  size_t head_ = 0, size_ = 0;
};

}  // namespace hetccl
