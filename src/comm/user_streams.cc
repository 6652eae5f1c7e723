#include "comm/user_streams.h"

#include <utility>

namespace hetccl::comm {

namespace {
constexpr size_t kMaxStreams = 64;
}  // namespace

Result<device::Stream*> UserStreams::find_or_wrap(void* native) {
  // Streams come and go, and so does what is kept of them.
  const uint64_t destroyed = runtime_.destroyed_host_streams();
  if (destroyed != destroyed_ || streams_.size() >= kMaxStreams) {
    streams_.clear();
    destroyed_ = destroyed;
  }
  const auto known = streams_.find(native);
  if (known != streams_.end()) return known->second.get();
  HETCCL_ASSIGN(auto stream, device_.wrap_stream(native));
  return streams_.emplace(native, std::move(stream)).first->second.get();
}

}  // namespace hetccl::comm
