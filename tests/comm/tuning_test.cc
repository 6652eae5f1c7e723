// Tuning while a job runs: right values whatever is tried, one setting for each call on all ranks,
// and nothing that fails or hangs because of it.
#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "base/json.h"
#include "comm/ranks.h"
#include "fake/captured_stderr.h"
#include "fake/sample.h"
#include "fake/thread.h"
#include "fake/vendor_library.h"

namespace {

using namespace hetccl;
using namespace hetccl::comm;

#if defined(HETCCL_UNDER_TSAN) || defined(HETCCL_UNDER_ASAN)
constexpr int kCalls = 80;
constexpr size_t kElements = 5'000;  // of which one search is made
constexpr bool kSanitized = true;    // a few cases are enough for them
#else
constexpr int kCalls = 600;
constexpr size_t kElements = 50'000;
constexpr bool kSanitized = false;
#endif
#if defined(HETCCL_UNDER_TSAN)
constexpr bool kUnderTsan = true;
#else
constexpr bool kUnderTsan = false;
#endif

// A folder that goes with the test.
class Folder {
 public:
  Folder() : path_("/tmp/hetccl-tuning-XXXXXX") { REQUIRE(mkdtemp(path_.data()) != nullptr); }
  ~Folder() { std::filesystem::remove_all(path_); }
  [[nodiscard]] std::string file() const { return path_ + "/of/jobs/tuning.json"; }

 private:
  std::string path_;
};

Config tuned(const Folder& folder, const std::string& mode = "online") {
  Config config;
  config.tune = mode;
  config.tune_budget = 10'000;
  config.tune_file = folder.file();
  return config;
}

Json tuning_of(Ranks& ranks) {
  return Json::parse(ranks[0]->dispatch().tuning_json(), "tuning", 1U << 20U).value();
}

size_t settled(Ranks& ranks) {
  const Json tuning = tuning_of(ranks);
  size_t n = 0;
  for (const Json& key : *tuning["keys"].elements())
    n += *key["state"].text() == "settled" && *key["trials"].integer(0, 1000) > 0 ? 1 : 0;
  return n;
}

// Sums of one size on all ranks; whether every result was right.
bool sums(Ranks& ranks, size_t count, int calls, bool asynchronous) {
  std::atomic<int> wrong{0};
  on_all_ranks(ranks, [&](int rank) {
    std::vector<std::vector<float>> data(8, std::vector<float>(count));
    for (int call = 0; call < calls; call += 8) {
      void* stream = asynchronous ? ranks.runtime(rank).create_host_stream().value() : nullptr;
      for (auto& one : data) {
        std::fill(one.begin(), one.end(), static_cast<float>(rank + call));
        wrong += sum(*ranks[rank], one, stream).ok() ? 0 : 1;
      }
      if (stream != nullptr) wrong += ranks.runtime(rank).destroy_host_stream(stream).ok() ? 0 : 1;
      const float expected = static_cast<float>(ranks.n() * (ranks.n() - 1) / 2 + ranks.n() * call);
      for (auto& one : data)
        for (const float value : one) wrong += value == expected ? 0 : 1;
    }
  });
  return wrong == 0;
}

bool sums_until_settled(Ranks& ranks, size_t count) {
  for (const TimePoint end = steady_clock().now() + fake::kHang; steady_clock().now() < end;) {
    if (!sums(ranks, count, 200, false)) return false;
    if (settled(ranks) > 0) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("tuning: keys are searched while calls go on, and their values are right") {
  uint64_t index = 0;
  for (const bool shm : {true, false}) {
    for (const bool asynchronous : {false, true}) {
      if (!fake::is_sampled(index++, kSanitized ? 4 : 1)) continue;
      CAPTURE(shm);
      CAPTURE(asynchronous);
      const Folder folder;
      Config config = tuned(folder);
      config.transport_shm = shm;
      Ranks ranks({"A", "A", "B"}, config, false);
      const auto rounds = [&] { return tuning_of(ranks)["rounds"].integer(0, 100'000).value(); };
      constexpr int kRounds = kSanitized ? 1 : 3;
      const TimePoint end = steady_clock().now() + fake::kHang;
      do {
        REQUIRE(sums(ranks, 20'000, kCalls, asynchronous));
      } while (rounds() <= kRounds && steady_clock().now() < end);
      if (!kSanitized) CHECK(sums(ranks, 100'000, kCalls / 4, asynchronous));
      MESSAGE(rounds(), " rounds, ", tuning_of(ranks)["cancelled"].integer(0, 100'000).value(),
              " cancelled");
      CHECK(rounds() > kRounds);
    }
  }
}

TEST_CASE("tuning: the next job begins with what was learnt, and a frozen one keeps to it") {
  const Folder folder;
  {
    Ranks ranks({"A", "B"}, tuned(folder), false);
    REQUIRE(sums_until_settled(ranks, kElements));
    on_all_ranks(ranks, [&](int rank) {
      CHECK(ranks[rank]->finish().ok());  // keeps what was learnt after the last call, too
      ranks[rank].reset();
    });
  }
  const std::string text = read_file(folder.file(), 1U << 20U).value();
  CAPTURE(text);
  CHECK(text.find("1 host + 1 host by shm") != std::string::npos);
  Ranks next({"A", "B"}, tuned(folder), false);
  next.join();
  const Json first = (*tuning_of(next)["keys"].elements())[0];
  CHECK(*first["state"].text() == "settled");
  CHECK(first["default_us"].number().value() > 0);
  Ranks frozen({"A", "B"}, tuned(folder, "frozen"), false);
  CHECK(sums(frozen, kElements, 16, false));
  CHECK(frozen[1]->dispatch().statistics().plans == 1);
}

TEST_CASE("tuning: files that are none, or another version's, harm nothing") {
  for (const std::string text :
       {"", "{", "[]", "{\"hetccl_tuning\": 1}", "{\"hetccl_tuning\": 2, \"entries\": []}"}) {
    if (kSanitized && text.size() < 30) continue;
    const Folder folder;
    std::filesystem::create_directories(std::filesystem::path(folder.file()).parent_path());
    std::ofstream(folder.file()) << text;
    Ranks ranks({"A", "B"}, tuned(folder), false);
    const bool kept = text.find("2,") != std::string::npos;  // a newer hetccl can read it
    CHECK((kept ? sums(ranks, kElements, 200, false) : sums_until_settled(ranks, kElements)));
    on_all_ranks(ranks, [&](int rank) {
      CHECK(ranks[rank]->finish().ok());  // keeps what was learnt after the last call, too
      ranks[rank].reset();
    });
    const std::string after = read_file(folder.file(), 1U << 20U).value();
    CHECK((after == text) == kept);
  }
}

TEST_CASE("tuning: jobs that write one file lose nothing of each other") {
  const Folder folder;
  std::vector<fake::Thread> jobs;
  constexpr int kJobs = kSanitized ? 2 : 3;
  const std::vector<std::string> kLayouts[] = {{"A", "B"}, {"A", "B", "B"}, {"A", "B", "C"}};
  for (int job = 0; job < kJobs; ++job) {
    jobs.emplace_back([&, job] {
      Ranks ranks(kLayouts[job], tuned(folder), false);
      CHECK(sums_until_settled(ranks, kElements));
      on_all_ranks(ranks, [&](int rank) {
        CHECK(ranks[rank]->finish().ok());  // keeps what was learnt after the last call, too
        ranks[rank].reset();
      });
    });
  }
  for (fake::Thread& job : jobs) job.join();
  const std::string text = read_file(folder.file(), 1U << 20U).value();
  const Json json = Json::parse(text, "file", 1U << 20U).value();
  CHECK(json["entries"].size() == kJobs);
}

TEST_CASE("tuning: a rank with another setting is named, with both rounds") {
  Config config;
  config.liveness_ms = fake::patient_ms(1000);
  Ranks ranks({"A", "B"}, config, false);
  ranks.join();
  const Json space = Json::parse(ranks[0]
                                     ->dispatch()
                                     .tuning_space({.collective = Collective::AllReduce,
                                                    .type = DataType::Float32,
                                                    .count = 100'000})
                                     .value(),
                                 "space", 1U << 20U)
                         .value();
  const Json given{{"key", space["key"]}, {"setting", space["subspaces"][0]["start"]}};
  CHECK(ranks[0]->dispatch().set_tuning(given.dump()).ok());
  std::vector<Status> statuses(2);
  on_all_ranks(ranks, [&](int rank) {
    std::vector<float> data(100'000, 1);
    statuses[static_cast<size_t>(rank)] = sum(*ranks[rank], data);
  });
  for (const Status& status : statuses) {
    CAPTURE(status.message());
    CHECK(status.code() == ErrorCode::InvalidUsage);
    CHECK(status.message().find("with the setting of tuning round") != std::string::npos);
    CHECK(status.message() == statuses[0].message());
  }
}

TEST_CASE("tuning: settings that do not fit are refused, and say why") {
  Ranks ranks({"A", "B"}, Config(), false);
  ranks.join();
  const auto set = [&](const char* key, const char* setting) {
    return ranks[0]->dispatch().set_tuning(format("{\"key\": %s, \"setting\": %s}", key, setting));
  };
  constexpr const char* kKey =
      R"({"collective": "all_reduce", "size_class": 20, "element_bytes": 4})";
  constexpr const char* kSetting = R"({"algorithm": "exchange", "slice_bytes": 4096, "depth": 3})";
  CHECK(set(kKey, kSetting).ok());
  CHECK(set("{}", kSetting).message().find("\"key\"") != std::string::npos);
  CHECK(set(kKey, "{}").message().find("\"setting\"") != std::string::npos);
  CHECK(set(kKey, R"({"algorithm": "ring", "slice_bytes": 4096, "depth": 3})").code() ==
        ErrorCode::InvalidArgument);
  CHECK(set(R"({"collective": "broadcast", "size_class": 20, "root_cluster": 7})", kSetting)
            .message() == "there is no cluster 7");
  Ranks one({"A", "A"}, Config(), false);
  one.join();
  const Status status =
      one[0]->dispatch().set_tuning(format("{\"key\": %s, \"setting\": %s}", kKey, kSetting));
  CHECK(status.code() == ErrorCode::InvalidUsage);
}

TEST_CASE("tuning: a rank that goes in mid-search is named, and nobody hangs") {
  for (const int gone : {0, 2}) {
    CAPTURE(gone);
    const Folder folder;
    Config config = tuned(folder);
    config.liveness_ms = fake::patient_ms(1000);
    Ranks ranks({"A", "B", "B"}, config, false);
    ranks.join();
    std::vector<Status> statuses(3);
    on_all_ranks(ranks, [&](int rank) {
      std::vector<float> data(50'000, 1);
      Status& status = statuses[static_cast<size_t>(rank)];
      for (int call = 0; status.ok() && call < 100'000; ++call) {
        if (rank == gone && call == 40) {
          ranks[rank]->abort("it has had enough");
          return;
        }
        status = sum(*ranks[rank], data);
      }
    });
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == gone) continue;
      const Status& status = statuses[static_cast<size_t>(rank)];
      CAPTURE(status.message());
      CHECK(status.message().find(format("rank %d: it has had enough", gone)) != std::string::npos);
    }
  }
}

namespace {

// Sums by ranks of one cluster whose library can be told how to run; whether all were right.
bool sums_in_a_cluster(const Config& config, int n_ranks, int calls,
                       const std::function<void(Communicator&)>& at_the_end) {
  constexpr size_t kCount = 10'000;
  std::atomic<int> wrong{0};
  const std::vector<Config> configs(static_cast<size_t>(n_ranks), config);
  on_fake_devices(configs, {.max_delay_us = 0}, [&](int rank, auto& device, auto made) {
    auto* data = static_cast<float*>(device.allocate(kCount * sizeof(float)).value());
    auto stream = device.create_stream().value();
    std::vector<float> values(kCount, 1);
    for (int call = 0; call < calls; ++call) {
      if (call % 8 == 0) {
        std::fill(values.begin(), values.end(), 1.F);
        device.upload(data, values.data(), kCount * sizeof(float));
      }
      const CollectiveArguments sum{
          {.collective = Collective::AllReduce, .type = DataType::Float32, .count = kCount},
          data,
          data};
      wrong += made->dispatch().start(sum, {.stream = stream->native()}).ok() ? 0 : 1;
      if (call % 8 < 7) continue;
      wrong += device.synchronize(fake::kHang) ? 0 : 1;
      device.download(values.data(), data, kCount * sizeof(float));
      for (const float value : values) wrong += value == std::pow(n_ranks, 8) ? 0 : 1;
    }
    if (rank == 0) at_the_end(*made);
    stream.reset();
    CHECK(made->finish().ok());
    device.free(data);
  });
  return wrong == 0;
}

// While it lives, libraries can be told how to run their calls.
class WithTold {
 public:
  WithTold() { fake::VendorLibrary::told = &told; }
  ~WithTold() { fake::VendorLibrary::told = nullptr; }
  fake::Told told;
};

}  // namespace

TEST_CASE("tuning: the library of one cluster is told the same on all ranks, and does it faster") {
  std::string tuning;
  bool found = false;
  // On a busy machine a search may end early, or with a setting that only seemed fast.
  for (int attempt = 0; !found && attempt < (kSanitized ? 1 : 5); ++attempt) {
    WithTold with;
    const Folder folder;
    CHECK(sums_in_a_cluster(tuned(folder), 3, kSanitized ? 160 : 2000,
                            [&](Communicator& made) { tuning = made.dispatch().tuning_json(); }));
    CHECK(with.told.differing() == 0);
    CHECK(with.told.distinct() > 1);
    found = fake::Told::time_of(with.told.last()) <= std::chrono::microseconds(400);
  }
  CAPTURE(tuning);
  if (kSanitized) return;
  CHECK(found);
  CHECK(tuning.find("\"nccl_algorithm\":\"ring\"") != std::string::npos);
}

TEST_CASE("tuning: what the libraries cannot do is not taken from the file, and not by hand") {
  const auto set = [](Communicator& made, const char* setting) {
    return made.dispatch().set_tuning(format(
        R"({"key": {"collective": "all_reduce", "size_class": 16, "element_bytes": 4}, "setting": )"
        R"({"algorithm": "vendor", %s}})",
        setting));
  };
  const auto keys_of = [](Communicator& made) {
    return Json::parse(made.dispatch().tuning_json(), "tuning", 1U << 20U).value()["keys"].size();
  };
  const Folder folder;
  {
    WithTold with;
    CHECK(sums_in_a_cluster(tuned(folder), 2, kSanitized ? 80 : 1600, [&](Communicator& made) {
      CHECK(set(made, R"("nccl_channels": 2)").ok());
      CHECK(set(made, R"("nccl_algorithm": "pat", "nccl_protocol": "simple")").code() ==
            ErrorCode::InvalidArgument);
    }));
  }
  CHECK(sums_in_a_cluster(tuned(folder), 2, 8, [&](Communicator& made) {
    CHECK(set(made, R"("nccl_channels": 2)").code() == ErrorCode::InvalidUsage);
    CHECK(keys_of(made) == 0);
  }));
  // The same place, two clusters: one setting asks for channels, the other one does not.
  const Folder other;
  const std::string place = [&] {
    Ranks ranks({"A", "B"}, tuned(other, "frozen"), false);
    return *tuning_of(ranks)["place"].text();
  }();
  const auto entry = [&](int size_class, const char* more) {
    return format(
        R"({"key": {"collective": "all_reduce", "size_class": %d, "element_bytes": 4}, "setting": )"
        R"({"algorithm": "exchange", "slice_bytes": 4096, "depth": 3%s}, "bytes": 4000, "us": 1, )"
        R"("default_us": 1, "trials": 1, "place": "%s", "summary": "", "time": 1})",
        size_class, more, place.c_str());
  };
  std::filesystem::create_directories(std::filesystem::path(other.file()).parent_path());
  std::ofstream(other.file()) << "{\"hetccl_tuning\": 1, \"entries\": ["
                              << entry(12, R"(, "nccl_channels": 2)") << ", " << entry(13, "")
                              << "]}";
  Ranks ranks({"A", "B"}, tuned(other), false);
  CHECK(tuning_of(ranks)["learnt"].size() == 1);
}

TEST_CASE("tuning: of a file that says too much about such jobs the newest is used" *
          doctest::skip(kUnderTsan)) {
  const Folder folder;
  const std::string place = [&] {
    Ranks ranks({"A", "B"}, tuned(folder, "frozen"), false);
    return *tuning_of(ranks)["place"].text();
  }();
  const auto entry = [&](const char* collective, int size_class, int root, int time) {
    const std::string where = root < 0 ? "" : format(R"(, "root_cluster": %d)", root);
    return format(
        R"({"key": {"collective": "%s", "size_class": %d, "element_bytes": 4%s}, )"
        R"("setting": {"algorithm": "exchange", "slice_bytes": 4096, "depth": 3}, "bytes": 4000, )"
        R"("us": 1, "default_us": 1, "trials": 1, "place": "%s", "summary": "", "time": %d})",
        collective, size_class, where.c_str(), place.c_str(), time);
  };
  std::filesystem::create_directories(std::filesystem::path(folder.file()).parent_path());
  std::ofstream file(folder.file());
  file << "{\"hetccl_tuning\": 1, \"entries\": [";
  for (int root = 0; root < 170; ++root)  // as clusters of a large job are
    for (int size_class = 10; size_class < 50; ++size_class)
      file << entry("reduce", size_class, root, 1) << ",\n";
  file << entry("all_reduce", 12, -1, 2) << "]}";
  file.close();
  std::optional<Ranks> ranks;
  const std::string log = fake::stderr_of(
      [&] { ranks.emplace(std::vector<std::string>{"A", "B"}, tuned(folder), false); });
  CHECK(log.find("6801 entries are of jobs like this one; the newest") != std::string::npos);
  const Json learnt = tuning_of(*ranks)["learnt"];
  REQUIRE(learnt.size() >= 1);
  CHECK(*learnt.elements()->front()["key"]["collective"].text() == "all_reduce");
}
