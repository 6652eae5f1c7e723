#include "comm/ranks.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "comm/case_arguments.h"
#include "fake/vendor_library.h"

namespace hetccl::comm {

using fake::Case;

void on_all_ranks(Ranks& ranks, const std::function<void(int)>& body) {
  on_all_ranks(ranks.n(), body, [&](int failed) {
    for (int rank = 0; rank < ranks.n(); ++rank) {
      if (const std::shared_ptr<Communicator> one = ranks[rank])
        one->abort(format("a check of rank %d has failed", failed));
    }
  });
}

Adaptors adaptors_with(std::unique_ptr<device::Device> device) {
  Adaptors adaptors = all_adaptors();
  const auto given = std::make_shared<std::unique_ptr<device::Device>>(std::move(device));
  adaptors.host.make_device = [given](const auto&) { return std::move(*given); };
  adaptors.host.make_library = [make = adaptors.host.make_library](const auto& crew) {
    return std::make_unique<fake::VendorLibrary>(make(crew), ccl::Reach{});
  };
  return adaptors;
}

Ranks::Ranks(std::vector<std::string> labels, const Config& config, bool share)
    : Ranks(labels, std::vector<Config>(share ? 1 : labels.size(), config)) {}

Ranks::Ranks(std::vector<std::string> labels, std::vector<Config> configs)
    : labels_(std::move(labels)), statuses_(labels_.size()), communicators_(labels_.size()) {
  for (Config& config : configs) {
    config.init_timeout_ms = fake::kHangMs;
    config.timeout_ms = std::min(config.timeout_ms, fake::kHangMs);
    auto runtime = Runtime::create(config);
    REQUIRE(runtime.ok());
    runtimes_.push_back(std::move(runtime).value());
  }
  join();
}

void Ranks::join() {
  const auto id = runtimes_[0]->service().unique_id();
  REQUIRE(id.ok());
  id_ = id.value();
  on_all_ranks(n(), [&](int rank) {
    CommunicatorOptions options;
    options.rank = rank;
    options.n_ranks = n();
    options.cluster = labels_[static_cast<size_t>(rank)];
    auto made = Communicator::create(runtime(rank), id_, options);
    statuses_[static_cast<size_t>(rank)] = made.status();
    if (made.ok()) communicators_[static_cast<size_t>(rank)] = made.value();
  });
  for (const auto& status : statuses_) {
    CAPTURE(status.message());
    REQUIRE(status.ok());
  }
}

void on_fake_devices(
    const std::vector<Config>& configs, const fake::FakeOptions& options,
    const std::function<void(int, fake::FakeDevice&, std::shared_ptr<Communicator>)>& body,
    const std::function<void(Adaptors&)>& change) {
  std::vector<std::unique_ptr<Runtime>> runtimes;
  std::vector<fake::FakeDevice*> devices;
  for (const Config& config : configs) {
    auto device = std::move(fake::FakeDevice::create(options)).value();
    devices.push_back(device.get());
    Adaptors adaptors = adaptors_with(std::move(device));
    if (change) change(adaptors);
    auto runtime = Runtime::create(config, std::move(adaptors));
    REQUIRE_MESSAGE(runtime.ok(), runtime.status().message());
    runtimes.push_back(std::move(runtime).value());
  }
  const auto id = runtimes[0]->service().unique_id().value();
  const int n_ranks = static_cast<int>(configs.size());
  std::mutex mutex;
  std::vector<std::weak_ptr<Communicator>> all;
  const auto give_up = [&](int failed) {
    std::lock_guard lock(mutex);
    for (const auto& one : all) {
      if (const auto alive = one.lock())
        alive->abort(format("a check of rank %d has failed", failed));
    }
  };
  const auto run_rank = [&](int rank) {
    CommunicatorOptions ours;
    ours.rank = rank;
    ours.n_ranks = n_ranks;
    auto made = Communicator::create(*runtimes[static_cast<size_t>(rank)], id, ours);
    REQUIRE_MESSAGE(made.ok(), made.status().message());
    {
      std::lock_guard lock(mutex);
      all.push_back(made.value());
    }
    body(rank, *devices[static_cast<size_t>(rank)], std::move(made).value());
  };
  on_all_ranks(n_ranks, run_rank, give_up);
}

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
  Status status = communicator.dispatch().call(arguments.get(), stream.native());
  if (status.ok() && !device.synchronize(fake::kHang)) return "it does not end";
  if (status.ok()) status = communicator.dispatch().failure();
  const auto expected = expected_of(test, rank, inputs);
  std::vector<std::byte> result(expected.size());
  device.download(result.data(), recv, result.size());
  device.free(whole);
  if (!test.in_place) device.free(apart);
  if (!status.ok()) return test.text() + ": " + status.message();
  return result == expected ? "" : test.text() + ": wrong values";
}

std::string run(Ranks& ranks, const Case& test, bool asynchronous) {
  const size_t width = size_of(test.signature.type);
  std::vector<std::vector<std::byte>> inputs;
  for (int r = 0; r < ranks.n(); ++r) inputs.push_back(input_of(test, r));
  std::mutex mutex;
  std::string wrong;
  on_all_ranks(ranks, [&](int r) {
    const size_t send_bytes = send_elements(test, r) * width;
    const size_t recv_bytes = recv_elements(test, r) * width;
    const fake::InPlace shared = in_place(test, r);
    std::vector<std::byte> recv(std::max(send_bytes, recv_bytes)), apart(send_bytes);
    std::byte* send = (test.in_place ? recv.data() : apart.data()) + shared.send * width;
    std::byte* out = recv.data() + shared.recv * width;
    const auto& input = inputs[static_cast<size_t>(r)];
    if (!input.empty()) std::memcpy(send, input.data(), input.size());

    void* stream = nullptr;
    if (asynchronous) stream = ranks.runtime(r).create_host_stream().value();
    const bool expects = receives(test, r);
    const CaseArguments arguments(test, r, send, out);
    Status status = ranks[r]->dispatch().call(arguments.get(), stream);
    if (asynchronous) {
      const Status destroyed = ranks.runtime(r).destroy_host_stream(stream);  // waits
      if (status.ok()) status = destroyed;
      if (status.ok()) status = ranks[r]->dispatch().failure();
    }
    const auto expected = expected_of(test, r, inputs);
    bool same = expected.empty() || std::memcmp(out, expected.data(), expected.size()) == 0;
    if (!expects && !input.empty()) same = std::memcmp(send, input.data(), input.size()) == 0;
    std::lock_guard lock(mutex);
    if (!status.ok()) wrong = format("rank %d: %s", r, status.message().c_str());
    if (status.ok() && !same) wrong = format("rank %d: wrong values", r);
  });
  return wrong.empty() ? "" : test.text() + ": " + wrong;
}

Status sum(Communicator& communicator, std::vector<float>& data, void* stream) {
  CollectiveArguments arguments;
  arguments.signature = {Collective::AllReduce, DataType::Float32, RedOp::Sum, 0, data.size()};
  arguments.send = arguments.recv = data.data();
  return communicator.dispatch().call(arguments, stream);
}

fake::Case all_reduce(const Ranks& ranks, uint64_t count) {
  Case test;
  test.labels = ranks.labels();
  test.signature = {Collective::AllReduce, DataType::Float32, RedOp::Sum, 0, count};
  return test;
}

}  // namespace hetccl::comm
