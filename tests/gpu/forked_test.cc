// Ranks as processes that share GPUs: of all vendors of HETCCL_TEST_VENDORS, two a cluster, and of
// the host. Each vendor's library takes the ranks for hosts of their own, so that they may share.
#include "gpu/forked.h"

#include <dirent.h>
#include <doctest/doctest.h>

#include <string>

#include "gpu/gpu.h"
#include "gpu/job.h"

namespace {

using namespace hetccl;
using namespace hetccl::gpu_tests;
using fake::Case;

constexpr std::chrono::seconds kDeadline{100};
constexpr uint64_t kMostElements = 50'000;

// Without opening the vendors' runtimes, which would not outlive a fork.
int gpus_here() {
  int n = 0;
  DIR* folder = opendir("/dev");
  if (folder == nullptr) return 0;
  while (const dirent* entry = readdir(folder)) {
    const std::string name = entry->d_name;
    n += name.starts_with("nvidia") && name.find_first_not_of("0123456789", 6) == name.npos ? 1 : 0;
  }
  closedir(folder);
  return n;
}

// A layout, and what can be reduced there: 8-bit floats, 16-bit integers and bits not by all
// vendors' libraries.
struct Layout {
  std::vector<Place> places;
  bool all_types = false;
};

Layout pairs_and_a_host(int n_gpus) {
  Layout layout;
  for (const std::string& vendor : vendors()) {
    for (const int rank : {0, 1})
      layout.places.push_back({vendor + ":" + std::to_string(rank % n_gpus), vendor});
  }
  layout.places.push_back({"host", "H"});
  return layout;
}

Layout each_alone(int n_gpus) {
  Layout layout{pairs_and_a_host(n_gpus).places, true};
  char label = 'A';
  for (Place& place : layout.places) place.label = label++;
  return layout;
}

bool possible(const Case& test, const Layout& layout) {
  const Signature& call = test.signature;
  const bool fp8 = call.type == DataType::Float8E4m3 || call.type == DataType::Float8E5m2;
  const bool lacks = call.type >= DataType::Int16 || is_bitwise(call.op) || fp8 ||
                     !adaptor_reduces(call.type, call.op);
  return !reduces(call.collective) || !lacks || layout.all_types;
}

std::vector<Letter> ring(int n, uint64_t count) {
  std::vector<Letter> letters;
  for (int r = 0; r < n; ++r) letters.push_back({r, (r + 1) % n, count});
  return letters;
}

process::Report run_rank(const Layout& layout, process::Rank& rank, uint64_t seed, bool shm) {
  const bootstrap::UniqueId id = become_own_host(rank);
  Config config = Config::from_environment().value();
  config.transport_shm = shm;
  std::mt19937_64 random(seed);
  std::vector<std::string> labels;
  for (const Place& place : layout.places) labels.push_back(place.device + "/" + place.label);
  Job job(layout.places, config, rank.rank, id);
  for (int i = 0; i < 60; ++i) {
    const Case test = fake::random_case(random, labels, kMostElements);
    if (!possible(test, layout)) continue;
    const std::string wrong = job.run(test);
    if (!wrong.empty()) return wrong;
    if (i % 10 != 0) continue;
    const std::string lost = job.run(ring(job.n(), 1 + random() % 300'000));
    if (!lost.empty()) return "messages: " + lost;
  }
  return "right";
}

void run_all(Layout (*layout_of)(int n_gpus), uint64_t seed, bool shm) {
  const int n_gpus = gpus_here();
  if (n_gpus == 0) {
    if (wanted()) FAIL("a GPU is wanted");
    MESSAGE("SKIPPED, no GPU here");
    return;
  }
  const Layout layout = layout_of(n_gpus);
  const int n = static_cast<int>(layout.places.size());
  process::ForkedRanks ranks(n, [&](process::Rank& rank) {
    try {
      return run_rank(layout, rank, seed, shm);
    } catch (...) {  // doctest's, which has printed why
      return process::Report("failed");
    }
  });
  for (int r = 0; r < n; ++r) {
    CAPTURE(layout.places[static_cast<size_t>(r)].device);
    CHECK(ranks.report(r, kDeadline) == "right");
    CHECK(ranks.exited(r));
  }
}

}  // namespace

TEST_CASE("processes that share GPUs, two a cluster, with shared memory between clusters") {
  run_all(pairs_and_a_host, 1, true);
}

TEST_CASE("processes that share GPUs, two a cluster, with TCP between clusters") {
  run_all(pairs_and_a_host, 2, false);
}

TEST_CASE("processes that share GPUs, each a cluster: all types and operators") {
  run_all(each_alone, 3, true);
}
