// exec on the asynchronous fake device and on the host device, over the fake network: every delay
// comes from a seed, which a failure names. HETCCL_TEST_SEED replays one, HETCCL_TEST_SCALE
// multiplies the number of cases.
#include <doctest/doctest.h>

#include "exec/job.h"
#include "plan/call.h"
#include "tune/chooser.h"

namespace {

using hetccl::Collective;
using hetccl::DataType;
using hetccl::RedOp;
using hetccl::exec::Job;
using hetccl::exec::JobOptions;
using hetccl::exec::on_all_ranks;
using hetccl::fake::Case;

// Abort ends all waits, so what is left of an asynchronous device's work runs unordered, over
// results that are worthless anyway: a race by design, which ThreadSanitizer rightly sees.
// It is slow, too: a few jobs show it all kinds of steps.
constexpr uint64_t kJobs = 60;
#if defined(HETCCL_UNDER_TSAN)
constexpr bool kMayRace = false;
constexpr uint64_t kExecOneIn = 6;
#else
constexpr bool kMayRace = true;
constexpr uint64_t kExecOneIn = 3;
#endif

// One job of random layout runs a few random collectives back to back.
std::string random_job(uint64_t seed, bool fake_device) {
  std::mt19937_64 random(seed);
  JobOptions options;
  options.seed = seed;
  options.fake_device = fake_device;
  options.one_queue = random() % 4 == 0;
  options.labels = hetccl::fake::random_labels(random, 6, 4);
  options.slice_bytes = 64 * (1 + random() % 64);
  options.depth = static_cast<uint32_t>(random() % 5);
  options.last_algorithm = random() % 2 == 0;
  options.timed_every = random() % 3;
  const bool mixed = random() % 3 == 0;
  for (const std::string& label : options.labels) {
    if (mixed && random() % 2 == 0) options.hosts.insert(label);
    if (fake_device && random() % 4 == 0) options.without_kernels.insert(label);
    if (random() % 8 == 0) options.without_exchange.insert(label);
  }
  options.reach_devices = random() % 3 == 0;
  // Small: rings are full most of the time, and the longest slices do not fit.
  if (random() % 2 == 0) {
    options.window = 4096 + 2 * (size_t{2} << (10 + random() % 3));
  }
  Job job(options);
  if (!job.opened().ok()) return job.opened().message();
  std::vector<Case> tests;
  for (int i = 0; i < 4; ++i) {
    tests.push_back(hetccl::fake::random_case(random, options.labels, 6000));
  }
  return job.run(tests);
}

void random_jobs(uint64_t count, bool fake_device) {
  for (const uint64_t seed : hetccl::fake::sampled_seeds(count, kExecOneIn)) {
    CAPTURE(seed);
    REQUIRE(random_job(seed, fake_device) == "");
  }
}

Case all_reduce(std::vector<std::string> labels, uint64_t count) {
  Case test;
  test.labels = std::move(labels);
  test.signature = {Collective::AllReduce, DataType::Float32, RedOp::Sum, 0, count};
  return test;
}

}  // namespace

TEST_CASE("random collectives on the asynchronous fake device give exact results") {
  random_jobs(kJobs * 2 / 3, true);
}

TEST_CASE("random collectives on the host device give exact results") {
  random_jobs(kJobs, false);
}

TEST_CASE("gather, scatter and all-to-all by the clusters' libraries, by messages, and by both") {
  const std::vector<std::string> layouts[] = {{"A", "A", "A"}, {"A", "B", "A", "B", "B", "C"}};
  const std::set<std::string> without[] = {{}, {"A"}, {"A", "B", "C"}};
  uint64_t seed = 0;
  for (const bool fake_device : {false, true}) {
    for (const auto& labels : layouts) {
      for (const auto& without_exchange : without) {
        if (!hetccl::fake::is_sampled(seed++, kExecOneIn)) continue;
        JobOptions options;
        options.labels = labels;
        options.fake_device = fake_device;
        options.without_exchange = without_exchange;
        options.seed = seed;
        options.one_queue = fake_device && seed % 2 == 0;
        Job job(options);
        REQUIRE(job.opened().ok());
        std::mt19937_64 random(seed);
        std::vector<Case> tests;
        while (tests.size() < 24) {
          const Case one = hetccl::fake::random_case(random, labels, 6000);
          const Collective what = one.signature.collective;
          if (hetccl::plan::is_pairwise(what)) tests.push_back(one);
        }
        CAPTURE(seed);
        REQUIRE(job.run(tests) == "");
      }
    }
  }
}

TEST_CASE("gathered all-to-alls, of hosts and devices, in slices of which the last one is short") {
  const std::vector<std::string> layouts[] = {{"A", "B", "A", "A", "B", "C"},
                                              {"A", "A", "A", "B", "B", "B", "B"}};
  uint64_t seed = 0;
  for (const bool fake_device : {false, true}) {
    for (const auto& labels : layouts) {
      for (const size_t ring : {0, 4096, 64 << 10}) {
        if (!hetccl::fake::is_sampled(seed++, kExecOneIn)) continue;
        JobOptions options;
        options.labels = labels;
        options.fake_device = fake_device;
        options.seed = seed;
        options.one_queue = fake_device && seed % 2 == 0;
        if (fake_device && seed % 3 != 0) options.hosts = {"B"};
        if (ring > 0) options.window = 4096 + 2 * ring;
        options.slice_bytes = 512;
        options.last_algorithm = true;
        Job job(options);
        REQUIRE(job.opened().ok());
        const auto rows = hetccl::plan::find_algorithms({Collective::AllToAll}, job.topology());
        REQUIRE(rows.back()->id == "gathered");
        std::vector<Case> tests;
        for (const uint64_t count : {1300, 1, 128, 0, 129, 1000, 7, 3000}) {
          tests.push_back(all_reduce(labels, count));
          tests.back().signature.collective = Collective::AllToAll;
        }
        CAPTURE(seed);
        REQUIRE(job.run(tests) == "");
      }
    }
  }
}

TEST_CASE("rooted and pre-multiplied reductions over several clusters, to every root") {
  const std::vector<std::string> labels = {"A", "B", "A", "C", "B", "B"};
  for (const bool fake_device : {false, true}) {
    JobOptions options;
    options.labels = labels;
    options.fake_device = fake_device;
    options.slice_bytes = 1024;
    Job job(options);
    REQUIRE(job.opened().ok());
    std::vector<Case> tests;
    for (int root = 0; root < 6; ++root) {
      for (const RedOp op : {RedOp::Sum, RedOp::Avg, RedOp::PreMulSum}) {
        Case test = all_reduce(labels, 3000);
        test.signature.collective = Collective::Reduce;
        test.signature.op = op;
        test.signature.root = root;
        test.in_place = root % 2 == 0;
        tests.push_back(test);
      }
    }
    for (const auto collective : {Collective::AllReduce, Collective::ReduceScatter}) {
      Case test = all_reduce(labels, 3000);
      test.signature.collective = collective;
      test.signature.op = RedOp::PreMulSum;
      test.in_place = collective == Collective::AllReduce;
      tests.push_back(test);
    }
    CHECK(job.run(tests) == "");
  }
}

TEST_CASE("without kernels clusters reduce by their library, and ranks alone on the host") {
  // A adds up two parts on three ranks, one of which has nothing to add; C is alone.
  const std::vector<std::string> labels = {"A", "B", "A", "C", "A", "B"};
  for (const bool last_algorithm : {false, true}) {
    JobOptions options;
    options.labels = labels;
    options.last_algorithm = last_algorithm;
    options.without_kernels = {"A", "C"};
    Job job(options);
    REQUIRE(job.opened().ok());
    std::vector<Case> tests;
    for (const Collective collective :
         {Collective::AllReduce, Collective::ReduceScatter, Collective::Reduce}) {
      for (const RedOp op : {RedOp::Sum, RedOp::Max, RedOp::Prod, RedOp::Avg, RedOp::PreMulSum}) {
        Case test = all_reduce(labels, 3001);
        test.signature.collective = collective;
        test.signature.op = op;
        if (op == RedOp::Max) test.signature.type = DataType::Int16;
        test.in_place = op == RedOp::Sum;
        tests.push_back(test);
      }
    }
    CHECK(job.run(tests) == "");
  }
}

TEST_CASE("more operations in flight than slots, recycled many times") {
  const std::vector<std::string> labels = {"A", "B", "A"};
  for (const bool fake_device : {false, true}) {
    JobOptions options;
    options.labels = labels;
    options.fake_device = fake_device;
    Job job(options);
    REQUIRE(job.opened().ok());
    const std::vector<Case> tests(fake_device ? 12 : 80, all_reduce(labels, 700));
    CHECK(job.run(tests) == "");
  }
}

TEST_CASE("timed calls of one cluster end in order among others, each with its own time") {
  const std::vector<std::string> labels = {"A", "A", "A"};
  for (const bool one_queue : {false, true}) {
    for (const uint64_t every : {1, 2, 3}) {
      JobOptions options;
      options.labels = labels;
      options.one_queue = one_queue;
      options.timed_every = every;
      Job job(options);
      REQUIRE(job.opened().ok());
      const std::vector<Case> tests(24, all_reduce(labels, 700));
      CHECK(job.run(tests) == "");
      for (int rank = 0; rank < job.n_ranks(); ++rank) {
        REQUIRE(job.rank(rank).drained());
        const auto& timed = job.rank(rank).timed();
        REQUIRE(timed.size() == 24 / every);
        for (size_t i = 0; i < timed.size(); ++i) {
          CHECK(timed[i].sequence == i * every);
          CHECK(timed[i].took.count() >= 0);
          CHECK(timed[i].took < hetccl::fake::kHang);
        }
      }
    }
  }
}

TEST_CASE("no message of a call waits for room until the call's others have been read") {
  // On a ring of three clusters each link has two messages; those of 2 KiB fill the window's ring.
  const std::vector<std::string> labels = {"A", "B", "C"};
  JobOptions options;
  options.labels = labels;
  options.window = 4096 + 2 * 4096;
  Job job(options);
  REQUIRE(job.opened().ok());
  std::vector<Case> tests;
  for (const uint64_t count : {128, 512, 128, 512, 300, 512}) {
    tests.push_back(all_reduce(labels, count));
    tests.back().signature.collective = Collective::AllGather;
  }
  CHECK(job.run(tests) == "");
}

TEST_CASE("calls on two streams wait for room in a window, each for itself") {
  const std::vector<std::string> labels = {"A", "B"};
  for (const uint64_t seed : hetccl::fake::sampled_seeds(20, kExecOneIn)) {
    CAPTURE(seed);
    JobOptions options;
    options.labels = labels;
    options.seed = seed;
    options.window = 4096 + 2 * 4096;
    Job job(options);
    REQUIRE(job.opened().ok());
    std::vector<Case> tests;
    // The fourth and fifth take the room of the first, which has not been read.
    for (const uint64_t count : {512, 256, 256, 256, 256, 512, 256, 256, 256, 256}) {
      tests.push_back(all_reduce(labels, count));
      tests.back().signature.collective = Collective::Broadcast;
    }
    CHECK(job.run(tests) == "");
  }
}

TEST_CASE("hosts beside devices make, and broadcast, what is in their windows") {
  for (const uint64_t seed : hetccl::fake::sampled_seeds(kJobs / 3, kExecOneIn)) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    JobOptions options;
    options.seed = random();
    options.labels = {"A", "B"};
    for (uint64_t more = random() % 4; more > 0; --more) {
      options.labels.emplace_back(random() % 3 == 0 ? "A" : "B");
    }
    options.fake_device = true;
    options.hosts = {"B"};
    options.one_queue = random() % 4 == 0;
    options.slice_bytes = 64 * (1 + random() % 64);
    options.depth = static_cast<uint32_t>(random() % 5);
    options.window = 4096 + 2 * (size_t{2} << (10 + random() % 3));
    options.last_algorithm = random() % 4 == 0;
    Job job(options);
    REQUIRE(job.opened().ok());
    std::vector<Case> tests;
    for (int i = 0; i < 4; ++i) {
      tests.push_back(hetccl::fake::random_case(random, options.labels, 6000));
      if (random() % 2 == 0) continue;
      tests.back() = all_reduce(options.labels, random() % 6000);
      tests.back().in_place = random() % 2 == 0;
    }
    REQUIRE(job.run(tests) == "");
  }
}

TEST_CASE("at the depth that is chosen hosts beside devices copy nothing to or from windows") {
  JobOptions options;
  options.labels = {"A", "A", "B", "B"};
  options.hosts = {"B"};
  const Case test = all_reduce(options.labels, 6000);
  std::vector<hetccl::topology::RankInfo> infos = Job(options).topology().infos();
  for (auto& info : infos) info.window_bytes = 32 << 20;
  options.depth =
      hetccl::tune::Chooser(hetccl::topology::Topology::build(std::move(infos)).value(), {})
          .choose({Collective::AllReduce}, 6000, DataType::Float32)
          .choice.depth;
  const auto copies = [&](size_t ring) {
    options.window = 4096 + 2 * ring;
    Job job(options);
    REQUIRE(job.opened().ok());
    CHECK(job.run({test, test}) == "");
    return job.rank(2).copies() + job.rank(3).copies();
  };
  const size_t message = options.slice_bytes + 512;  // and the gain of shorter pieces
  CHECK(copies(3 * message) == 0);
  CHECK(copies(3 * message - 512) > 0);  // no room for the next slice yet
  ++options.depth;
  CHECK(copies(3 * message) > 0);  // and here longer than that
}

TEST_CASE("cross-cluster bytes are the least, in both directions together") {
  JobOptions options;
  options.labels = {"A", "A", "B", "B"};
  Job job(options);
  REQUIRE(job.opened().ok());
  const uint64_t count = 48 * 1024;
  Case reduce = all_reduce(options.labels, count);
  reduce.signature.collective = Collective::Reduce;
  CHECK(job.run({all_reduce(options.labels, count), reduce}) == "");
  uint64_t sent = 0, least = 0;
  for (const auto collective : {Collective::AllReduce, Collective::Reduce}) {
    least += hetccl::plan::least_bytes({collective}, job.topology(), count, DataType::Float32);
  }
  for (int r = 0; r < 4; ++r) sent += job.rank(r).bytes_sent();
  CHECK(sent == least);
}

TEST_CASE("a severed rank is a fault on its peers, and abort ends everything") {
  for (const uint64_t seed : hetccl::fake::sampled_seeds(16, kExecOneIn)) {
    CAPTURE(seed);
    JobOptions options;
    options.labels = {"A", "A", "B", "B"};
    options.seed = seed;
    options.fake_device = seed % 2 == 0 && kMayRace;
    if (seed % 4 == 0) options.hosts = {"B"}, options.window = 4096 + 2 * options.slice_bytes * 2;
    Job job(options);
    REQUIRE(job.opened().ok());
    on_all_ranks(4, [&](int r) {
      // Rank 3 never comes.
      if (r == 3) return job.network().sever(3);
      for (int i = 0; i < 5; ++i) {
        const auto status = job.rank(r).enqueue(all_reduce(options.labels, 20'000));
        if (!status.ok()) MESSAGE(status.message());
      }
    });
    on_all_ranks(4, [&](int r) { job.rank(r).abort(); });
    for (int r = 0; r < 4; ++r) CHECK(job.rank(r).drained());
  }
}

// Each rank of the cluster is to pass on its half of the message, of which one never comes.
TEST_CASE("while the vendor's abort is late no other rank takes garbage for a result") {
  JobOptions options;
  options.labels = {"A", "B", "B"};
  options.late_abort = true;
  Job job(options);
  REQUIRE(job.opened().ok());
  Case test = all_reduce(options.labels, 2000);
  test.signature.collective = Collective::Broadcast;
  job.network().sever(1);
  on_all_ranks(3, [&](int r) { REQUIRE(job.rank(r).enqueue(test).ok()); });
  job.rank(1).abort();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  CHECK_FALSE(job.rank(1).idle());
  CHECK_FALSE(job.rank(2).idle());
  job.rank(1).enter_abort();
  CHECK(job.rank(2).wait().code() == hetccl::ErrorCode::Aborted);
  on_all_ranks(3, [&](int r) {
    job.rank(r).abort();
    job.rank(r).enter_abort();
    CHECK(job.rank(r).drained());
  });
}

TEST_CASE("after an abort nothing is written over what another rank has yet to read") {
  if (!kMayRace) return;
  for (const bool answers : {true, false}) {
    CAPTURE(answers);
    JobOptions options;
    options.labels = {"A", "B"};
    options.window = 4096 + 2 * options.slice_bytes * 4;
    Job job(options);
    REQUIRE(job.opened().ok());
    Case test = all_reduce(options.labels, 20'000);  // far more than the window holds
    test.signature.collective = Collective::Broadcast;
    REQUIRE(job.rank(0).enqueue(test).ok());
    const auto begin = hetccl::steady_clock().now();
    const auto elapsed = [&] { return hetccl::steady_clock().now() - begin; };
    job.rank(0).abort();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const bool waits = !job.rank(0).idle();
    if (elapsed() < std::chrono::milliseconds(300)) CHECK(waits);
    if (answers) job.rank(1).abort();
    CHECK(job.rank(0).drained());
    if (!answers) CHECK(elapsed() >= std::chrono::milliseconds(500));
  }
}

TEST_CASE("an operation that peers do not enter passes its deadline and says so") {
  JobOptions options;
  options.labels = {"A", "B"};
  options.deadline = hetccl::fake::patient(std::chrono::milliseconds(100));
  options.fake_device = kMayRace;
  Job job(options);
  REQUIRE(job.opened().ok());
  REQUIRE(job.rank(0).enqueue(all_reduce(options.labels, 100)).ok());
  const auto status = job.rank(0).wait();
  CHECK(status.code() == hetccl::ErrorCode::Timeout);
  const std::string place = "slice 1 of 1, step 0 (send to rank 1)";
  CHECK(status.message().find("rank 1; it is at " + place) != std::string::npos);
  CHECK(job.rank(0).describe_oldest() == "all_reduce #0 (100 float32, sum): " + place);
  job.rank(0).abort();
  CHECK(job.rank(0).drained());
}

TEST_CASE("a call of one cluster that others do not enter passes its deadline, beside ended ones") {
  if (!kMayRace) return;
  for (const bool one_queue : {false, true}) {
    JobOptions options;
    options.labels = {"A", "A"};
    options.one_queue = one_queue;
    Job job(options);
    REQUIRE(job.opened().ok());
    for (int i = 0; i < 100; ++i) {
      on_all_ranks(
          2, [&](int r) { CHECK(job.rank(r).enqueue(all_reduce(options.labels, 100)).ok()); });
    }
    job.set_deadline(hetccl::fake::patient(std::chrono::milliseconds(50)));
    REQUIRE(job.rank(0).enqueue(all_reduce(options.labels, 100)).ok());
    // Nobody waits: the engine's thread finds it.
    const auto limit = hetccl::steady_clock().now() + hetccl::fake::kHang;
    while (job.rank(0).fault().ok() && hetccl::steady_clock().now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const auto status = job.rank(0).fault();
    CHECK(job.rank(1).wait().ok());
    CHECK(status.code() == hetccl::ErrorCode::Timeout);
    CHECK(status.message().find("#100 ") != std::string::npos);
    CHECK(status.message().find("its own cluster") != std::string::npos);
    job.rank(0).abort();
    CHECK(job.rank(0).drained());
  }
}

TEST_CASE("calls that differ are a fault that is no crash") {
  JobOptions options;
  options.labels = {"A", "B"};
  options.fake_device = kMayRace;
  Job job(options);
  REQUIRE(job.opened().ok());
  REQUIRE(job.rank(0).enqueue(all_reduce(options.labels, 100)).ok());
  REQUIRE(job.rank(1).enqueue(all_reduce(options.labels, 101)).ok());
  CHECK(job.rank(0).wait().code() == hetccl::ErrorCode::InvalidUsage);
  CHECK(job.rank(1).wait().code() == hetccl::ErrorCode::InvalidUsage);
  on_all_ranks(2, [&](int r) { job.rank(r).abort(); });
  for (int r = 0; r < 2; ++r) CHECK(job.rank(r).drained());
}
