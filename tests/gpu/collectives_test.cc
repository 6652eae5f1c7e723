// Every collective, and messages, over GPUs and ranks of the host in all kinds of clusters: exact
// values, of random cases. HETCCL_TEST_SEED replays one, HETCCL_TEST_SCALE multiplies their number.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>

#include "gpu/gpu.h"
#include "gpu/job.h"

namespace {

using namespace hetccl;
using namespace hetccl::gpu_tests;
using fake::Case;

// In a cluster of GPUs, NCCL lacks 16-bit integers and bitwise operators.
bool possible(const Case& test, const std::vector<Place>& places) {
  const Signature& call = test.signature;
  const bool lacks =
      call.type >= DataType::Int16 || is_bitwise(call.op) || !adaptor_reduces(call.type, call.op);
  std::set<std::string> clusters;
  bool joined = false;
  for (const Place& place : places) {
    joined |= place.device != "host" && !clusters.insert(place.label).second;
  }
  return !reduces(call.collective) || !lacks || !joined;
}

// Each GPU once, in one or several clusters, and some ranks of the host among them; with one GPU
// it may be there twice, as clusters of one rank.
std::vector<Place> random_places(std::mt19937_64& random) {
  std::vector<Place> places;
  const int n_gpus = count();
  for (const std::string& vendor : vendors()) {
    for (int gpu = 0; gpu < n_gpus; ++gpu) {
      const char label = static_cast<char>('A' + random() % 2);
      places.push_back({vendor + ":" + std::to_string(gpu), vendor + label});
    }
  }
  // Not where streams call hosts, which one thread of the driver does for all streams.
  const bool twice = n_gpus == 1 && row_of(vendors()[0]).load_compiler;
  if (twice && random() % 2 == 0) places.push_back({vendors()[0] + ":0", "Z"});
  for (uint64_t hosts = random() % 4; hosts > 0; --hosts) {
    places.push_back({"host", std::string(1, static_cast<char>('H' + random() % 2))});
  }
  std::shuffle(places.begin(), places.end(), random);
  return places;
}

// Some longer than all that is on its way at once, some empty, some to the rank itself.
std::vector<Letter> random_letters(std::mt19937_64& random, int n_ranks) {
  const auto rank = [&] { return static_cast<int>(random() % static_cast<uint64_t>(n_ranks)); };
  std::vector<Letter> letters(random() % 8);
  for (Letter& letter : letters) {
    constexpr uint64_t kMost[] = {1, 1000, 100'000, 4'000'000};
    letter = {rank(), rank(), random() % kMost[random() % 4]};
  }
  return letters;
}

void random_jobs(uint64_t n_jobs, bool shm) {
  if (runtime() == nullptr) return;
  for (const uint64_t seed : fake::sampled_seeds(n_jobs)) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    Config config = Config::from_environment().value();
    config.transport_shm = shm;
    config.slice_bytes = static_cast<int64_t>(64 * (1 + random() % 1024));
    std::vector<std::string> labels;
    const std::vector<Place> places = random_places(random);
    for (const Place& place : places) labels.push_back(place.device + "/" + place.label);
    // Two ranks of one process on one GPU would share queues of the hardware, where a long message
    // of one holds up the other's.
    const bool twice =
        vendors().size() > 1 || std::any_of(places.begin(), places.end(),
                                            [](const Place& place) { return place.label == "Z"; });
    Job job(places, config);
    for (int i = 0; i < 25; ++i) {
      const Case test = fake::random_case(random, labels, 50'000);
      if (possible(test, places)) CHECK(job.run(test) == "");
      if (i % 5 == 0 && !twice) CHECK(job.run(random_letters(random, job.n())) == "");
    }
  }
}

}  // namespace

TEST_CASE("random collectives and messages through shared memory between clusters") {
  random_jobs(4, true);
}

TEST_CASE("random collectives and messages over TCP between clusters") {
  random_jobs(3, false);
}
