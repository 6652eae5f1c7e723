// Whole communicators over GPUs and the host: ranks as threads, each with a Runtime of its own.
#include "comm/communicator.h"

#include <doctest/doctest.h>

#include <cstring>
#include <thread>

#include "bootstrap/unique_id.h"
#include "gpu/gpu.h"

using namespace hetccl;
using namespace hetccl::comm;
using namespace hetccl::gpu_tests;

namespace {

// What one rank of a mixed job does: its memory is the device's, or the host's.
struct Rank {
  std::unique_ptr<Runtime> runtime;
  std::shared_ptr<Communicator> communicator;
  device::Device* device = nullptr;
  std::unique_ptr<device::Stream> stream;
  std::string failure;

  [[nodiscard]] bool on_gpu() const { return device->vendor() != "host"; }
};

void sum(Rank& rank, size_t count, float mine, float expected) {
  std::vector<float> data(count, mine);
  const size_t bytes = count * sizeof(float);
  void* memory = data.data();
  if (rank.on_gpu()) {
    memory = rank.device->allocate(bytes).value();
    upload(*rank.device, memory, data.data(), bytes);
  }
  CollectiveArguments arguments;
  arguments.signature = {Collective::AllReduce, DataType::Float32, RedOp::Sum, 0, count};
  arguments.send = arguments.recv = memory;
  void* native = rank.on_gpu() ? rank.stream->native() : nullptr;
  Status status = rank.communicator->call(arguments, native);
  if (status.ok() && rank.on_gpu() && !drain(*rank.device, *rank.stream))
    status = error(Code::Timeout, "the stream does not drain");
  if (status.ok()) status = rank.communicator->failure();
  if (!status.ok()) rank.failure = status.message();
  if (rank.on_gpu()) {
    download(*rank.device, data.data(), memory, bytes);
    rank.device->free(memory);
  }
  for (const float one : data)
    if (one != expected && rank.failure.empty()) rank.failure = "a wrong sum";
}

// One rank for each name of a device.
void run_job(const std::vector<std::string>& devices) {
  const int n = static_cast<int>(devices.size());
  std::vector<Rank> ranks(devices.size());
  Config config = Config::from_environment().value();
  for (Rank& rank : ranks) {
    auto made = Runtime::create(config);
    REQUIRE(made.ok());
    rank.runtime = std::move(made).value();
  }
  auto id = ranks[0].runtime->service().unique_id();
  REQUIRE(id.ok());
  std::vector<std::thread> threads;
  for (int r = 0; r < n; ++r) {
    threads.emplace_back([&, r] {
      Rank& rank = ranks[static_cast<size_t>(r)];
      CommunicatorOptions options;
      options.rank = r;
      options.n_ranks = n;
      options.device = devices[static_cast<size_t>(r)];
      auto made = Communicator::create(*rank.runtime, *id, options);
      if (!made.ok()) {
        rank.failure = made.status().message();
        return;
      }
      rank.communicator = std::move(made).value();
      rank.device = rank.runtime->device(options.device).value();
      rank.stream = rank.device->create_stream().value();
      const float expected = static_cast<float>(n * (n + 1)) / 2;
      for (const size_t count : {size_t{1}, size_t{1000}, size_t{3'000'001}})
        sum(rank, count, static_cast<float>(r + 1), expected);
      if (!rank.communicator->finish().ok() && rank.failure.empty()) rank.failure = "finish";
    });
  }
  for (auto& thread : threads) thread.join();
  for (const Rank& rank : ranks) CHECK(rank.failure == "");
  for (Rank& rank : ranks) rank.communicator.reset();
}

}  // namespace

TEST_CASE("a GPU alone, and a GPU with ranks of the host") {
  if (runtime() == nullptr) return;
  run_job({"cuda:0"});
  run_job({"cuda:0", "host"});
  run_job({"host", "host", "cuda"});
}

TEST_CASE("several GPUs, alone and with ranks of the host") {
  if (count() < 2) {
    MESSAGE("SKIPPED: it takes two GPUs");
    return;
  }
  run_job({"cuda:0", "cuda:1"});
  run_job({"cuda:0", "cuda:1", "host", "host"});
}

TEST_CASE("what is no device is refused with what there is") {
  auto made = Runtime::create(Config{});
  REQUIRE(made.ok());
  for (const char* name : {"cuda:", "cuda:x", "cuda:-1", "cudax", "hip"}) {
    const Status status = made.value()->device(name).status();
    CHECK(status.code() == Code::Unsupported);
    CHECK(status.message().find("\"host\"") != std::string::npos);
  }
  if (runtime() == nullptr) {
    const Status status = made.value()->device("cuda").status();
    CHECK(status.message().find("no CUDA driver") != std::string::npos);
    CHECK(made.value()->resolve_device("cuda") == "cuda");
  }
}
