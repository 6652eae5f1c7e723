// A vendor without kernels, whose memory no host reads: all of its clusters reduce by its library.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "base/config.h"
#include "comm/case_arguments.h"
#include "comm/ranks.h"
#include "fake/cases.h"

namespace {

using namespace hetccl;
using namespace hetccl::comm;
using fake::Case;

constexpr int kCases = 30;
constexpr uint64_t kMostElements = 20'000;

std::string run(const Case& test, int rank, fake::FakeDevice& device, Communicator& communicator,
                device::Stream& stream, const std::vector<std::vector<std::byte>>& inputs) {
  const size_t width = size_of(test.signature.type);
  const size_t sent = send_elements(test, rank) * width, got = recv_elements(test, rank) * width;
  const fake::InPlace shared = in_place(test, rank);
  const auto make = [&](size_t bytes) {
    return static_cast<std::byte*>(device.allocate(std::max<size_t>(bytes, 1)).value());
  };
  std::byte* whole = make(std::max(sent, got));
  std::byte* apart = test.in_place ? whole : make(sent);
  std::byte* recv = whole + shared.recv * width;
  const auto& input = inputs[static_cast<size_t>(rank)];
  device.upload(apart + shared.send * width, input.data(), input.size());
  const CaseArguments arguments(test, rank, apart + shared.send * width, recv);
  Status status = communicator.call(arguments.get(), stream.native());
  if (status.ok() && !device.synchronize(std::chrono::seconds(20))) return "it does not end";
  if (status.ok()) status = communicator.failure();
  const auto expected = expected_of(test, rank, inputs);
  std::vector<std::byte> result(expected.size());
  device.download(result.data(), recv, result.size());
  device.free(whole);
  if (!test.in_place) device.free(apart);
  if (!status.ok()) return test.text() + ": " + status.message();
  return result == expected ? "" : test.text() + ": wrong values";
}

void random_cases(const std::vector<std::string>& labels, uint64_t seed) {
  std::vector<Config> configs(labels.size());
  for (size_t r = 0; r < labels.size(); ++r) configs[r].cluster = labels[r];
  std::mt19937_64 random(seed);
  std::vector<Case> tests;
  while (tests.size() < kCases) tests.push_back(fake::random_case(random, labels, kMostElements));
  on_fake_devices(configs, {.max_delay_us = 20, .kernels = false},
                  [&](int rank, auto& device, const auto& communicator) {
                    const auto stream = device.create_stream().value();
                    for (const Case& test : tests) {
                      std::vector<std::vector<std::byte>> inputs;
                      for (int r = 0; r < test.n_ranks(); ++r) inputs.push_back(input_of(test, r));
                      CHECK(run(test, rank, device, *communicator, *stream, inputs) == "");
                    }
                    CHECK(communicator->finish().ok());
                  });
}

}  // namespace

TEST_CASE("two clusters without kernels: every collective is right") {
  random_cases({"A", "B", "A", "B", "A"}, 1);
}

TEST_CASE("three clusters without kernels, one of a single rank") {
  random_cases({"A", "A", "B", "C", "C"}, 2);
}
