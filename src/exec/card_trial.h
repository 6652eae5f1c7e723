// A trial whether a network card reaches a device's memory: before any tensor depends on it.
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

  /// Returns the memory to be registered before `run`.
  [[nodiscard]] std::array<std::pair<void*, size_t>, 2> memory() const {
    return {{{on_device_, kBytes}, {pinned_, 2 * kBytes}}};
  }
  /// The card writes what a stream then reads, and reads what a stream has written. SystemError
  /// where they see different bytes, Timeout where the device does not come to it.
  Status run(transport::Transport& transport, size_t card, const WaitLimit& limit);

 private:
  explicit CardTrial(device::Device& device) : device_(device) {}
  Status open();
  Status copy_by_stream(void* to, const void* from, const WaitLimit& limit);

  device::Device& device_;
  std::unique_ptr<device::Stream> stream_;
  void* on_device_ = nullptr;
  std::byte* pinned_ = nullptr;  // what goes out, then what comes back
  device::Flag* copied_ = nullptr;
  uint32_t copies_ = 0;
  bool hangs_ = false;
};

}  // namespace hetccl::exec
