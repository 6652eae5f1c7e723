// Vendors whose devices cannot reduce, or not everything, and whose memory no host reads: their
// libraries reduce for them, or their hosts.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/config.h"
#include "comm/case_arguments.h"
#include "comm/ranks.h"
#include "fake/cases.h"
#include "fake/reference.h"

namespace {

using namespace hetccl;
using namespace hetccl::comm;
using fake::Case;

constexpr uint64_t kCases = 30;
constexpr uint64_t kMostElements = 20'000;
// A few cases are enough for sanitizers to see all uses of memory.
#if defined(HETCCL_UNDER_ASAN)
constexpr uint64_t kNoKernelsOneIn = 3;
#else
constexpr uint64_t kNoKernelsOneIn = 1;
#endif

void random_cases(const std::vector<std::string>& labels, uint64_t seed,
                  const fake::FakeOptions& options) {
  std::vector<Config> configs(labels.size());
  for (size_t r = 0; r < labels.size(); ++r) configs[r].cluster = labels[r];
  std::mt19937_64 random(seed);
  std::vector<Case> tests;
  for (uint64_t i = 0; i < kCases; ++i) {
    Case one = fake::random_case(random, labels, kMostElements);
    if (fake::is_sampled(i, kNoKernelsOneIn)) tests.push_back(std::move(one));
  }
  on_fake_devices(configs, options, [&](int rank, auto& device, const auto& communicator) {
    const auto stream = device.create_stream().value();
    for (const Case& test : tests) {
      std::vector<std::vector<std::byte>> inputs;
      for (int r = 0; r < test.n_ranks(); ++r) inputs.push_back(input_of(test, r));
      CHECK(run(test, rank, device, *communicator, *stream, inputs) == "");
    }
    CHECK(communicator->finish().ok());
  });
}

constexpr fake::FakeOptions kNoKernels{.max_delay_us = 20, .kernels = false};

using Bytes = std::vector<std::byte>;

// The rank's result of an encoded call, followed by its residual.
Bytes encoded_call(const Signature& signature, int rank, fake::FakeDevice& device,
                   Communicator& communicator, device::Stream& stream) {
  const size_t width = size_of(signature.type);
  const size_t all =
      signature.count * static_cast<size_t>(communicator.membership().n_ranks()) * width;
  Bytes input(all), result(2 * all);
  std::mt19937_64 random(static_cast<uint64_t>(rank));
  for (size_t i = 0; i < all / width; ++i) {
    const double value = std::uniform_real_distribution(-2.0, 2.0)(random);
    std::memcpy(input.data() + i * width, fake::element_of(signature.type, value).element, width);
  }
  auto* memory = static_cast<std::byte*>(device.allocate(3 * all).value());
  device.upload(memory, input.data(), all);
  device.upload(memory + all, result.data(), 2 * all);
  CollectiveArguments call{signature, memory, memory + all};
  call.factor = fake::element_of(signature.type, 1.5 + rank);
  if (reduces(signature.collective)) call.residual = memory + 2 * all;
  for (int again = 0; again < 2; ++again) {  // the second with the residual of the first
    const Status status = communicator.dispatch().call(call, stream.native());
    CHECK_MESSAGE(status.ok(), status.message());
  }
  CHECK(device.synchronize(fake::kHang));
  device.download(result.data(), memory + all, 2 * all);
  device.free(memory);
  const auto something = [](std::byte byte) { return byte != std::byte{0}; };
  if (call.residual != nullptr && rank == 0)  // else it was not encoded
    CHECK(std::any_of(result.begin() + static_cast<std::ptrdiff_t>(all), result.end(), something));
  return result;
}

// By rank, of several encoded calls.
std::vector<Bytes> encoded_calls(const std::vector<std::string>& labels, const std::string& wire,
                                 const fake::FakeOptions& options) {
  std::vector<Config> configs(labels.size());
  for (size_t r = 0; r < labels.size(); ++r) {
    configs[r].cluster = labels[r];
    configs[r].wire = configs[r].wire_gather = wire;
    configs[r].wire_inside = true;
    configs[r].wire_least_bytes = 0;
    configs[r].slice_bytes = 4096;
  }
  std::vector<Bytes> results(labels.size());
  on_fake_devices(configs, options, [&](int rank, auto& device, const auto& communicator) {
    const auto stream = device.create_stream().value();
    const auto append = [&](Collective collective, DataType type, RedOp op) {
      const Bytes one =
          encoded_call({collective, type, op, 0, 3001}, rank, device, *communicator, *stream);
      auto& all = results[static_cast<size_t>(rank)];
      all.insert(all.end(), one.begin(), one.end());
    };
    for (const DataType type : {DataType::Float32, DataType::BFloat16}) {
      for (const RedOp op : {RedOp::Sum, RedOp::Avg, RedOp::PreMulSum}) {
        append(Collective::AllReduce, type, op);
        append(Collective::ReduceScatter, type, op);
      }
      append(Collective::AllGather, type, RedOp::Sum);
    }
    CHECK(communicator->finish().ok());
  });
  return results;
}

}  // namespace

TEST_CASE("two clusters without kernels: every collective is right") {
  random_cases({"A", "B", "A", "B", "A"}, 1, kNoKernels);
}

TEST_CASE("three clusters without kernels, one of a single rank") {
  random_cases({"A", "A", "B", "C", "C"}, 2, kNoKernels);
}

TEST_CASE("what a device with kernels cannot reduce, its host does") {
  for (const DataType type : {DataType::Float32, DataType::Int16})
    random_cases({"A", "A", "B", "C", "C"}, 3, {.max_delay_us = 20, .lacks = type});
}

TEST_CASE("hosts encode for their devices, with the bits of kernels") {
  const std::vector<std::vector<std::string>> layouts = {
      {"A", "A", "B"}, {"A", "B", "B", "C"}, {"A", "A", "A"}};
  const char* const wires[] = {"int8:64", "int4:stochastic", "e4m3"};
  for (size_t i = 0; i < layouts.size(); ++i) {
    if (!fake::is_sampled(i, kNoKernelsOneIn)) continue;
    const auto by_kernels = encoded_calls(layouts[i], wires[i], {.max_delay_us = 20});
    CHECK(encoded_calls(layouts[i], wires[i], kNoKernels) == by_kernels);
    CHECK(encoded_calls(layouts[i], wires[i], {.max_delay_us = 20, .encodes = false}) ==
          by_kernels);
    CHECK(encoded_calls(layouts[i], wires[i], {.max_delay_us = 20, .lacks = DataType::Float32}) ==
          by_kernels);
  }
}
