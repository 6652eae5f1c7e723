// Helpers that the suites of the ccl seam share: ranks as threads, on the host device and on the
// asynchronous fake device.
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "ccl/ccl.h"
#include "ccl/host/host_library.h"
#include "device/host/host_device.h"
#include "fake/fake_device.h"
#include "fake/patience.h"
#include "fake/reference.h"
#include "fake/thread.h"
#include "host/crew.h"

namespace hetccl::contract {

using Bytes = std::vector<std::byte>;
inline constexpr int64_t kTimeoutMs = fake::kHangMs;

// A failure inside a rank's thread, collected and reported by the test's own.
inline void need(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}
inline void need(const Status& status, const std::string& what) {
  need(status.ok(), what + ": " + status.message());
}

// One rank: a device, a stream and a communicator.
class Rank {
 public:
  Rank(ccl::Library& library, const ccl::UniqueId& id, int n, int r, bool asynchronous,
       uint64_t seed)
      : size(n), rank(r) {
    if (asynchronous) {
      auto made = fake::FakeDevice::create(
          {.seed = seed + static_cast<uint64_t>(r), .max_delay_us = 20, .memory_bytes = 96 << 20});
      need(made.status(), "fake device");
      fake_ = made->get();
      device_ = std::move(made).value();
    } else {
      // Some ranks copy and reduce with help.
      device_ = device::make_host_device(r % 2 == 0 ? std::make_shared<Crew>(2) : nullptr);
    }
    auto made = library.init(id, n, r, nullptr, kTimeoutMs);
    need(made.status(), "init");
    comm = std::move(made).value();
    stream_ = std::move(device_->create_stream().value());
    done_ = static_cast<device::Flag*>(device_->allocate_pinned(sizeof(device::Flag)).value());
  }
  ~Rank() {
    comm.reset();
    stream_.reset();
    for (void* memory : memory_) device_->free(memory);
    device_->free_pinned(done_);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  [[nodiscard]] void* native() const { return stream_->native(); }
  std::byte* place(const Bytes& content) {
    void* memory = device_->allocate(content.size()).value();
    memory_.push_back(memory);
    if (fake_)
      fake_->upload(memory, content.data(), content.size());
    else if (!content.empty())
      std::memcpy(memory, content.data(), content.size());
    return static_cast<std::byte*>(memory);
  }
  [[nodiscard]] Bytes fetch(const void* memory, size_t bytes) const {
    Bytes content(bytes);
    if (fake_)
      fake_->download(content.data(), memory, bytes);
    else if (bytes > 0)
      std::memcpy(content.data(), memory, bytes);
    return content;
  }
  // Drives the device until all that was enqueued has run.
  void finish() {
    (void)device_->write_flag(*stream_, *done_, ++turn_);
    const TimePoint end = steady_clock().now() + std::chrono::milliseconds(kTimeoutMs);
    while (!done_->reached(turn_)) {
      need(steady_clock().now() < end, "a collective hangs");
      if (!device_->progress()) std::this_thread::yield();
    }
  }
  void forget_memory() {
    for (void* memory : memory_) device_->free(memory);
    memory_.clear();
  }
  device::Device& device() { return *device_; }

  const int size, rank;
  std::unique_ptr<ccl::Communicator> comm;

 private:
  std::unique_ptr<device::Device> device_;
  fake::FakeDevice* fake_ = nullptr;
  std::unique_ptr<device::Stream> stream_;
  device::Flag* done_ = nullptr;
  uint32_t turn_ = 0;
  std::vector<void*> memory_;
};

// Ends the waits of other ranks if a check of this one fails.
struct AbortOnFailure {
  ccl::Communicator& comm;
  const int before = std::uncaught_exceptions();
  ~AbortOnFailure() {
    if (std::uncaught_exceptions() > before) comm.abort();
  }
};

// Runs `body` on `n` ranks, each a thread.
inline void run_ranks(int n, bool asynchronous, const std::function<void(Rank&)>& body,
                      uint64_t seed = 1) {
  CAPTURE(n);
  CAPTURE(asynchronous);
  auto library = ccl::make_host_library(asynchronous ? nullptr : std::make_shared<Crew>(2));
  auto id = library->unique_id(n, kTimeoutMs);
  REQUIRE(id.ok());
  std::vector<std::string> failures(static_cast<size_t>(n));
  fake::on_all_ranks(n, [&](int r) {
    try {
      Rank rank(*library, *id, n, r, asynchronous, seed);
      const AbortOnFailure others{*rank.comm};
      body(rank);
    } catch (const std::exception& failure) {
      failures[static_cast<size_t>(r)] = failure.what();
    }
  });
  for (const auto& failure : failures) CHECK(failure == "");
}

// The data of every rank, known to all: contribution `rank` to call `call`.
inline Bytes contribution(uint64_t call, int rank, DataType type, size_t count) {
  std::mt19937_64 random(call * 1000 + static_cast<uint64_t>(rank));
  return fake::random_elements(random, type, count);
}

}  // namespace hetccl::contract
