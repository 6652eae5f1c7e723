#include "fake/fake_device.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <random>
#include <set>
#include <string_view>
#include <thread>

#include "device/host/stream_tasks.h"
#include "fake/device_memory.h"
#include "fake/patience.h"

namespace hetccl::fake {

namespace {

using namespace device;

void* map_address(void* memory, const void* address) {
  return static_cast<const DeviceMemory*>(memory)->alias(address);
}

class FakeStream;

// The streams of a device, so that `synchronize` can look at all of them.
struct StreamSet {
  std::mutex mutex;
  std::set<const FakeStream*> streams;
};

class FakeStream : public Stream {
 public:
  FakeStream(DeviceMemory& memory, StreamSet& set, uint64_t seed, int max_delay_us)
      : queue_(map_address, &memory),
        set_(set),
        random_(seed),
        max_delay_us_(max_delay_us),
        thread_([this] { run(); }) {
    std::lock_guard lock(set_.mutex);
    set_.streams.insert(this);
  }
  ~FakeStream() override {
    {
      std::lock_guard lock(set_.mutex);
      set_.streams.erase(this);
    }
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
      if (closing && waited > kHang) {
        std::fprintf(stderr, "fake device: a stream was destroyed with work that never ends\n");
        std::abort();
      }
      if (waited < microseconds(50))
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(microseconds(waited < milliseconds(20) ? 20 : 200));
    }
  }

  TaskQueue queue_;
  StreamSet& set_;
  std::mt19937_64 random_;
  int max_delay_us_;
  std::atomic<bool> closing_{false};
  std::atomic<bool> unwinding_{false};  // a check has failed: nobody will do what this waits for
  std::thread thread_;                  // last: it uses all of the above
};

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
  explicit SharedStream(void* queue) : WrappedStream(queue) {}
  ~SharedStream() override {
    if (std::uncaught_exceptions() > 0)
      return;  // a check has failed: the queue may never come here
    Flag end;
    push_write_flag(*static_cast<TaskQueue*>(native()), end, 1);
    while (!end.reached(1)) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  SharedStream(const SharedStream&) = delete;
  SharedStream& operator=(const SharedStream&) = delete;
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
    return options_.kernels ? kKernels | (options_.encodes ? kEncodes : 0U) : 0U;
  }
  [[nodiscard]] std::string vendor() const override { return "fake"; }
  [[nodiscard]] std::string model() const override { return "asynchronous fake device"; }
  [[nodiscard]] std::string architecture() const override { return "fake"; }
  [[nodiscard]] bool supports(DataType type, RedOp op) const override {
    return Device::supports(type, op) && type != options_.lacks;
  }

  Result<void*> allocate(size_t bytes) override {
    note(Makes::Yes);
    return memory_.allocate(bytes);
  }
  void free(void* memory) override {
    note(Makes::Yes);
    memory_.free(memory);
  }
  Result<void*> allocate_pinned(size_t bytes) override {
    note(Makes::Yes);
    const size_t rounded = (std::max<size_t>(bytes, 1) + 63) / 64 * 64;
    return std::memset(std::aligned_alloc(64, rounded), 0, rounded);
  }
  void free_pinned(void* memory) override {
    note(Makes::Yes);
    std::free(memory);
  }
  Status pin(void* /*memory*/, size_t /*bytes*/) override {
    note(Makes::Yes);
    return {};
  }
  void unpin(void* /*memory*/) override { note(Makes::Yes); }

  Result<std::unique_ptr<Stream>> create_stream() override {
    note(Makes::Yes);
    if (queue_ == nullptr) return make_stream();
    return std::unique_ptr<Stream>(std::make_unique<SharedStream>(queue_->native()));
  }
  Result<std::unique_ptr<Stream>> wrap_stream(void* native) override {
    note(Makes::No);
    if (!native) return error(Code::InvalidArgument, "a null stream is no stream of this device");
    return std::unique_ptr<Stream>(std::make_unique<WrappedStream>(native));
  }
  Result<std::unique_ptr<Event>> create_event() override {
    note(Makes::Yes);
    return std::unique_ptr<Event>(std::make_unique<HostEvent>());
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
    if (!options_.kernels) return error(Code::Unsupported, "this fake device has no kernels");
    HETCCL_TRY(validate(reduction));
    if (reduction.type == options_.lacks) return error(Code::Unsupported, "no kernel of this type");
    push_reduce(delayed(stream), reduction);
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

  [[nodiscard]] FakeCalls calls() const override { return {makes_.load(), by_hetccl_.load()}; }

  bool synchronize(Duration deadline) override {
    const TimePoint end = hetccl::steady_clock().now() + deadline;
    for (;;) {
      {
        std::lock_guard lock(streams_.mutex);
        bool idle = true;
        for (const FakeStream* stream : streams_.streams) idle &= stream->idle();
        if (idle) return true;
      }
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
    return std::make_unique<FakeStream>(memory_, streams_, seed, options_.max_delay_us);
  }
  enum class Makes : bool { No, Yes };
  void note(Makes makes) {
    if (makes == Makes::Yes) makes_.fetch_add(1);
    char name[16] = {};
    pthread_getname_np(pthread_self(), name, sizeof name);
    const std::string_view thread(name);
    if (thread.starts_with("hetccl-") && thread != "hetccl-settler") by_hetccl_.fetch_add(1);
  }
  // The stream's queue, after a task that lets a random time pass.
  TaskQueue& delayed(Stream& stream) {
    note(Makes::No);
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
  StreamSet streams_;
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
