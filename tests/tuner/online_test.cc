// All ranks give the same answer for every call, even if one of them fails; and the search finds
// fast settings.
#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "fake/patience.h"
#include "nccl-tuner/calls.h"
#include "tuner/job.h"

namespace hetccl::nccl_tuner {
namespace {

using enum Tactic::Algorithm;
using enum Tactic::Protocol;

size_t n_tuned(const Job& job, size_t rank) {
  size_t tuned = 0;
  for (size_t call = 0; call < job.board().called[rank]; ++call)
    tuned += chosen_of(job.board().chosen[rank][call]) == kOwn ? 0 : 1;
  return tuned;
}

double mean_cost(const Job& job, size_t from, size_t to) {
  double sum = 0;
  for (size_t call = from; call < to; ++call)
    sum += cost_of(Job::function_of(call), chosen_of(job.board().chosen[0][call]));
  return sum / static_cast<double>(to - from);
}

TEST_CASE("search: three ranks answer alike in 60,000 calls, and end far below NCCL's times") {
  char name[] = "/tmp/hetccl-tuner-XXXXXX";
  const std::string folder = mkdtemp(name);
  JobOptions options{.n_calls = 60'000};
  options.tune_file = folder + "/tuning.json";
  Job job(options);
  CHECK(job.finish().empty());
  CHECK(job.n_different() == 0);
  CHECK(n_tuned(job, 0) > 10'000);
  const double own = (cost_of(kAllReduce, kOwn) + cost_of(kAllGather, kOwn)) / 2;
  const double last = mean_cost(job, 56'000, 60'000);
  MESSAGE("a call takes ", last, " us at the end, with NCCL's choices ", own, " us; ",
          n_tuned(job, 0), " calls were not NCCL's own; the longest wait was ",
          job.board().longest_us[0].load(), ", ", job.board().longest_us[1].load(), " and ",
          job.board().longest_us[2].load(), " us");
  CHECK(last < 0.6 * own);

  // The next job starts with the results that rank 0 has written.
  const auto knowledge = tune::Knowledge::parse(read_file(options.tune_file, 1 << 20).value());
  REQUIRE(knowledge.ok());
  const auto known = knowledge.value().find(fingerprint_of(kJobRanks, 1));
  REQUIRE(!known.empty());
  for (const tune::Learnt& one : known) {
    CHECK(one.setting.resources.tactic.algorithm == kRing + 1);
    CHECK(one.us < one.default_us);
  }
  options.n_calls = 600;
  Job next(options);
  CHECK(next.finish().empty());
  CHECK(next.n_different() == 0);
  CHECK(mean_cost(next, 300, 600) < 0.8 * own);
  std::filesystem::remove_all(folder);
}

TEST_CASE("search: a rank that is killed leaves the others alike, and holds nobody up") {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    const size_t victim = seed % kJobRanks;
    const size_t last = 2'500 + 731 * seed;
    CAPTURE(seed);
    JobOptions options{.seed = seed, .n_calls = 9'000};
    options.before = [=](size_t rank, size_t call) {
      if (rank == victim && call == last) kill(getpid(), SIGKILL);
    };
    Job job(options);
    CHECK(job.finish() == std::vector<size_t>{victim});
    CHECK(job.n_different() == 0);
    for (size_t rank = 0; rank < kJobRanks; ++rank) {
      CHECK(job.board().called[rank] == (rank == victim ? last : options.n_calls));
      CHECK(job.board().longest_us[rank] < 1000 * fake::patient_ms(3'000));
      CHECK(n_tuned(job, rank) > 50);
    }
  }
}

// The same happens if a network file system shows an older file to some nodes, or none.
TEST_CASE("files that differ by rank: what rank 0 has read holds on all ranks, or on none") {
  char name[] = "/tmp/hetccl-tuner-XXXXXX";
  const std::string folder = mkdtemp(name);
  const auto write_file = [&](size_t rank, int algorithm) {
    plan::Resources resources;
    resources.tactic.algorithm = static_cast<uint8_t>(algorithm + 1);
    resources.tactic.protocol = static_cast<uint8_t>(kSimple + 1);
    const TunedCall call = *call_of(kAllReduce, kMiB, kJobRanks);
    tune::Knowledge file;
    file.add(fingerprint_of(kJobRanks, 1),
             {{call.key, tune::vendor_setting(resources), call.bytes, 1, 2}}, 1);
    std::ofstream(folder + format("/%zu.json", rank)) << file.dump();
  };
  write_file(0, kRing);
  write_file(1, kTree);  // rank 2 has none
  JobOptions options{.n_calls = 50, .budget = "0"};
  std::map<std::string, std::string> all;
  options.environment = [&](size_t rank) {
    auto own = all;
    own["HETCCL_TUNE_FILE"] = folder + format("/%zu.json", rank);
    return own;
  };
  const Chosen of_rank_0{kRing, kSimple, 0};
  const auto check = [&](const Chosen& later) {
    Job job(options);
    CHECK(job.finish().empty());
    CHECK(job.n_different() == 0);
    CHECK(job.is_later(later));
  };
  check(of_rank_0);
  all = {{"HETCCL_TUNE", "frozen"}};
  check(of_rank_0);
  options.n_ranks_before = 2;  // a rank might have made it after, and known the file
  check(kOwn);
  options.n_ranks_before = 0;
  all = {{"HETCCL_TUNER_ID", ""}};
  check(kOwn);
  std::filesystem::remove_all(folder);
}

TEST_CASE("search: without its coordinator it stays as it is") {
  JobOptions options{.n_calls = 8'000};
  Job job(options);
  while (job.board().called[0] < 4'000) usleep(1'000);
  job.kill_coordinator();
  CHECK(job.finish().empty());
  CHECK(job.n_different() == 0);
  CHECK(n_tuned(job, 0) > 50);
}

TEST_CASE("search: one rank that does not come leaves all with NCCL's choices") {
  const std::string stranger(256, 'a');
  for (const std::string& id : {std::string(), stranger}) {
    JobOptions options{.n_calls = 600};
    options.environment = [&](size_t rank) {
      return std::map<std::string, std::string>{
          {rank == 1 ? "HETCCL_TUNER_ID" : "HETCCL_DEBUG", rank == 1 ? id : "error"}};
    };
    Job job(options);
    CHECK(job.finish().empty());
    CHECK(job.n_different() == 0);
    for (size_t rank = 0; rank < kJobRanks; ++rank) CHECK(n_tuned(job, rank) == 0);
  }
}

TEST_CASE(
    "search: interfaces without a communicator's name search, too; a budget of 0 tries nothing") {
  JobOptions options{.n_calls = 5'000, .version = 3};
  Job job(options);
  CHECK(job.finish().empty());
  CHECK(job.n_different() == 0);
  CHECK(n_tuned(job, 2) > 50);
  options.budget = "0";
  Job thrifty(options);
  CHECK(thrifty.finish().empty());
  CHECK(n_tuned(thrifty, 0) == 0);
}

}  // namespace
}  // namespace hetccl::nccl_tuner
