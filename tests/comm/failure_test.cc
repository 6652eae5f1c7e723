// Ranks that leave, are missing, or call something else: every other rank's error names them.
#include <doctest/doctest.h>
#include <malloc.h>

#include <thread>

#include "comm/ranks.h"
#include "fake/fake_device.h"

namespace {

using namespace hetccl;
using namespace hetccl::comm;
using std::chrono::milliseconds;

Config quick(int64_t liveness_ms) {
  Config config;
  config.liveness_ms = liveness_ms;
  return config;
}

// Until a failure has come, or a hang.
void wait_for_failure(Communicator& communicator) {
  const TimePoint end = steady_clock().now() + fake::kHang;
  while (communicator.dispatch().failure().ok() && steady_clock().now() < end) {
    std::this_thread::sleep_for(milliseconds(5));
  }
}

const std::vector<std::vector<std::string>> kLayouts = {
    {"A", "A", "A"}, {"A", "B", "B"}, {"A", "B", "C"}};

}  // namespace

TEST_CASE("a collective that a rank left without calling fails within about the liveness time") {
  for (const auto& labels : kLayouts) {
    for (const int leaver : {0, 2}) {  // rank 0's Runtime holds the coordinator
      const int64_t liveness_ms = fake::patient_ms(1000);
      Ranks ranks(labels, quick(liveness_ms), false);
      std::vector<Status> statuses(3);
      std::vector<milliseconds> took(3);
      on_all_ranks(ranks, [&](int rank) {
        const auto r = static_cast<size_t>(rank);
        std::vector<float> data(5000, 1);
        CHECK(sum(*ranks[rank], data).ok());
        if (rank == leaver) {
          CHECK(ranks[rank]->finish().ok());
          return;
        }
        const auto begin = steady_clock().now();
        statuses[r] = sum(*ranks[rank], data);
        took[r] = std::chrono::duration_cast<milliseconds>(steady_clock().now() - begin);
      });
      const Status& first = statuses[leaver == 0 ? 2 : 0];
      for (int rank = 0; rank < 3; ++rank) {
        if (rank == leaver) continue;
        const auto r = static_cast<size_t>(rank);
        CAPTURE(statuses[r].message());
        CHECK(statuses[r].code() == ErrorCode::RemoteError);
        CHECK(statuses[r].message() == first.message());
        CHECK(statuses[r].message().find(
                  format("all_reduce #1 (5000 float32, sum) cannot complete: rank %d has left the "
                         "communicator without calling it (rank %d is at #0)",
                         leaver, leaver)) != std::string::npos);
        CHECK(took[r] >= milliseconds(liveness_ms - 10));
        CHECK(took[r] < fake::kHang / 2);
      }
    }
  }
}

TEST_CASE("who leaves after its last call does no harm to those who are slower") {
  for (const auto& labels : kLayouts) {
    Ranks ranks(labels, quick(fake::patient_ms(500)), false);
    constexpr int kCalls = 40;
    on_all_ranks(ranks, [&](int rank) {
      // Enqueued at once; rank 1 enters the last of them only when rank 0 has long gone.
      void* stream = ranks.runtime(rank).create_host_stream().value();
      std::vector<std::vector<float>> data(kCalls, std::vector<float>(2000, 1));
      for (int i = 0; i < kCalls; ++i) {
        // A broadcast from rank 0 leaves it free as soon as its data is with the others.
        auto& buffer = data[static_cast<size_t>(i)];
        if (i >= kCalls - 2 && rank == 1)
          std::this_thread::sleep_for(fake::patient(milliseconds(350)));
        CollectiveArguments arguments;
        arguments.signature = {Collective::Broadcast, DataType::Float32, RedOp::Sum, 0, 2000};
        arguments.send = arguments.recv = buffer.data();
        CHECK(ranks[rank]->dispatch().call(arguments, stream).ok());
      }
      CHECK(ranks[rank]->finish().ok());
      CHECK(ranks.runtime(rank).destroy_host_stream(stream).ok());
    });
  }
}

TEST_CASE("a call after a rank has left fails too, with its name") {
  Ranks ranks({"A", "A"}, quick(fake::patient_ms(300)), true);
  CHECK(ranks[1]->finish().ok());
  std::this_thread::sleep_for(fake::patient(milliseconds(300)));
  std::vector<float> data(100, 1);
  const Status status = sum(*ranks[0], data);
  CHECK(status.code() == ErrorCode::RemoteError);
  CHECK(status.message().find("rank 1 has left the communicator") != std::string::npos);
  CHECK(status.message().find("rank 1 has called nothing") != std::string::npos);
}

TEST_CASE("a rank that cannot launch a call tells those who have entered it, at once") {
  for (const auto& labels : kLayouts) {
    Ranks ranks(labels, quick(2 * fake::kHangMs), false);
    const auto begin = steady_clock().now();
    on_all_ranks(ranks, [&](int rank) {
      std::vector<float> data(1000, 1);
      const Status status = sum(*ranks[rank], data, rank == 1 ? data.data() : nullptr);
      CAPTURE(status.message());
      CHECK(status.code() == ErrorCode::InvalidArgument);
      CHECK(status.message().find("rank 1: launching all_reduce: stream") != std::string::npos);
    });
    CHECK(steady_clock().now() - begin < fake::kHang);
  }
}

TEST_CASE("streams that are gone leave nothing behind") {
  Ranks ranks({"A"}, {}, true);
  std::vector<float> data(10, 1);
  const auto use_streams = [&](int n) {
    for (int i = 0; i < n; ++i) {
      void* stream = ranks.runtime(0).create_host_stream().value();
      REQUIRE(sum(*ranks[0], data, stream).ok());
      REQUIRE(ranks.runtime(0).destroy_host_stream(stream).ok());
    }
  };
  use_streams(50);
  const size_t before = mallinfo2().uordblks;
  use_streams(2000);
  CHECK(mallinfo2().uordblks < before + 500'000);

  void* stream = ranks.runtime(0).create_host_stream().value();
  REQUIRE(sum(*ranks[0], data, stream).ok());
  REQUIRE(ranks.runtime(0).destroy_host_stream(stream).ok());
  CHECK(sum(*ranks[0], data, stream).code() == ErrorCode::InvalidArgument);
}

TEST_CASE("a timeout names the call and the ranks that are missing, in the same words everywhere") {
  for (const auto& labels : kLayouts) {
    const int64_t limit_ms = fake::patient_ms(500);
    Ranks ranks(labels, quick(fake::kHangMs), false);
    std::vector<Status> statuses(3);
    on_all_ranks(ranks, [&](int rank) {
      const auto r = static_cast<size_t>(rank);
      std::vector<float> data(1000, 1);
      for (int i = 0; i < 3; ++i) CHECK(sum(*ranks[rank], data).ok());
      if (rank == 1) {
        wait_for_failure(*ranks[rank]);
        statuses[r] = ranks[rank]->dispatch().failure();
        return;
      }
      ranks[rank]->dispatch().set_timeout(limit_ms);
      statuses[r] = sum(*ranks[rank], data);
    });
    for (const auto& status : statuses) {
      CAPTURE(status.message());
      CHECK(status.code() == ErrorCode::Timeout);
      CHECK(status.message() ==
            format("all_reduce #3 (1000 float32, sum) timed out after %lld ms: rank 1 has not "
                   "called it (rank 1 is at #2)",
                   static_cast<long long>(limit_ms)));
    }
  }
}

TEST_CASE("who connects to a rank that leaves, or that does not come, is told") {
  for (const auto& [labels, leaves] : {std::pair(std::vector<std::string>{"A", "A", "A"}, true),
                                       {{"A", "A", "A"}, false},
                                       {{"A", "B", "A"}, true},
                                       {{"A", "B", "A"}, false}}) {
    Ranks ranks(labels, quick(fake::patient_ms(1000)), false);
    std::vector<Status> statuses(3);
    on_all_ranks(ranks, [&](int rank) {
      if (rank == 1) {
        std::this_thread::sleep_for(fake::patient(milliseconds(200)));
        if (leaves) CHECK(ranks[1]->finish().ok());
        return;
      }
      if (!leaves) ranks[rank]->dispatch().set_timeout(fake::patient_ms(700));
      std::vector<float> sent(3), received(3);
      CollectiveArguments arguments;
      arguments.signature = {Collective::AllToAll, DataType::Float32, RedOp::Sum, 0, 1};
      arguments.send = sent.data();
      arguments.recv = received.data();
      const auto begin = steady_clock().now();
      statuses[static_cast<size_t>(rank)] = ranks[rank]->dispatch().call(arguments, nullptr);
      CHECK(steady_clock().now() - begin < fake::kHang / 2);
    });
    for (const int rank : {0, 2}) {
      const Status& status = statuses[static_cast<size_t>(rank)];
      CAPTURE(status.message());
      CHECK(status.code() == (leaves ? ErrorCode::RemoteError : ErrorCode::Timeout));
      CHECK(status.message() == statuses[0].message());
      CHECK(status.message().find(leaves ? "rank 1 has left" : "rank 1 has not called it") !=
            std::string::npos);
    }
  }
}

TEST_CASE("a device that never ends what it was given holds nobody up") {
  constexpr size_t kBytes = 1000 * sizeof(float);
  for (const bool apart : {false, true}) {
    CAPTURE(apart);
    std::vector<Config> configs(2, quick(fake::patient_ms(1000)));
    configs[0].cluster = "A";
    configs[1].cluster = apart ? "B" : "A";
    on_fake_devices(configs, {}, [&](int r, auto& device, std::shared_ptr<Communicator> made) {
      made->dispatch().set_timeout(fake::patient_ms(200));
      const auto stream = device.create_stream().value();
      void* memory = device.allocate(kBytes).value();
      auto* flag = new (device.allocate_pinned(sizeof(device::Flag)).value()) device::Flag;
      // Rank 0's user has enqueued work that never ends.
      if (r == 0) REQUIRE(device.wait_flag(*stream, *flag, 1).ok());
      const hetccl::Signature all{Collective::AllReduce, DataType::Float32, RedOp::Sum, 0, 1000};
      REQUIRE(made->dispatch().start({all, memory, memory}, {.stream = stream->native()}).ok());
      const auto begin = steady_clock().now();
      wait_for_failure(*made);
      CHECK(made->dispatch().failure().code() == ErrorCode::Timeout);
      const std::string why = made->dispatch().failure().message();
      CAPTURE(why);
      // In one cluster the vendor's library waits; otherwise the rank that is asked first answers.
      CHECK((why.find("its own cluster") != std::string::npos) == !apart);
      CHECK((why.find("its stream has not come to it") != std::string::npos ||
             why.find("recv from rank 0") != std::string::npos) == apart);
      made->abort("nobody waits any longer");
      CHECK_FALSE(made->finish().ok());
      made.reset();
      const auto took = steady_clock().now() - begin;
      CHECK(took < fake::kHang);
      if (r == 0) CHECK(took >= std::chrono::seconds(5));
      // Work that goes on then still finds its memory.
      flag->word.store(1, std::memory_order_release);
      CHECK(device.synchronize(fake::kHang));
      device.free(memory);
      device.free_pinned(flag);
    });
  }
}

TEST_CASE("what a device has no memory for fails on every rank, and what it has memory for works") {
  constexpr size_t kMemory = size_t{16} << 20, kMost = kMemory / 4;  // where a slice needs more
  hetccl::fake::FakeOptions little;
  little.memory_bytes = kMemory;
  std::vector<Config> configs(2, quick(fake::kHangMs));
  for (size_t r = 0; r < 2; ++r) {
    configs[r].cluster = r > 0 ? "B" : "A";
    configs[r].slice_bytes = kMost;
  }
  for (const uint64_t count : {kMost / sizeof(float), uint64_t{1000}}) {
    CAPTURE(count);
    on_fake_devices(configs, little, [&](int r, auto& device, std::shared_ptr<Communicator> made) {
      const auto stream = device.create_stream().value();
      void* memory = device.allocate(kMost).value();
      // Rank 1's user has taken nearly all that is left.
      void* taken = r == 1 ? device.allocate(kMemory - kMost - (size_t{1} << 20)).value() : nullptr;
      const hetccl::Signature all{Collective::AllReduce, DataType::Float32, RedOp::Sum, 0, count};
      const auto started =
          made->dispatch().start({all, memory, memory}, {.stream = stream->native()});
      if (count > 1000) wait_for_failure(*made);
      CHECK(device.synchronize(fake::kHang));
      const std::string why = made->dispatch().failure().message();
      CAPTURE(why);
      if (count == 1000) {
        CHECK(started.ok());
        CHECK(made->finish().ok());
      } else {
        CHECK(why.find("rank 1: ") != std::string::npos);
        CHECK(why.find("out of memory") != std::string::npos);
      }
      made.reset();
      device.free(memory);
      if (taken != nullptr) device.free(taken);
    });
  }
}
