// The streams of the user on which calls of a communicator go.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "comm/runtime.h"
#include "device/device.h"

namespace hetccl::comm {

/// By the threads that launch, under the communicator's launch mutex.
class UserStreams {
 public:
  /// Both outlive it.
  UserStreams(const Runtime& runtime, device::Device& device)
      : runtime_(runtime), device_(device) {}
  /// The stream behind a native handle, valid until the next call.
  Result<device::Stream*> find_or_wrap(void* native) {
    // Streams come and go, and so does what is kept of them.
    const uint64_t destroyed = runtime_.destroyed_host_streams();
    if (destroyed != destroyed_ || streams_.size() >= kMaxStreams) streams_.clear();
    destroyed_ = destroyed;
    const auto known = streams_.find(native);
    if (known != streams_.end()) return known->second.get();
    HETCCL_ASSIGN(auto stream, device_.wrap_stream(native));
    return streams_.emplace(native, std::move(stream)).first->second.get();
  }

 private:
  static constexpr size_t kMaxStreams = 64;
  const Runtime& runtime_;
  device::Device& device_;
  std::map<void*, std::unique_ptr<device::Stream>> streams_;  // used lately
  uint64_t destroyed_ = 0;  // by the runtime, when `streams_` was begun
};

}  // namespace hetccl::comm
