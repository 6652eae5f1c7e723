#include "fake/slow_host.h"

#include <random>

#include "base/clock.h"
#include "device/host/host_device.h"
#include "host/task_queue.h"

namespace hetccl::fake {
namespace {

using device::Event;
using device::Flag;
using device::Stream;

class SlowHost final : public device::Device {
 public:
  SlowHost(uint64_t seed, std::atomic<uint64_t>* copies) : random_(seed), copies_(copies) {}

  [[nodiscard]] uint32_t capabilities() const override { return real_->capabilities(); }
  [[nodiscard]] std::string vendor() const override { return real_->vendor(); }
  [[nodiscard]] std::string model() const override { return real_->model(); }
  [[nodiscard]] std::string architecture() const override { return real_->architecture(); }
  Result<void*> allocate(size_t bytes) override { return real_->allocate(bytes); }
  void free(void* memory) override { real_->free(memory); }
  Result<void*> allocate_pinned(size_t bytes) override { return real_->allocate_pinned(bytes); }
  void free_pinned(void* memory) override { real_->free_pinned(memory); }
  Status pin(void* memory, size_t bytes) override { return real_->pin(memory, bytes); }
  void unpin(void* memory) override { real_->unpin(memory); }
  Result<std::unique_ptr<Stream>> create_stream() override { return real_->create_stream(); }
  Result<std::unique_ptr<Stream>> wrap_stream(void* native) override {
    return real_->wrap_stream(native);
  }
  Result<std::unique_ptr<Event>> create_event() override { return real_->create_event(); }
  Status record(Event& event, Stream& stream) override { return real_->record(event, stream); }
  Status wait(Stream& stream, Event& event) override { return real_->wait(stream, event); }
  Status wait_flag(Stream& stream, Flag& flag, uint32_t value) override {
    HETCCL_TRY(real_->wait_flag(stream, flag, value));
    linger(stream);
    return {};
  }
  Status write_flag(Stream& stream, Flag& flag, uint32_t value) override {
    HETCCL_TRY(real_->write_flag(stream, flag, value));
    linger(stream);
    return {};
  }
  Status copy(Stream& stream, void* dst, const void* src, size_t bytes) override {
    if (copies_ != nullptr) copies_->fetch_add(1);
    linger(stream);
    return real_->copy(stream, dst, src, bytes);
  }
  Status reduce(Stream& stream, const device::Reduction& reduction) override {
    return real_->reduce(stream, reduction);
  }
  Status call_host(Stream& stream, void (*function)(void*), void* argument) override {
    return real_->call_host(stream, function, argument);
  }
  bool progress() override { return real_->progress(); }

 private:
  // Mostly for a moment, seldom for as long as other ranks need to come by.
  void linger(Stream& stream) {
    const std::chrono::microseconds time(random_() % (random_() % 16 == 0 ? 1000 : 10));
    TimePoint end;  // once it has begun
    static_cast<TaskQueue*>(stream.native())->push([time, end]() mutable {
      const TimePoint now = steady_clock().now();
      if (end == TimePoint()) end = now + time;
      return now < end ? TaskState::Pending : TaskState::Done;
    });
  }

  std::unique_ptr<device::Device> real_ = device::make_host_device();
  std::mt19937_64 random_;
  std::atomic<uint64_t>* copies_;
};

}  // namespace

std::unique_ptr<device::Device> make_slow_host(uint64_t seed, std::atomic<uint64_t>* copies) {
  return std::make_unique<SlowHost>(seed, copies);
}

}  // namespace hetccl::fake
