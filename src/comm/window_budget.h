// How much memory a process has for windows (exec/window.h), over all its communicators.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <utility>

#include "device/device.h"

namespace hetccl::comm {

/// Thread-safe; outlives what is taken of it.
class WindowBudget {
 public:
  /// What one communicator has: the rest of its life.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept { *this = std::move(other); }
    Share& operator=(Share&& other) noexcept;
    ~Share() { keep(0); }
    [[nodiscard]] size_t bytes() const { return bytes_; }
    /// Gives back all but that.
    void keep(size_t bytes);

   private:
    friend WindowBudget;
    WindowBudget* budget_ = nullptr;
    const device::Device* device_ = nullptr;
    size_t bytes_ = 0;
  };

  /// `memory`: bytes that the process may use. Windows have a small part of it.
  explicit WindowBudget(size_t memory);
  /// As much as makes windows fast, while there is enough; then a part of what is left for this
  /// device: the first communicators have much, hundreds have something.
  Share take(const device::Device& device);

 private:
  const size_t all_;  // of one device
  std::mutex mutex_;
  std::map<const device::Device*, size_t> taken_;
};

}  // namespace hetccl::comm
