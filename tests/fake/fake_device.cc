#include "fake/fake_device.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <random>
#include <set>
#include <source_location>
#include <string_view>
#include <thread>

#include "device/allocations.h"
#include "device/host/stream_tasks.h"
#include "fake/device_memory.h"
#include "fake/patience.h"
#include "progress/engine.h"

namespace hetccl::fake {

namespace {

using namespace device;

void* map_address(void* memory, const void* address) {
  return static_cast<const DeviceMemory*>(memory)->alias(address);
}

[[noreturn]] void die(const char* what, const char* where) {
  std::fprintf(stderr, "fake device: %s: %s\n", where, what);
  std::abort();
}

// The lock that calls of a driver take, with checks of who calls.
class Driver {
 public:
  using Where = std::source_location;
  // Called by each call.
  static void enter(Where where = Where::current()) {
    if (progress::Engine::drives())
      die("called by a thread that drives an engine", where.function_name());
  }
  // Called by each call that makes or ends something.
  void pass(Where where = Where::current()) {
    enter(where);
    waiting_.fetch_add(1);
    const std::lock_guard lock(mutex_);
    waiting_.fetch_sub(1);
  }
  // Holds the lock until `drained`.
  void drain(const std::function<bool()>& drained) {
    enter();
    const std::lock_guard lock(mutex_);
    drains_.store(true);
    const TimePoint end = hetccl::steady_clock().now() + kHang;
    while (!drained()) {
      if (hetccl::steady_clock().now() > end) die("streams never drain", "drain_and_free");
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    drains_.store(false);
  }
  [[nodiscard]] int waiting() const { return waiting_.load(); }
  [[nodiscard]] bool drains() const { return drains_.load(); }

 private:
  std::mutex mutex_;
  std::atomic<int> waiting_{0};
  std::atomic<bool> drains_{false};
};

class FakeStream;

// The streams of a device, for checks of all of them.
class StreamSet {
 public:
  void add(const FakeStream& stream) {
    const std::lock_guard lock(mutex_);
    streams_.insert(&stream);
  }
  void remove(const FakeStream& stream) {
    const std::lock_guard lock(mutex_);
    streams_.erase(&stream);
  }
  [[nodiscard]] bool idle();

 private:
  std::mutex mutex_;
  std::set<const FakeStream*> streams_;
};

class FakeStream : public Stream {
 public:
  FakeStream(DeviceMemory& memory, StreamSet& set, Driver& driver, uint64_t seed, int max_delay_us)
      : queue_(map_address, &memory),
        set_(set),
        driver_(driver),
        random_(seed),
        max_delay_us_(max_delay_us),
        thread_([this] { run(); }) {
    set_.add(*this);
  }
  ~FakeStream() override {
    driver_.pass();
    set_.remove(*this);
    unwinding_.store(std::uncaught_exceptions() > 0);
    closing_.store(true, std::memory_order_release);
    thread_.join();
  }
  FakeStream(const FakeStream&) = delete;
  FakeStream& operator=(const FakeStream&) = delete;

  [[nodiscard]] void* native() const override { return const_cast<TaskQueue*>(&queue_); }
  [[nodiscard]] bool idle() const { return queue_.empty(); }

 private:
  void run() {
    using namespace std::chrono;
    std::uniform_int_distribution<int> delay_us(0, max_delay_us_);
    auto last_move = steady_clock::now();
    for (;;) {
      const bool closing = closing_.load(std::memory_order_acquire);
      if (queue_.poll()) {
        last_move = steady_clock::now();
        if (max_delay_us_ > 0) std::this_thread::sleep_for(microseconds(delay_us(random_)));
        continue;
      }
      if (closing && queue_.empty()) return;
      const auto waited = steady_clock::now() - last_move;
      if (closing && unwinding_.load()) return;
      if (closing && waited > kHang) die("it was destroyed with work that never ends", "stream");
      if (waited < microseconds(50))
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(microseconds(waited < milliseconds(20) ? 20 : 200));
    }
  }

  TaskQueue queue_;
  StreamSet& set_;
  Driver& driver_;
  std::mt19937_64 random_;
  int max_delay_us_;
  std::atomic<bool> closing_{false};
  std::atomic<bool> unwinding_{false};  // a check has failed: what this waits for never comes
  std::thread thread_;                  // last: it uses all of the above
};

bool StreamSet::idle() {
  const std::lock_guard lock(mutex_);
  return std::all_of(streams_.begin(), streams_.end(),
                     [](const FakeStream* stream) { return stream->idle(); });
}

class WrappedStream : public Stream {
 public:
  explicit WrappedStream(void* queue) : queue_(queue) {}
  [[nodiscard]] void* native() const override { return queue_; }

 private:
  void* queue_;
};

// One of several on the queue of another stream.
class SharedStream : public WrappedStream {
 public:
  SharedStream(void* queue, Driver& driver) : WrappedStream(queue), driver_(driver) {}
  ~SharedStream() override {
    driver_.pass();
    if (std::uncaught_exceptions() > 0)
      return;  // a check has failed: the queue may never come here
    Flag end;
    push_write_flag(*static_cast<TaskQueue*>(native()), end, 1);
    while (!end.reached(1)) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  SharedStream(const SharedStream&) = delete;
  SharedStream& operator=(const SharedStream&) = delete;

 private:
  Driver& driver_;
};

class FakeEvent : public HostEvent {
 public:
  explicit FakeEvent(Driver& driver) : driver_(driver) {}
  ~FakeEvent() override { driver_.pass(); }
  FakeEvent(const FakeEvent&) = delete;
  FakeEvent& operator=(const FakeEvent&) = delete;

 private:
  Driver& driver_;
};

class FakeDeviceImpl : public FakeDevice {
 public:
  explicit FakeDeviceImpl(const FakeOptions& options) : options_(options), random_(options.seed) {}
  Status open() {
    HETCCL_TRY(memory_.open(options_.memory_bytes));
    if (options_.one_queue) queue_ = make_stream();
    return {};
  }

  [[nodiscard]] uint32_t capabilities() const override {
    return options_.kernels ? kKernels | kBatches | (options_.encodes ? kEncodes : 0U) : 0U;
  }
  [[nodiscard]] std::string vendor() const override { return "fake"; }
  [[nodiscard]] std::string model() const override { return "asynchronous fake device"; }
  [[nodiscard]] std::string architecture() const override { return "fake"; }
  [[nodiscard]] int multiprocessors() const override { return options_.multiprocessors; }
  [[nodiscard]] bool supports(DataType type, RedOp op) const override {
    return Device::supports(type, op) && type != options_.lacks;
  }

  Result<void*> allocate(size_t bytes) override {
    note(Call::Makes);
    HETCCL_ASSIGN(void* memory, memory_.allocate(bytes));
    allocations_.add(memory, bytes, true);
    return memory;
  }
  void free(void* memory) override {
    note(Call::Frees);
    allocations_.remove(memory);
    memory_.free(memory);
  }
  Result<void*> allocate_pinned(size_t bytes) override {
    note(Call::Makes);
    const size_t rounded = (std::max<size_t>(bytes, 1) + 63) / 64 * 64;
    void* memory = std::memset(std::aligned_alloc(64, rounded), 0, rounded);
    allocations_.add(memory, bytes);
    return memory;
  }
  void free_pinned(void* memory) override {
    note(Call::Frees);
    allocations_.remove(memory);
    std::free(memory);
  }
  [[nodiscard]] std::optional<device::Allocation> find_allocation(const void* address) override {
    note(Call::Enqueues);
    return allocations_.find(address);
  }
  Result<device::DmaBuf> export_memory(const device::Allocation& allocation) override {
    note(Call::Enqueues);
    if (!options_.exports) return Device::export_memory(allocation);
    return memory_.export_memory(allocation);
  }
  [[nodiscard]] bool needs_flush() const override { return options_.needs_flush; }
  [[nodiscard]] std::string bus_id() const override { return options_.bus; }
  Status pin(void* /*memory*/, size_t /*bytes*/) override {
    note(Call::Makes);
    return {};
  }
  void unpin(void* /*memory*/) override { note(Call::Makes); }

  Result<std::unique_ptr<Stream>> create_stream() override {
    note(Call::Makes);
    if (queue_ == nullptr) return make_stream();
    return std::unique_ptr<Stream>(std::make_unique<SharedStream>(queue_->native(), driver_));
  }
  Result<std::unique_ptr<Stream>> wrap_stream(void* native) override {
    note(Call::Enqueues);
    if (!native)
      return error(ErrorCode::InvalidArgument, "a null stream is no stream of this device");
    return std::unique_ptr<Stream>(std::make_unique<WrappedStream>(native));
  }
  Result<std::unique_ptr<Event>> create_event() override {
    note(Call::Makes);
    return std::unique_ptr<Event>(std::make_unique<FakeEvent>(driver_));
  }

  Status record(Event& event, Stream& stream) override {
    static_cast<HostEvent&>(event).record(delayed(stream));
    return {};
  }
  Status wait(Stream& stream, Event& event) override {
    static_cast<HostEvent&>(event).wait(delayed(stream));
    return {};
  }
  Status wait_flag(Stream& stream, Flag& flag, uint32_t value) override {
    push_wait_flag(delayed(stream), flag, value);
    return {};
  }
  Status write_flag(Stream& stream, Flag& flag, uint32_t value) override {
    push_write_flag(delayed(stream), flag, value);
    return {};
  }
  Status copy(Stream& stream, void* dst, const void* src, size_t bytes) override {
    push_copy(delayed(stream), dst, src, bytes);
    return {};
  }
  Status call_host(Stream& stream, void (*function)(void*), void* argument) override {
    push_call(delayed(stream), function, argument);
    return {};
  }
  Status reduce(Stream& stream, const Reduction& reduction) override {
    if (!options_.kernels) return error(ErrorCode::Unsupported, "this fake device has no kernels");
    HETCCL_TRY(validate(reduction));
    if (reduction.type == options_.lacks)
      return error(ErrorCode::Unsupported, "no kernel of this type");
    push_reduce(delayed(stream), reduction);
    return {};
  }
  Status run(Stream& stream, std::span<const StreamWork> work, bool /*spins*/) override {
    if (!options_.kernels) return error(ErrorCode::Unsupported, "this fake device has no kernels");
    for (const StreamWork& one : work) HETCCL_TRY(enqueue(stream, one));
    return {};
  }
  bool progress() override { return false; }
  bool is_capturing(void* /*native*/) override { return capturing_.load(); }
  void set_capturing(bool capturing) override { capturing_.store(capturing); }

  void upload(void* device_memory, const void* host, size_t bytes) override {
    if (bytes > 0) std::memcpy(memory_.alias(device_memory), host, bytes);
  }
  void download(void* host, const void* device_memory, size_t bytes) override {
    if (bytes > 0) std::memcpy(host, memory_.alias(device_memory), bytes);
  }

  [[nodiscard]] void* reach(void* memory) const override { return memory_.alias(memory); }

  [[nodiscard]] FakeCalls calls() const override {
    return {makes_.load(), by_hetccl_.load(), driver_.waiting(), driver_.drains()};
  }
  void drain_and_free(void* memory) override {
    driver_.drain([this] { return streams_.idle(); });
    allocations_.remove(memory);
    memory_.free(memory);
  }

  bool synchronize(Duration deadline) override {
    const TimePoint end = hetccl::steady_clock().now() + deadline;
    for (;;) {
      if (streams_.idle()) return true;
      if (hetccl::steady_clock().now() > end) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

 private:
  std::unique_ptr<Stream> make_stream() {
    uint64_t seed = 0;
    {
      std::lock_guard lock(mutex_);
      seed = random_();
    }
    return std::make_unique<FakeStream>(memory_, streams_, driver_, seed, options_.max_delay_us);
  }
  enum class Call { Enqueues, Frees, Makes };
  void note(Call call, Driver::Where where = Driver::Where::current()) {
    call == Call::Makes ? driver_.pass(where) : Driver::enter(where);
    if (call != Call::Enqueues) makes_.fetch_add(1);
    char name[16] = {};
    pthread_getname_np(pthread_self(), name, sizeof name);
    const std::string_view thread(name);
    if (thread.starts_with("hetccl-") && thread != "hetccl-settler") by_hetccl_.fetch_add(1);
  }
  // The stream's queue, after a task that lets a random time pass.
  TaskQueue& delayed(Stream& stream) {
    note(Call::Enqueues);
    auto& queue = *static_cast<TaskQueue*>(stream.native());
    if (options_.max_delay_us == 0) return queue;
    std::lock_guard lock(mutex_);
    const auto pause =
        std::chrono::microseconds(random_() % static_cast<uint64_t>(options_.max_delay_us + 1));
    queue.push([pause, end = TimePoint{}]() mutable {
      const TimePoint now = hetccl::steady_clock().now();
      if (end == TimePoint{}) end = now + pause;
      return now >= end ? TaskState::Done : TaskState::Pending;
    });
    return queue;
  }

  std::atomic<bool> capturing_{false};
  std::atomic<uint64_t> makes_{0}, by_hetccl_{0};
  const FakeOptions options_;
  DeviceMemory memory_;
  device::Allocations allocations_;
  StreamSet streams_;
  Driver driver_;
  std::mutex mutex_;
  std::mt19937_64 random_;
  std::unique_ptr<Stream> queue_;  // of all streams, or null; after what it uses
};

}  // namespace

Result<std::unique_ptr<FakeDevice>> FakeDevice::create(const FakeOptions& options) {
  auto device = std::make_unique<FakeDeviceImpl>(options);
  HETCCL_TRY(device->open());
  return std::unique_ptr<FakeDevice>(std::move(device));
}

}  // namespace hetccl::fake
