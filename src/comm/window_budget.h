// Limits the memory of a process's windows (exec/window.h), over all its communicators.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <utility>

#include "device/device.h"

namespace hetccl::comm {

/// Thread-safe; must outlive its shares.
class WindowBudget {
 public:
  /// One communicator's share, for the rest of its life.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept { *this = std::move(other); }
    Share& operator=(Share&& other) noexcept;
    ~Share() { keep(0); }
    [[nodiscard]] size_t bytes() const { return bytes_; }
    /// Returns all but `bytes` to the budget.
    void keep(size_t bytes);

   private:
    friend WindowBudget;
    WindowBudget* budget_ = nullptr;
    const device::Device* device_ = nullptr;
    size_t bytes_ = 0;
  };

  /// `memory`: bytes that the process may use. Windows get a small part of it.
  explicit WindowBudget(size_t memory);
  /// Takes the share of one communicator: enough for full speed while there is enough, later a
  /// fraction of what this device has left. So the first communicators get much, and hundreds get
  /// something.
  Share take(const device::Device& device);

 private:
  const size_t all_;  // bytes for one device
  std::mutex mutex_;
  std::map<const device::Device*, size_t> taken_;
};

}  // namespace hetccl::comm
