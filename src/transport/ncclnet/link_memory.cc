// How a link registers memory that is registered with its transport, and flushes device memory.
#include "transport/ncclnet/link.h"

namespace hetccl::transport::ncclnet {
namespace {

constexpr uintptr_t kPage = 4096;

// Extends the range to whole pages. Plug-ins register whole pages anyway, and NCCL's for InfiniBand
// does not move the dma-buf's offset to the page's begin.
Range dmabuf_range(const Known& known) {
  const Memory& memory = known.memory;
  const size_t slack = reinterpret_cast<uintptr_t>(memory.data) % kPage;
  const size_t before = memory.dmabuf_offset % kPage == slack ? slack : 0;
  return {memory.data - before, memory.bytes + before, MemoryType::DmaBuf, known.dmabuf.get(),
          memory.dmabuf_offset - before};
}

}  // namespace

Status Link::register_once(const Known& known) {
  return region_of(known).refused;
}

// Remembers a refusal, so that later chunks do not ask again.
const Link::Region& Link::region_of(const Known& known) {
  const auto found = regions_.find(known.number);
  if (found != regions_.end()) return found->second;
  Region made;
  made.refused = register_known(known, &made.region);
  return regions_[known.number] = made;
}

Status Link::register_known(const Known& known, void** region) {
  const Memory& memory = known.memory;
  const int takes = route_.device.properties.pointers;
  int code = abi::kInvalidUsage;
  if (!known.on_device()) {
    code = calls().register_memory(comm_, {memory.data, memory.bytes}, region);
  } else {
    if ((takes & abi::kPointerDmaBuf) != 0 && known.dmabuf.valid())
      code = calls().register_memory(comm_, dmabuf_range(known), region);
    if (code != abi::kSuccess && (takes & abi::kPointerCuda) != 0)
      code = calls().register_memory(comm_, {memory.data, memory.bytes, MemoryType::Cuda}, region);
  }
  if (code == abi::kSuccess) return {};
  return error(ErrorCode::SystemError, "net plug-in %s registers no %zu bytes of a %s with %s (%s)",
               plugin_name(), memory.bytes, known.on_device() ? "device" : "host", device_name(),
               name_of_code(code).c_str());
}

void Link::forget(uint64_t number) {
  const auto found = regions_.find(number);
  if (found == regions_.end()) return;
  if (found->second.refused.ok()) calls().deregister(comm_, found->second.region);
  regions_.erase(found);
}

// Begins a flush if the last chunk of a message has arrived in memory that needs one. The flush
// takes the receive's place in `request`. Returns whether a flush is under way.
Result<bool> Link::flush(Request& request) {
  const Chunk& chunk = request.chunk;
  const bool needs = !sends_ && !request.flushing && chunk.last && chunk.known != nullptr &&
                     chunk.known->on_device() &&
                     (chunk.known->memory.needs_flush || route_.device.properties.forces_flush);
  if (!needs) return false;
  request.flushing = true;
  request.request = nullptr;
  const int code = calls().flush(comm_, chunk.range, request.region, &request.request);
  if (code != abi::kSuccess) return failed("flush what came from", code);
  return request.request != nullptr;
}

}  // namespace hetccl::transport::ncclnet
