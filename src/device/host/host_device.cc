#include "device/host/host_device.h"

#include <sys/utsname.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "device/allocations.h"
#include "device/host/stream_tasks.h"
#include "host/crew.h"

namespace hetccl::device {

namespace {

// A queue and the number of Streams that use it. Its work outlives them. Once the stream that made
// it is gone, no other stream can wrap it.
struct Queue {
  explicit Queue(Crew* crew) : tasks(crew) {}
  TaskQueue tasks;
  std::atomic<int> streams{0};
  std::atomic<bool> destroyed{false};
};

class HostStream : public Stream {
 public:
  enum class Role { Maker, Wrapper };
  HostStream(std::shared_ptr<Queue> queue, Role role) : queue_(std::move(queue)), role_(role) {
    queue_->streams.fetch_add(1, std::memory_order_relaxed);
  }
  ~HostStream() override {
    if (role_ == Role::Maker) queue_->destroyed.store(true, std::memory_order_relaxed);
    queue_->streams.fetch_sub(1, std::memory_order_release);
  }
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;
  [[nodiscard]] void* native() const override { return &queue_->tasks; }
  [[nodiscard]] TaskQueue& tasks() const { return queue_->tasks; }

 private:
  std::shared_ptr<Queue> queue_;
  const Role role_;
};

// Streams come and go on any thread while one thread polls. The poller uses a copy of the list,
// renewed when `version` changes, so that polling takes no lock.
class QueueList {
 public:
  explicit QueueList(std::shared_ptr<Crew> crew) : crew_(std::move(crew)) {}

  std::shared_ptr<Queue> add() {
    auto queue = std::make_shared<Queue>(crew_.get());
    std::lock_guard lock(mutex_);
    queues_.push_back(queue);
    version_.fetch_add(1, std::memory_order_release);
    return queue;
  }

  std::shared_ptr<Queue> find(const void* native) {
    std::lock_guard lock(mutex_);
    for (const auto& queue : queues_)
      if (&queue->tasks == native && !queue->destroyed.load(std::memory_order_relaxed))
        return queue;
    return nullptr;
  }

  bool poll() {
    const uint64_t version = version_.load(std::memory_order_acquire);
    if (version != polled_version_) {
      std::lock_guard lock(mutex_);
      polled_ = queues_;
      polled_version_ = version_.load(std::memory_order_relaxed);
    }
    bool moved = false, abandoned = false;
    for (const auto& queue : polled_) {
      // Read the count first: a thread that drops it to 0 has pushed its work before.
      const bool unnamed = queue->streams.load(std::memory_order_acquire) == 0;
      if (!queue->tasks.empty())
        moved |= queue->tasks.poll();
      else
        abandoned |= unnamed;
    }
    if (abandoned) remove_abandoned();
    return moved;
  }

 private:
  // Keeps a queue that `add` has just made: its maker still holds a reference.
  void remove_abandoned() {
    std::lock_guard lock(mutex_);
    polled_.clear();
    std::erase_if(queues_, [](const std::shared_ptr<Queue>& queue) {
      return queue.use_count() == 1 && queue->tasks.empty();
    });
    polled_ = queues_;
    polled_version_ = version_.load(std::memory_order_relaxed);
  }

  const std::shared_ptr<Crew> crew_;  // outlives the queues
  std::mutex mutex_;
  std::vector<std::shared_ptr<Queue>> queues_;
  std::atomic<uint64_t> version_{0};
  std::vector<std::shared_ptr<Queue>> polled_;  // used by the poller
  uint64_t polled_version_ = 0;                 // used by the poller
};

constexpr size_t kPageBytes = 4096;

Result<void*> allocate_aligned(size_t bytes) {
  // Align large buffers to pages, so that they share neither pages nor cache lines.
  const size_t alignment = bytes >= kPageBytes ? kPageBytes : 64;
  if (bytes > SIZE_MAX / 2)
    return error(ErrorCode::InvalidArgument, "cannot allocate %zu bytes of host memory", bytes);
  const size_t rounded = (std::max(bytes, size_t{1}) + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded);
  if (!memory) return error(ErrorCode::SystemError, "out of memory: %zu bytes on the host", bytes);
  return memory;
}

std::string machine() {
  utsname names{};
  return uname(&names) == 0 ? names.machine : "unknown";
}

std::string processor() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return machine();
}

TaskQueue& tasks_of(const Stream& stream) {
  return *static_cast<TaskQueue*>(stream.native());
}

class HostDevice : public Device {
 public:
  explicit HostDevice(std::shared_ptr<Crew> crew) : queues_(std::move(crew)) {}
  [[nodiscard]] uint32_t capabilities() const override {
    return kHostAccessible | kKernels | kCooperative | kEncodes;
  }
  [[nodiscard]] std::string vendor() const override { return "host"; }
  [[nodiscard]] std::string model() const override { return processor(); }
  [[nodiscard]] std::string architecture() const override { return machine(); }

  Result<void*> allocate(size_t bytes) override {
    HETCCL_ASSIGN(void* memory, allocate_aligned(bytes));
    if (bytes >= kPageBytes) allocations_.add(memory, bytes);  // smaller ones share pages
    return memory;
  }
  void free(void* memory) override {
    allocations_.remove(memory);
    std::free(memory);
  }
  /// Does not find the user's own memory, because nothing tells when it is freed.
  [[nodiscard]] std::optional<Allocation> find_allocation(const void* address) override {
    return allocations_.find(address);
  }
  Result<void*> allocate_pinned(size_t bytes) override {
    HETCCL_ASSIGN(void* memory, allocate_aligned(bytes));
    return std::memset(memory, 0, bytes);
  }
  void free_pinned(void* memory) override { std::free(memory); }
  Status pin(void* /*memory*/, size_t /*bytes*/) override { return {}; }  // nothing to pin
  void unpin(void* /*memory*/) override {}

  Result<std::unique_ptr<Stream>> create_stream() override {
    return std::unique_ptr<Stream>(
        std::make_unique<HostStream>(queues_.add(), HostStream::Role::Maker));
  }
  Result<std::unique_ptr<Stream>> wrap_stream(void* native) override {
    auto queue = native ? queues_.find(native) : nullptr;
    if (!queue)
      return error(ErrorCode::InvalidArgument,
                   "stream %p is no stream of this host device: pass one that hetccl made", native);
    return std::unique_ptr<Stream>(
        std::make_unique<HostStream>(std::move(queue), HostStream::Role::Wrapper));
  }
  Result<std::unique_ptr<Event>> create_event() override {
    return std::unique_ptr<Event>(std::make_unique<HostEvent>());
  }

  Status record(Event& event, Stream& stream) override {
    static_cast<HostEvent&>(event).record(tasks_of(stream));
    return {};
  }
  Status wait(Stream& stream, Event& event) override {
    static_cast<HostEvent&>(event).wait(tasks_of(stream));
    return {};
  }
  Status wait_flag(Stream& stream, Flag& flag, uint32_t value) override {
    push_wait_flag(tasks_of(stream), flag, value);
    return {};
  }
  Status write_flag(Stream& stream, Flag& flag, uint32_t value) override {
    push_write_flag(tasks_of(stream), flag, value);
    return {};
  }
  Status copy(Stream& stream, void* dst, const void* src, size_t bytes) override {
    push_copy(tasks_of(stream), dst, src, bytes);
    return {};
  }
  Status copy_all(Stream& stream, std::span<const Copy> copies) override {
    push_copies(tasks_of(stream), copies);
    return {};
  }
  Status reduce(Stream& stream, const Reduction& reduction) override {
    HETCCL_TRY(validate(reduction));
    push_reduce(tasks_of(stream), reduction);
    return {};
  }
  Status call_host(Stream& stream, void (*function)(void*), void* argument) override {
    push_call(tasks_of(stream), function, argument);
    return {};
  }

  bool progress() override { return queues_.poll(); }

 private:
  QueueList queues_;
  Allocations allocations_;
};

}  // namespace

std::unique_ptr<Device> make_host_device(std::shared_ptr<Crew> crew) {
  return std::make_unique<HostDevice>(std::move(crew));
}

}  // namespace hetccl::device
