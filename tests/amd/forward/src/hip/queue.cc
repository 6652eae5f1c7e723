#include "hip/queue.h"

#include <map>
#include <mutex>

#include "core/hostile.h"
#include "cuda/numbers.h"
#include "hip/context.h"
#include "hip/errors.h"

namespace forward {
namespace {

struct OneQueue {
  std::mutex mutex;
  std::map<int, cuda::Handle> by_device;
  std::map<hipStream_t, cuda::Handle> by_name;
};

OneQueue& one_queue() {
  static OneQueue* instance = new OneQueue;
  return *instance;
}

// The queue synchronizes with the null stream, so synchronous copies keep their order.
int queue_of_device(const cuda::Driver& driver, OneQueue& state, int device, cuda::Handle* queue) {
  cuda::Handle& slot = state.by_device[device];
  const int code = slot == nullptr ? driver.stream_create(&slot, cuda::kStreamDefault, 0) : 0;
  *queue = slot;
  return code;
}

hipError_t name_queue(const cuda::Driver& driver, hipStream_t* stream) {
  OneQueue& state = one_queue();
  const std::lock_guard<std::mutex> lock(state.mutex);
  cuda::Handle queue = nullptr;
  const int code = queue_of_device(driver, state, current_device(), &queue);
  if (code != 0) return from_cuda(code);
  // The name is an address that no other stream has.
  *stream = reinterpret_cast<hipStream_t>(new char[16]);
  state.by_name[*stream] = queue;
  return hipSuccess;
}

hipError_t forget_name(const cuda::Driver& driver, hipStream_t stream) {
  OneQueue& state = one_queue();
  cuda::Handle queue = nullptr;
  {
    const std::lock_guard<std::mutex> lock(state.mutex);
    const auto found = state.by_name.find(stream);
    if (found == state.by_name.end()) return hipErrorInvalidHandle;
    queue = found->second;
    state.by_name.erase(found);
    delete[] reinterpret_cast<char*>(stream);
  }
  return from_cuda(driver.stream_synchronize(queue));
}

}  // namespace

cuda::Handle queue_of(hipStream_t stream) {
  if (!hostile(Hostile::kOneQueue)) return stream;
  OneQueue& state = one_queue();
  const std::lock_guard<std::mutex> lock(state.mutex);
  const auto named = state.by_name.find(stream);
  if (named != state.by_name.end()) return named->second;
  const auto queue = state.by_device.find(current_device());
  return queue == state.by_device.end() ? stream : queue->second;
}

hipError_t create_queue(const cuda::Driver& driver, hipStream_t* stream, unsigned cuda_flags,
                        int priority) {
  if (hostile(Hostile::kOneQueue)) return name_queue(driver, stream);
  cuda::Handle created = nullptr;
  const int code = driver.stream_create(&created, cuda_flags, priority);
  *stream = static_cast<hipStream_t>(created);
  return from_cuda(code);
}

hipError_t destroy_queue(const cuda::Driver& driver, hipStream_t stream) {
  if (hostile(Hostile::kOneQueue)) return forget_name(driver, stream);
  return from_cuda(driver.stream_destroy(stream));
}

}  // namespace forward
