#include "gpu/job.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <numeric>

#include "base/clock.h"
#include "comm/case_arguments.h"
#include "fake/thread.h"
#include "gpu/gpu.h"

namespace hetccl::gpu_tests {

using fake::Case;

struct Job::Rank {
  int number = 0;
  Place place;
  std::unique_ptr<comm::Runtime> runtime;
  std::shared_ptr<comm::Communicator> communicator;
  device::Device* device = nullptr;
  std::unique_ptr<device::Stream> stream;

  [[nodiscard]] bool on_gpu() const { return place.device != "host"; }
  [[nodiscard]] void* native() const { return on_gpu() ? stream->native() : nullptr; }
  void put(void* to, const void* from, size_t bytes) const {
    if (bytes == 0) return;
    on_gpu() ? upload(*device, to, from, bytes) : static_cast<void>(std::memcpy(to, from, bytes));
  }
  void get(void* to, const void* from, size_t bytes) const {
    if (bytes == 0) return;
    on_gpu() ? download(*device, to, from, bytes) : static_cast<void>(std::memcpy(to, from, bytes));
  }
  // Until all that was enqueued is complete.
  [[nodiscard]] Status wait() const {
    if (on_gpu() && !drain(*device, *stream)) return error(ErrorCode::Timeout, "it does not drain");
    return communicator->dispatch().failure();
  }
  std::string run(const Case& test, const std::vector<std::vector<std::byte>>& inputs) const;
  std::string run(const std::vector<Letter>& letters) const;
};

std::string Job::Rank::run(const Case& test,
                           const std::vector<std::vector<std::byte>>& inputs) const {
  const size_t width = size_of(test.signature.type);
  const size_t sent = send_elements(test, number) * width;
  const size_t received = recv_elements(test, number) * width;
  const fake::InPlace shared = in_place(test, number);
  const auto make = [&](size_t bytes) {
    return static_cast<std::byte*>(device->allocate(std::max<size_t>(bytes, 1)).value());
  };
  std::byte* whole = make(std::max(sent, received));
  std::byte* apart = test.in_place ? whole : make(sent);
  std::byte* send = apart + shared.send * width;
  std::byte* recv = whole + shared.recv * width;
  const auto& input = inputs[static_cast<size_t>(number)];
  put(send, input.data(), input.size());

  const comm::CaseArguments arguments(test, number, send, recv);
  Status status = communicator->dispatch().call(arguments.get(), native());
  if (status.ok()) status = wait();
  const auto expected = expected_of(test, number, inputs);
  std::vector<std::byte> result(expected.size());
  if (status.ok()) get(result.data(), recv, result.size());
  device->free(whole);
  if (!test.in_place) device->free(apart);
  if (!status.ok()) return format("rank %d: %s", number, status.message().c_str());
  return result == expected ? "" : format("rank %d: wrong values", number);
}

namespace {

std::vector<int32_t> contents(const std::vector<Letter>& letters, size_t index) {
  std::vector<int32_t> made(letters[index].count);
  std::iota(made.begin(), made.end(), static_cast<int32_t>(index * 1'000'003));
  return made;
}

}  // namespace

std::string Job::Rank::run(const std::vector<Letter>& letters) const {
  std::vector<exec::Message> messages;
  std::vector<void*> memory;
  std::vector<std::pair<void*, size_t>> received;  // and which letter's
  for (size_t i = 0; i < letters.size(); ++i) {
    const auto sent = contents(letters, i);
    for (const bool send : {true, false}) {
      if ((send ? letters[i].from : letters[i].to) != number) continue;
      memory.push_back(device->allocate(std::max<size_t>(sent.size() * 4, 1)).value());
      const std::vector<int32_t> nothing(sent.size(), -1);
      put(memory.back(), send ? sent.data() : nothing.data(), sent.size() * 4);
      if (!send) {
        received.emplace_back(memory.back(), i);
      }
      messages.push_back({send, send ? letters[i].to : letters[i].from, memory.back(),
                          DataType::Int32, sent.size()});
    }
  }
  Status status = communicator->dispatch().call(std::span<const exec::Message>(messages), native());
  if (status.ok()) status = wait();
  std::string wrong = status.ok() ? "" : format("rank %d: %s", number, status.message().c_str());
  for (const auto& [data, index] : received) {
    std::vector<int32_t> got(letters[index].count);
    if (status.ok()) get(got.data(), data, got.size() * 4);
    if (status.ok() && got != contents(letters, index)) {
      wrong = format("rank %d: message %zu has wrong values", number, index);
    }
  }
  for (void* one : memory) device->free(one);
  return wrong;
}

Job::Job(const std::vector<Place>& places, const Config& config,
         const std::shared_ptr<const device::gpu::Api>& gpus, const Change& change)
    : n_(static_cast<int>(places.size())) {
  for (int rank = 0; rank < n_; ++rank)
    add(rank, places[static_cast<size_t>(rank)], config, gpus, change);
  const auto id = ranks_[0]->runtime->service().unique_id();
  REQUIRE(id.ok());
  join(id.value());
}

Job::Job(const std::vector<Place>& places, const Config& config, int rank,
         const bootstrap::UniqueId& id, const std::shared_ptr<const device::gpu::Api>& gpus)
    : n_(static_cast<int>(places.size())) {
  add(rank, places[static_cast<size_t>(rank)], config, gpus);
  join(id);
}

void Job::add(int rank, const Place& place, Config config,
              const std::shared_ptr<const device::gpu::Api>& gpus, const Change& change) {
  auto made = std::make_unique<Rank>();
  made->number = rank;
  made->place = place;
  comm::Adaptors adaptors = comm::all_adaptors();
  if (gpus != nullptr) adaptors.gpus[0].load_runtime = [gpus](const Config&) { return gpus; };
  if (change) change(rank, config, adaptors);
  auto runtime = comm::Runtime::create(config, std::move(adaptors));
  REQUIRE(runtime.ok());
  made->runtime = std::move(runtime).value();
  ranks_.push_back(std::move(made));
}

void Job::join(const bootstrap::UniqueId& id) {
  std::string wrong;
  on_all(
      [&](Rank& rank) {
        comm::CommunicatorOptions options;
        options.rank = rank.number;
        options.n_ranks = n();
        options.device = rank.place.device;
        options.cluster = rank.place.label;
        auto made = comm::Communicator::create(*rank.runtime, id, options);
        if (!made.ok()) return made.status().message();
        rank.communicator = std::move(made).value();
        rank.device = rank.runtime->device(options.device).value();
        rank.stream = rank.device->create_stream().value();
        return std::string();
      },
      wrong);
  REQUIRE(wrong == "");
}

Job::~Job() {
  std::string wrong;
  on_all(
      [](Rank& rank) {
        const Status status = rank.communicator == nullptr ? Status() : rank.communicator->finish();
        rank.communicator.reset();
        return status.message();
      },
      wrong);
  CHECK(wrong == "");
}

void Job::on_all(const std::function<std::string(Rank&)>& body, std::string& wrong) {
  std::mutex mutex;
  std::vector<fake::Thread> threads;
  for (const auto& rank : ranks_) {
    threads.emplace_back([&, rank = rank.get()] {
      const std::string said = body(*rank);
      std::lock_guard lock(mutex);
      if (!said.empty()) wrong = said;
    });
  }
  for (auto& thread : threads) thread.join();
}

void Job::on_all(
    const std::function<void(int, comm::Communicator&, device::Device&, device::Stream&)>& body) {
  std::string wrong;
  on_all(
      [&](Rank& rank) {
        body(rank.number, *rank.communicator, *rank.device, *rank.stream);
        return std::string();
      },
      wrong);
}

std::string Job::run(const Case& test) {
  std::vector<std::vector<std::byte>> inputs;
  for (int r = 0; r < n(); ++r) inputs.push_back(input_of(test, r));
  std::string wrong;
  on_all([&](Rank& rank) { return rank.run(test, inputs); }, wrong);
  return wrong.empty() ? "" : test.text() + ": " + wrong;
}

std::string Job::run(const std::vector<Letter>& letters) {
  std::string wrong;
  on_all([&](Rank& rank) { return rank.run(letters); }, wrong);
  return wrong;
}

}  // namespace hetccl::gpu_tests
