// Endpoints of one process, each with a Runtime of its own as processes have.
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/ranks.h"
#include "fake/fake_device.h"
#include "fake/patience.h"
#include "fake/transport_adaptor.h"
#include "onesided/endpoint.h"

namespace hetccl::onesided {

inline TimePoint soon() {
  return steady_clock().now() + fake::kHang;
}

/// One kind of endpoint: where its memory is, and how it talks.
struct Kind {
  bool on_device = false;
  std::string host;  ///< endpoints of one share memory
  bool encrypts = false;
  uint64_t seed = 1;
  int64_t liveness_ms = fake::kHangMs;
  bool by_adaptor = false;  ///< over a transport whose channels take no lists
};

/// One endpoint, its runtime, and memory that may be a fake device's.
class End {
 public:
  End(const std::string& name, const Kind& kind) {
    Config config;
    config.socket_ifname = "=lo";
    config.host_id = kind.host;
    config.encrypt = kind.encrypts;
    config.liveness_ms = kind.liveness_ms;
    config.init_timeout_ms = config.timeout_ms = fake::kHangMs;
    comm::Adaptors adaptors = comm::all_adaptors();
    if (kind.on_device) {
      fake::FakeOptions options;
      options.seed = kind.seed;
      options.max_delay_us = 20;
      auto device = std::move(fake::FakeDevice::create(options)).value();
      device_ = device.get();
      adaptors = comm::adaptors_with(std::move(device));
    }
    if (kind.by_adaptor) {
      const auto found = adaptor::check(&fake::transport_adaptor(), "fake.so", {});
      adaptors = comm::with_transports(std::move(adaptors), {{"fake.so", found}});
    }
    runtime_ = std::move(comm::Runtime::create(config, std::move(adaptors))).value();
    auto made = Endpoint::create(*runtime_, {name, ""});
    REQUIRE_MESSAGE(made.ok(), made.status().message());
    endpoint_ = std::move(made).value();
    if (device_ != nullptr) stream_ = device_->create_stream().value();
  }
  ~End() {
    endpoint_.reset();
    stream_.reset();
    for (void* memory : memory_) device_->free(memory);
  }

  Endpoint* operator->() const { return endpoint_.get(); }
  [[nodiscard]] comm::Runtime& runtime() const { return *runtime_; }
  [[nodiscard]] fake::FakeDevice& device() const { return *device_; }

  struct Memory {
    std::byte* data = nullptr;
    size_t bytes = 0;
    uint64_t region = 0;
  };
  Memory add(std::vector<std::byte> content, uint32_t flags = kGet | kPut) {
    Memory memory{nullptr, content.size(), 0};
    if (device_ != nullptr) {
      memory.data = static_cast<std::byte*>(device_->allocate(content.size()).value());
      device_->upload(memory.data, content.data(), content.size());
      memory_.push_back(memory.data);
    } else {
      kept_.push_back(std::move(content));
      memory.data = kept_.back().data();
    }
    auto region = endpoint_->add_region(memory.data, memory.bytes, flags, "");
    REQUIRE_MESSAGE(region.ok(), region.status().message());
    memory.region = region.value();
    return memory;
  }
  [[nodiscard]] std::vector<std::byte> read(const Memory& memory) const {
    // Take the driver's lock once: ThreadSanitizer sees no other order between its writes and this
    // read.
    if (endpoint_) static_cast<void>(endpoint_->peers());
    std::vector<std::byte> content(memory.bytes);
    if (device_ != nullptr) {
      device_->download(content.data(), memory.data, memory.bytes);
    } else {
      std::memcpy(content.data(), memory.data, memory.bytes);
    }
    return content;
  }
  std::shared_ptr<Transfer> begin(uint64_t peer, bool puts, const std::vector<Block>& blocks,
                                  std::optional<Bytes> notification = {}, int64_t timeout_ms = 0,
                                  device::Stream* stream = nullptr) {
    if (stream == nullptr) stream = stream_.get();
    auto list = endpoint_->prepare(blocks);
    REQUIRE_MESSAGE(list.ok(), list.status().message());
    auto begun = endpoint_->begin(peer, {puts, list.value(), std::move(notification), timeout_ms,
                                         stream != nullptr ? stream->native() : nullptr});
    REQUIRE_MESSAGE(begun.ok(), begun.status().message());
    return begun.value();
  }
  Status wait(const Transfer& transfer) const {
    if (!endpoint_->wait(transfer, soon())) return error(ErrorCode::Timeout, "it hangs");
    return transfer.status();
  }

 private:
  std::unique_ptr<comm::Runtime> runtime_;
  fake::FakeDevice* device_ = nullptr;
  std::unique_ptr<device::Stream> stream_;
  std::vector<void*> memory_;
  std::deque<std::vector<std::byte>> kept_;
  std::shared_ptr<Endpoint> endpoint_;
};

inline uint64_t connect(End& from, End& to) {
  const auto peer = from->connect(to->metadata(), fake::kHangMs);
  REQUIRE_MESSAGE(peer.ok(), peer.status().message());
  return peer.value();
}

inline std::vector<std::byte> pattern(size_t bytes, uint64_t seed) {
  std::vector<uint64_t> words(bytes / 8 + 1);
  uint64_t word = seed * 0x9e3779b97f4a7c15 + 1;
  for (uint64_t& one : words) one = word = word * 0x5851f42d4c957f2d + 0x14057b7ef767814f;
  std::vector<std::byte> made(bytes);
  std::memcpy(made.data(), words.data(), bytes);
  return made;
}

}  // namespace hetccl::onesided
