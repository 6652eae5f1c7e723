// Ranks with fake devices, each a host of its own, whose transport may move the devices' memory.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "comm/ranks.h"
#include "fake/cases.h"
#include "fake/patience.h"

namespace hetccl::comm {

using ChangeAdaptors = std::function<void(Adaptors&)>;

inline std::vector<Config> hosts_with_devices(size_t n, const std::string& transport) {
  std::vector<Config> configs(n);
  for (size_t i = 0; i < n; ++i) {
    configs[i].host_id = format("host%zu", i);
    configs[i].cluster = format("%zu", i);
    configs[i].transport = transport;
    configs[i].socket_ifname = "=lo";
    configs[i].slice_bytes = 64 << 10;
    configs[i].init_timeout_ms = configs[i].timeout_ms = fake::kHangMs;
  }
  return configs;
}

/// Runs random collectives, and checks their values.
inline void run_random_cases(const std::vector<Config>& configs, const fake::FakeOptions& options,
                             uint64_t seed, const ChangeAdaptors& change = {}) {
  std::mt19937_64 random(seed);
  std::vector<std::string> labels;
  for (const Config& config : configs) labels.push_back(config.cluster);
  std::vector<fake::Case> tests;
  for (int i = 0; i < 40; ++i)
    tests.push_back(fake::random_case(random, labels, i % 8 == 0 ? 200'000 : 3000));
  const auto body = [&](int rank, auto& device, const auto& communicator) {
    const auto stream = device.create_stream().value();
    for (const fake::Case& test : tests) {
      std::vector<std::vector<std::byte>> inputs;
      for (int r = 0; r < test.n_ranks(); ++r) inputs.push_back(input_of(test, r));
      CHECK(run(test, rank, device, *communicator, *stream, inputs) == "");
    }
    CHECK(communicator->finish().ok());
  };
  on_fake_devices(configs, options, body, change);
}

/// Rank 0 sends `bytes` to rank 1, in the memory given, and rank 1 checks them.
inline void pass_message(int rank, fake::FakeDevice& device, Communicator& communicator,
                         device::Stream& stream, void* memory, size_t bytes, uint8_t seed) {
  std::vector<std::byte> sent(bytes), got(bytes);
  for (size_t i = 0; i < bytes; ++i) sent[i] = static_cast<std::byte>(i * 7 + seed);
  if (rank == 0) device.upload(memory, sent.data(), bytes);
  const exec::Message message{
      .send = rank == 0, .peer = 1 - rank, .data = memory, .type = DataType::Uint8, .count = bytes};
  const Status status = communicator.dispatch().call(std::span(&message, 1), stream.native());
  CHECK_MESSAGE(status.ok(), status.message());
  CHECK(device.synchronize(fake::kHang));
  device.download(got.data(), memory, bytes);
  CHECK(got == sent);
}

}  // namespace hetccl::comm
