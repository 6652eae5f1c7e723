// Fixtures for exec's unit tests: a device of task queues that counts its memory and can run out of
// it, and a library that does nothing.
#pragma once

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "ccl/ccl.h"
#include "device/device.h"
#include "host/task_queue.h"

namespace hetccl::exec::testing {

class QueueStream : public device::Stream {
 public:
  [[nodiscard]] void* native() const override { return &queue_; }

 private:
  mutable TaskQueue queue_;
};

class QueueEvent : public device::Event {
 public:
  std::shared_ptr<std::atomic<bool>> reached;
};

/// A vendor's library of one rank that refuses its call number `refused`, and may be slow.
class Library : public ccl::Communicator {
 public:
  int refused = -1;
  int calls = 0;
  bool aborted = false;
  std::function<void()> meanwhile;  // run inside each call

  Status all_reduce(const void*, void*, size_t, DataType, const Reducer&, void*) override {
    return next();
  }
  Status reduce(std::span<const ccl::Shard>, DataType, const Reducer&, void*) override {
    return next();
  }
  Status broadcast(std::span<const ccl::Shard>, DataType, void*) override { return next(); }
  Status barrier(void*) override { return next(); }
  [[nodiscard]] Status async_error() const override { return {}; }
  void abort() override { aborted = true; }
  [[nodiscard]] ShmSource* shm_source() override { return nullptr; }

 private:
  Status next() {
    if (meanwhile) meanwhile();
    if (calls++ == refused) return error(ErrorCode::SystemError, "the library refused");
    return {};
  }
};

/// Driven by its test, by one thread at a time.
class QueueDevice : public device::Device {
 public:
  size_t blocks = 0;                 ///< allocated blocks
  size_t allocated_bytes = 0;        ///< allocated so far, by all calls
  size_t largest_block = SIZE_MAX;   ///< larger requests are refused
  std::vector<QueueStream*> polled;  ///< the streams that `progress` drives

  [[nodiscard]] uint32_t capabilities() const override {
    return device::kHostAccessible | device::kKernels | device::kCooperative;
  }
  [[nodiscard]] std::string vendor() const override { return "queues"; }
  [[nodiscard]] std::string model() const override { return "test"; }
  [[nodiscard]] std::string architecture() const override { return "test"; }

  Result<void*> allocate(size_t bytes) override {
    if (bytes > largest_block) return error(ErrorCode::SystemError, "no room for %zu bytes", bytes);
    ++blocks;
    allocated_bytes += bytes;
    return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  }
  void free(void* memory) override {
    --blocks;
    std::free(memory);
  }
  Result<void*> allocate_pinned(size_t bytes) override { return allocate(bytes); }
  void free_pinned(void* memory) override { free(memory); }
  Status pin(void* /*memory*/, size_t /*bytes*/) override { return {}; }
  void unpin(void* /*memory*/) override {}

  Result<std::unique_ptr<device::Stream>> create_stream() override {
    auto stream = std::make_unique<QueueStream>();
    polled.push_back(stream.get());
    return std::unique_ptr<device::Stream>(std::move(stream));
  }
  Result<std::unique_ptr<device::Stream>> wrap_stream(void* /*native*/) override {
    return error(ErrorCode::Unsupported, "the test wraps no stream");
  }
  Result<std::unique_ptr<device::Event>> create_event() override {
    return std::unique_ptr<device::Event>(std::make_unique<QueueEvent>());
  }

  Status record(device::Event& event, device::Stream& stream) override {
    auto reached = std::make_shared<std::atomic<bool>>(false);
    static_cast<QueueEvent&>(event).reached = reached;
    return push(stream, [reached] {
      reached->store(true);
      return TaskState::Done;
    });
  }
  Status wait(device::Stream& stream, device::Event& event) override {
    return push(stream, [reached = static_cast<QueueEvent&>(event).reached] {
      return reached == nullptr || reached->load() ? TaskState::Done : TaskState::Pending;
    });
  }
  Status wait_flag(device::Stream& stream, device::Flag& flag, uint32_t value) override {
    return push(stream, [&flag, value] {
      return flag.reached(value) ? TaskState::Done : TaskState::Pending;
    });
  }
  Status write_flag(device::Stream& stream, device::Flag& flag, uint32_t value) override {
    return push(stream, [&flag, value] {
      flag.word.store(value, std::memory_order_release);
      return TaskState::Done;
    });
  }
  Status call_host(device::Stream& stream, void (*function)(void*), void* argument) override {
    return push(stream, [function, argument] {
      function(argument);
      return TaskState::Done;
    });
  }
  Status copy(device::Stream& stream, void* dst, const void* src, size_t bytes) override {
    return push(stream, [dst, src, bytes] {
      std::memcpy(dst, src, bytes);
      return TaskState::Done;
    });
  }
  Status reduce(device::Stream& /*stream*/, const device::Reduction& /*reduction*/) override {
    return error(ErrorCode::Unsupported, "the test reduces nothing");
  }
  bool progress() override {
    bool moved = false;
    for (auto* stream : polled) moved |= static_cast<TaskQueue*>(stream->native())->poll();
    return moved;
  }

 private:
  template <typename Task>
  static Status push(device::Stream& stream, Task task) {
    static_cast<TaskQueue*>(stream.native())->push(std::move(task));
    return {};
  }
};

}  // namespace hetccl::exec::testing
