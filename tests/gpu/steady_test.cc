// The driver calls of a collective that has been made a few times: only those that enqueue its
// work. Every call of the runtime's table is counted.
#include <doctest/doctest.h>
#include <pthread.h>

#include <atomic>
#include <optional>
#include <string_view>

#include "gpu/gpu.h"
#include "gpu/job.h"

namespace {

using namespace hetccl;
using namespace hetccl::gpu_tests;
using device::gpu::Api;

constexpr int kAtOnce = 8, kBatches = 40;
constexpr uint64_t kCalls = kAtOnce * kBatches / 2;  // that are looked at, on each rank

struct Counts {
  std::atomic<uint64_t> makes{0};      // memory, streams, events, modules: or frees, pins, unpins
  std::atomic<uint64_t> enqueues{0};   // work, marks and waits
  std::atomic<uint64_t> by_hetccl{0};  // any, by hetccl's own threads, but the one that may wait
};

template <typename... Arguments>
void count_calls(std::function<int(Arguments...)>& call, std::atomic<uint64_t>& kind,
                 Counts& counts) {
  call = [&kind, &counts, inner = std::move(call)](Arguments... arguments) {
    ++kind;
    char name[16] = {};
    pthread_getname_np(pthread_self(), name, sizeof name);
    const std::string_view thread(name);
    if (thread.starts_with("hetccl-") && thread != "hetccl-settler") ++counts.by_hetccl;
    return inner(arguments...);
  };
}

std::shared_ptr<const Api> counted(Counts& counts) {
  const auto api = std::const_pointer_cast<Api>(device::gpu::load_cuda().value());
  const auto all = [&](std::atomic<uint64_t>& kind, auto&... calls) {
    (count_calls(calls, kind, counts), ...);
  };
  all(counts.makes, api->allocate, api->free, api->allocate_pinned, api->free_pinned, api->pin,
      api->unpin, api->create_stream, api->destroy_stream, api->create_event, api->destroy_event,
      api->load_module, api->unload_module, api->find_kernel);
  all(counts.enqueues, api->record, api->wait, api->wait_word, api->write_word, api->copy,
      api->call_host, api->launch);
  return api;
}

struct Layout {
  std::string name;
  bool apart, shm;
};

// All GPUs, a half of them in each cluster; one GPU is there twice, if it can be in two.
std::vector<Place> places(const Layout& layout) {
  const int n_gpus = count();
  std::vector<Place> all;
  for (int i = 0; i < n_gpus; ++i) {
    all.push_back({"cuda:" + std::to_string(i), layout.apart && 2 * i < n_gpus ? "B" : "A"});
  }
  if (n_gpus == 1 && layout.apart) all.push_back({"cuda:0", "A"});
  return all;
}

// Counts objects made and work enqueued in the second half of some batches of a collective, on all
// ranks; the calls of a batch are in flight at once.
void check_steady(Job& job, Counts& counts, Collective collective, size_t elements) {
  const auto n = static_cast<size_t>(job.n());
  const Signature signature{collective, DataType::Float32, RedOp::Sum, 0, elements};
  uint64_t makes = 0, enqueues = 0;
  for (int half = 0; half < 2; ++half) {
    job.on_all([&](int, comm::Communicator& communicator, auto& device, auto& stream) {
      void* send = device.allocate(n * elements * sizeof(float)).value();
      void* recv = device.allocate(n * elements * sizeof(float)).value();
      auto* gate = new (device.allocate_pinned(sizeof(device::Flag)).value()) device::Flag;
      for (uint32_t batch = 0; batch < kBatches / 2; ++batch) {
        REQUIRE(device.wait_flag(stream, *gate, batch + 1).ok());
        std::optional<comm::Dispatch::Ticket> last;
        for (int i = 0; i < kAtOnce; ++i) {
          last = communicator.dispatch()
                     .start({signature, send, recv}, {.stream = stream.native()})
                     .value();
        }
        gate->word.store(batch + 1, std::memory_order_release);
        REQUIRE(communicator.dispatch().complete(*last).ok());
        REQUIRE(drain(device, stream));
      }
      device.free_pinned(gate);
      device.free(send);
      device.free(recv);
    });
    if (half == 0) makes = counts.makes, enqueues = counts.enqueues;
  }
  CHECK(counts.makes == makes);
  const uint64_t calls = kCalls * n;
  MESSAGE(name_of(collective) << " of " << elements << " floats: each call enqueues "
                              << (counts.enqueues - enqueues) / calls);
}

}  // namespace

TEST_CASE("in steady state calls make nothing, and hetccl's threads call no driver") {
  if (runtime() == nullptr) return;
  for (const Layout& layout :
       {Layout{"one cluster", false, true}, {"windows", true, true}, {"TCP", true, false}}) {
    CAPTURE(layout.name);
    MESSAGE(layout.name);
    Counts counts;
    const auto api = counted(counts);
    Config config = Config::from_environment().value();
    config.transport_shm = layout.shm;
    {
      Job job(places(layout), config, api);
      const uint64_t opened = counts.by_hetccl;
      for (const auto collective :
           {Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter,
            Collective::Broadcast, Collective::AllToAll}) {
        for (const size_t elements : {size_t{1000}, size_t{1} << 20}) {
          check_steady(job, counts, collective, elements);
        }
      }
      CHECK(counts.by_hetccl == opened);
    }
  }
}
