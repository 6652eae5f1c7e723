#include "fake/slow_host.h"

#include <random>

#include "base/task_queue.h"
#include "device/host/host_device.h"

namespace hetccl::fake {
namespace {

using device::Event;
using device::Flag;
using device::Stream;

class SlowHost final : public device::Device {
 public:
  explicit SlowHost(uint64_t seed) : random_(seed) {}

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
    return real_->wait_flag(stream, flag, value);
  }
  Status write_flag(Stream& stream, Flag& flag, uint32_t value) override {
    return real_->write_flag(stream, flag, value);
  }
  Status copy(Stream& stream, void* dst, const void* src, size_t bytes) override {
    static_cast<TaskQueue*>(stream.native())->push([polls = random_() % kPolls]() mutable {
      return polls-- == 0 ? TaskState::Done : TaskState::Pending;
    });
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
  static constexpr uint64_t kPolls = 32;

  std::unique_ptr<device::Device> real_ = device::make_host_device();
  std::mt19937_64 random_;
};

}  // namespace

std::unique_ptr<device::Device> make_slow_host(uint64_t seed) {
  return std::make_unique<SlowHost>(seed);
}

}  // namespace hetccl::fake
