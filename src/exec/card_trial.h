// Tests whether a NIC can reach a device's memory, before any tensor depends on it.
#pragma once

#include <array>
#include <memory>
#include <utility>

#include "base/cancel.h"
#include "device/device.h"
#include "transport/transport.h"

namespace hetccl::exec {

class CardTrial {
 public:
  static constexpr size_t kBytes = size_t{64} << 10U;

  static Result<std::unique_ptr<CardTrial>> prepare(device::Device& device);
  ~CardTrial();
  CardTrial(const CardTrial&) = delete;
  CardTrial& operator=(const CardTrial&) = delete;

  /// Returns the memory that must be registered before `run`.
  [[nodiscard]] std::array<std::pair<void*, size_t>, 2> memory() const {
    return {{{on_device_, kBytes}, {pinned_, 2 * kBytes}}};
  }
  /// The NIC writes data that a stream reads back, and reads data that a stream wrote. Returns
  /// SystemError if the bytes differ, Timeout if the device does not run the test in time.
  Status run(transport::Transport& transport, size_t card, const WaitLimit& limit);

 private:
  explicit CardTrial(device::Device& device) : device_(device) {}
  Status open();
  Status copy_by_stream(void* to, const void* from, const WaitLimit& limit);

  device::Device& device_;
  std::unique_ptr<device::Stream> stream_;
  void* on_device_ = nullptr;
  std::byte* pinned_ = nullptr;  // data to send, then received data
  device::Flag* copied_ = nullptr;
  uint32_t copies_ = 0;
  bool hangs_ = false;
};

}  // namespace hetccl::exec
