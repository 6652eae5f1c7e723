// Finds the device streams of the user's native stream handles.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "comm/runtime.h"
#include "device/device.h"

namespace hetccl::comm {

/// Used by threads that launch, under the communicator's launch mutex.
class UserStreams {
 public:
  /// Both must outlive it.
  UserStreams(const Runtime& runtime, device::Device& device)
      : runtime_(runtime), device_(device) {}
  /// Returns the stream of a native handle, valid until the next call.
  Result<device::Stream*> find_or_wrap(void* native) {
    // Drops the cache when host streams were destroyed, because handles are reused.
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
  std::map<void*, std::unique_ptr<device::Stream>> streams_;  // recently used
  uint64_t destroyed_ = 0;  // count of destroyed host streams that `streams_` is valid for
};

}  // namespace hetccl::comm
