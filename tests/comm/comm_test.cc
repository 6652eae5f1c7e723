// Communicators end to end, ranks as threads of this process: real bootstrap, real sockets and
// shared memory, host and asynchronous fake devices, one Runtime for all ranks or one each.
#include <doctest/doctest.h>

#include <thread>

#include "comm/ranks.h"
#include "fake/fake_device.h"

namespace {

using hetccl::Collective;
using hetccl::Config;
using hetccl::DataType;
using hetccl::ErrorCode;
using hetccl::format;
using hetccl::RedOp;
using hetccl::Status;
using hetccl::comm::all_reduce;
using hetccl::comm::Communicator;
using hetccl::comm::CommunicatorOptions;
using hetccl::comm::on_all_ranks;
using hetccl::comm::on_fake_devices;
using hetccl::comm::Ranks;
using hetccl::comm::run;
using hetccl::comm::Runtime;
using hetccl::fake::Case;

// A few cases are enough for sanitizers to see all uses of threads and memory.
constexpr uint64_t kLayouts = 20, kCases = 75;
#if defined(HETCCL_UNDER_TSAN)
constexpr uint64_t kOneIn = 10, kCasesOneIn = 3;
#elif defined(HETCCL_UNDER_ASAN)
constexpr uint64_t kOneIn = 5, kCasesOneIn = 2;
#else
constexpr uint64_t kOneIn = 1, kCasesOneIn = 1;
#endif

void random_sweep(uint64_t layouts, uint64_t cases, const Config& config) {
  for (const uint64_t seed : hetccl::fake::sampled_seeds(layouts, kOneIn)) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    Ranks ranks(hetccl::fake::random_labels(random, 5, 3), config, seed % 2 == 0);
    for (uint64_t i = 0; i < cases; ++i) {
      const Case test = hetccl::fake::random_case(random, ranks.labels(), 5000);
      const bool asynchronous = random() % 2 == 0;
      if (hetccl::fake::is_sampled(i, kCasesOneIn)) REQUIRE(run(ranks, test, asynchronous) == "");
    }
  }
}

}  // namespace

TEST_CASE("links and calls are measured at init, and all ranks know all of it") {
  for (const bool deterministic : {false, true}) {
    Config config;
    config.deterministic = deterministic;
    Ranks ranks({"A", "A", "B", "C"}, config, false);
    ranks.join();
    const auto known =
        hetccl::topology::Topology::from_json(ranks[0]->membership().topology_json());
    REQUIRE(known.ok());
    const auto& measured = known.value().measured();
    // One link for all, since all are of shared memory; and calls by each cluster's first.
    REQUIRE(measured.size() == (deterministic ? 0 : 4));
    for (const hetccl::topology::Measurement& one : measured) {
      CHECK(one.latency_ns > 0);
      CHECK((one.mbps > 0) == (one.a != one.b));
    }
    for (int rank = 1; rank < ranks.n(); ++rank) {
      CHECK(ranks[rank]->membership().topology_json() == ranks[0]->membership().topology_json());
    }
    CHECK(run(ranks, all_reduce(ranks, 1000), false) == "");
  }
}

TEST_CASE("random layouts and collectives over shared memory between clusters") {
  Config config;
  config.slice_bytes = 1024;
  random_sweep(kLayouts, kCases, config);
}

TEST_CASE("random layouts and collectives over TCP between clusters") {
  Config config;
  config.slice_bytes = 1024;
  config.transport_shm = false;
  random_sweep(kLayouts, kCases, config);
}

TEST_CASE("random layouts and collectives over encrypted TCP") {
  Config config;
  config.slice_bytes = 1024;
  config.transport_shm = false;
  config.encrypt = true;
  random_sweep(kLayouts / 2, kCases / 2, config);
}

TEST_CASE("a transport that is asked for and cannot be used is an error that says why") {
  Config config;
  config.transport = "carrier pigeons";
  const auto unknown = Runtime::create(config);
  CHECK(unknown.status().code() == ErrorCode::InvalidArgument);
  CHECK(unknown.status().message().find("there are tcp, shm, ") != std::string::npos);
  config.transport = hetccl::comm::all_adaptors().transports.back().name;
  config.rdma_devices = "=none of this name";
  const auto missing = Runtime::create(config);
  CHECK(missing.status().code() == ErrorCode::Unsupported);
  CHECK(missing.status().message().find(" cannot be used: ") != std::string::npos);
}

TEST_CASE("large messages with the slices that hetccl chooses") {
  for (const bool encrypt : {false, true}) {
    Config config;
    config.transport_shm = false;
    config.encrypt = encrypt;
    Ranks ranks({"A", "B", "A", "B", "B"}, config, false);
    std::mt19937_64 random(7);
    for (int i = 0; i < 6; ++i) {
      Case test = hetccl::fake::random_case(random, ranks.labels(), 1);
      if (!hetccl::fake::is_sampled(static_cast<uint64_t>(i), kCasesOneIn)) continue;
      if (test.signature.collective != Collective::Barrier) test.signature.count = 200'003;
      REQUIRE(run(ranks, test, i % 2 == 0) == "");
    }
  }
}

TEST_CASE("ranks of one cluster copy and reduce with any number of threads each") {
  std::vector<Config> configs(4);
  for (size_t r = 0; r < configs.size(); ++r) configs[r].host_threads = static_cast<int64_t>(1 + r);
  Ranks ranks({"A", "A", "B", "A"}, configs);
  const uint64_t counts[] = {1'000'003, 1'500'000, 70'000};
  for (uint64_t i = 0; i < std::size(counts); ++i) {
    if (!hetccl::fake::is_sampled(i, kCasesOneIn)) continue;
    const uint64_t count = counts[i];
    CHECK(run(ranks, all_reduce(ranks, count), false) == "");
    CHECK(run(ranks, all_reduce(ranks, count), true) == "");
  }
}

TEST_CASE("steady state plans nothing") {
  Ranks ranks({"A", "B"}, {}, false);
  for (int i = 0; i < 20; ++i) REQUIRE(run(ranks, all_reduce(ranks, 100), false) == "");
  CHECK(ranks[0]->dispatch().statistics().plans == 1);
  CHECK(ranks[0]->dispatch().statistics().operations == 20);
  const auto sent = ranks[0]->dispatch().statistics().cross_bytes_sent +
                    ranks[1]->dispatch().statistics().cross_bytes_sent;
  CHECK(sent == ranks[0]->dispatch().statistics().least_cross_bytes);
}

TEST_CASE("ranks that disagree get an error on every rank, and a new communicator works") {
  Ranks ranks({"A", "A", "B", "B"}, {}, false);
  for (int odd = 0; odd < 4; ++odd) {
    CAPTURE(odd);
    std::vector<Status> statuses(4);
    on_all_ranks(ranks, [&](int r) {
      std::vector<float> data(1000);
      const uint64_t count = r == odd ? 999 : 1000;
      statuses[static_cast<size_t>(r)] = ranks[r]->dispatch().call(
          {{Collective::AllReduce, DataType::Float32, RedOp::Sum, 0, count},
           data.data(),
           data.data()},
          nullptr);
    });
    for (const auto& status : statuses) {
      CAPTURE(status.message());
      CHECK(status.code() == ErrorCode::InvalidUsage);
    }
    ranks.join();
    CHECK(run(ranks, all_reduce(ranks, 1000), true) == "");
  }
}

TEST_CASE("bad arguments are refused before anything moves") {
  Ranks ranks({"A"}, {}, true);
  std::vector<float> data(100);
  const auto call = [&](uint64_t count, int root, int type, int op, const void* send, void* recv) {
    return ranks[0]
        ->dispatch()
        .call({{Collective::AllReduce, static_cast<DataType>(type), static_cast<RedOp>(op), root,
                count},
               send,
               recv},
              nullptr)
        .code();
  };
  CHECK(call(100, 0, 7, 0, data.data(), data.data()) == ErrorCode::Ok);
  CHECK(call(100, 0, 99, 0, data.data(), data.data()) == ErrorCode::InvalidArgument);
  CHECK(call(100, 0, 7, 9, data.data(), data.data()) == ErrorCode::InvalidArgument);
  CHECK(call(100, 1, 7, 0, data.data(), data.data()) == ErrorCode::InvalidArgument);
  CHECK(call(100, 0, 7, 0, nullptr, data.data()) == ErrorCode::InvalidArgument);
  CHECK(call(1ULL << 62, 0, 7, 0, data.data(), data.data()) == ErrorCode::InvalidArgument);
  CHECK(call(50, 0, 7, 0, data.data(), data.data() + 10) == ErrorCode::InvalidArgument);
  CHECK(call(0, 0, 7, 0, nullptr, nullptr) == ErrorCode::Ok);
}

TEST_CASE("a scalar in memory that the host cannot read is refused") {
  auto device = hetccl::fake::FakeDevice::create();
  REQUIRE(device.ok());
  auto runtime = Runtime::create({}, hetccl::comm::adaptors_with(std::move(device).value()));
  REQUIRE(runtime.ok());
  const auto id = runtime.value()->service().unique_id();
  REQUIRE(id.ok());
  const auto made = Communicator::create(*runtime.value(), id.value(), {});
  REQUIRE_MESSAGE(made.ok(), made.status().message());
  const float scalar = 2;
  const auto create = [&](bool on_device) {
    return made.value()
        ->dispatch()
        .create_pre_mul_sum(DataType::Float32, &scalar, on_device)
        .status()
        .code();
  };
  CHECK(create(true) == ErrorCode::Unsupported);
  CHECK(create(false) == ErrorCode::Ok);
}

TEST_CASE("a graph takes up collectives of one cluster, and refuses others harmlessly") {
  constexpr int kRanks = 2;
  constexpr size_t kBytes = 1000 * sizeof(float);
  for (const bool apart : {false, true}) {
    CAPTURE(apart);
    std::vector<Config> configs(kRanks);
    for (int r = 0; r < kRanks; ++r)
      configs[static_cast<size_t>(r)].cluster = apart && r > 0 ? "B" : "A";
    on_fake_devices(configs, {}, [&](int r, auto& device, const auto& made) {
      Communicator& comm = *made;
      const auto stream = device.create_stream().value();
      void* memory = device.allocate(kBytes).value();
      const auto sum = [&](float value) {
        const std::vector<float> data(1000, value);
        device.upload(memory, data.data(), kBytes);
        const hetccl::Signature all{Collective::AllReduce, DataType::Float32, RedOp::Sum, 0, 1000};
        return comm.dispatch().start({all, memory, memory}, {.stream = stream->native()});
      };
      const auto result = [&] {
        std::vector<float> data(1000);
        CHECK(device.synchronize(hetccl::fake::kHang));
        device.download(data.data(), memory, kBytes);
        return data[999];
      };
      CHECK(sum(1).ok());
      CHECK(result() == 2);
      device.set_capturing(true);
      CHECK(comm.dispatch().is_capturing(stream->native()).value());
      const auto captured = sum(2);
      CHECK(captured.ok() == !apart);
      if (apart) CHECK(captured.status().message().find("outside the graph") != std::string::npos);
      if (!apart) CHECK(result() == 4);
      const hetccl::exec::Message message{
          .send = r == 0, .peer = 1 - r, .data = memory, .count = 1};
      // A message waits until the library has connected both ranks.
      CHECK(comm.dispatch().start({&message, 1}, {.stream = stream->native()}).status().code() ==
            (apart ? ErrorCode::InvalidUsage : ErrorCode::Ok));
      const hetccl::Signature all{Collective::AllToAll, DataType::Float32, RedOp::Sum, 0, 100};
      const auto exchanged = comm.dispatch().start({all, memory, static_cast<float*>(memory) + 500},
                                                   {.stream = stream->native()});
      CHECK(exchanged.status().code() == (apart ? ErrorCode::InvalidUsage : ErrorCode::Ok));
      CHECK(device.synchronize(hetccl::fake::kHang));
      device.set_capturing(false);
      CHECK(sum(3).ok());
      CHECK(result() == 6);
      CHECK(comm.dispatch().statistics().operations == (apart ? 2 : 5));
      CHECK(comm.finish().ok());
      device.free(memory);
    });
  }
}

TEST_CASE("a reduction reads every rank's buffer and writes the root's alone") {
  Ranks ranks({"A", "B", "A"}, {}, false);
  std::vector<Status> statuses(3);
  on_all_ranks(ranks, [&](int r) {
    const std::vector<float> send(1000, static_cast<float>(r + 1));
    std::vector<float> recv(1000, -1);
    const hetccl::Signature signature{Collective::Reduce, DataType::Float32, RedOp::Sum, 2, 1000};
    auto& status = statuses[static_cast<size_t>(r)];
    status = ranks[r]->dispatch().call({signature, send.data(), recv.data()}, nullptr);
    const auto is = [&](float value) {
      return std::all_of(recv.begin(), recv.end(), [&](float got) { return got == value; });
    };
    CHECK(is(r == 2 ? 6.0F : -1.0F));
    // The root cannot do without its buffer.
    if (r == 2) {
      CHECK(ranks[r]->dispatch().call({signature, send.data(), nullptr}, nullptr).code() ==
            ErrorCode::InvalidArgument);
    }
  });
  for (const auto& status : statuses) CHECK(status.ok());
}

TEST_CASE("settings on which plans depend must be equal: the error names the variable") {
  Config one, two;
  two.slice_bytes = 4096;
  auto a = Runtime::create(one), b = Runtime::create(two);
  REQUIRE((a.ok() && b.ok()));
  const auto id = a.value()->service().unique_id();
  REQUIRE(id.ok());
  on_all_ranks(2, [&](int r) {
    CommunicatorOptions options;
    options.rank = r;
    options.n_ranks = 2;
    const auto made = Communicator::create(r == 0 ? *a.value() : *b.value(), id.value(), options);
    CHECK(made.status().message().find("HETCCL_SLICE_BYTES") != std::string::npos);
  });
}

TEST_CASE("an idle communicator uses no processor time") {
  Ranks ranks({"A", "B", "A"}, {}, false);
  REQUIRE(run(ranks, all_reduce(ranks, 1000), true) == "");
  const auto cpu = [] {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  // On a slow machine the process takes a while to come to rest; a spinning one never does.
  double used = 1;
  for (int attempt = 0; attempt < 30 && used >= 0.05; ++attempt) {
    const double before = cpu();
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    used = cpu() - before;
  }
  CHECK(used < 0.05);
}

TEST_CASE("a call that failed never looks successful, blocking or on a stream") {
  for (int round = 0; round < 20; ++round) {
    CAPTURE(round);
    Ranks ranks({"A", "A"}, {}, round % 2 == 0);
    const bool asynchronous = round % 4 < 2;
    on_all_ranks(ranks, [&](int r) {
      std::vector<float> data(2000);
      const uint64_t count = r == 0 ? 2000 : 1999;
      void* stream = asynchronous ? ranks.runtime(r).create_host_stream().value() : nullptr;
      Status status = ranks[r]->dispatch().call(
          {{Collective::AllReduce, DataType::Float32, RedOp::Sum, 0, count},
           data.data(),
           data.data()},
          stream);
      if (asynchronous) {
        CHECK(ranks.runtime(r).destroy_host_stream(stream).ok());  // waits
        if (status.ok()) status = ranks[r]->dispatch().failure();
      }
      CHECK(status.code() == ErrorCode::InvalidUsage);
    });
  }
}
