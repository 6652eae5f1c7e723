// Programs that know nothing of hetccl use the settings of a file; after any error they use NCCL's
// own choice.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "fake/patience.h"
#include "fake/thread.h"
#include "nccl-tuner/calls.h"
#include "tuner/fake_caller.h"

namespace hetccl::nccl_tuner {
namespace {

using enum Tactic::Algorithm;
using enum Tactic::Protocol;

constexpr size_t kRanks = 4, kNodes = 2;

plan::Resources resources(int algorithm, int protocol, int channels = 0) {
  plan::Resources made;
  made.tactic.algorithm = static_cast<uint8_t>(algorithm + 1);
  made.tactic.protocol = static_cast<uint8_t>(protocol + 1);
  made.tactic.channels = static_cast<uint16_t>(channels);
  return made;
}

tune::Learnt learnt(int function, size_t bytes, const plan::Resources& resources) {
  const TunedCall call = *call_of(function, bytes, kRanks);
  return {call.key, tune::vendor_setting(resources), call.bytes, 80, 100, 5};
}

/// The file that HETCCL_TUNE_FILE names while this lives. A process reads a file once, so each new
/// text goes to a new file.
class File {
 public:
  File() {
    char name[] = "/tmp/hetccl-tuner-XXXXXX";
    folder_ = mkdtemp(name);
    setenv("HETCCL_TUNE", "frozen", 1);
    take_next();
  }
  ~File() {
    unsetenv("HETCCL_TUNE");
    unsetenv("HETCCL_TUNE_FILE");
    std::filesystem::remove_all(folder_);
  }
  [[nodiscard]] std::string path() const { return folder_ + format("/%d.json", n_files_); }
  void take_next() {
    ++n_files_;
    setenv("HETCCL_TUNE_FILE", path().c_str(), 1);
  }
  void write(const std::string& text) {
    take_next();
    std::ofstream(path()) << text;
  }
  void write(const std::vector<tune::Learnt>& entries) {
    tune::Knowledge all;
    all.add(fingerprint_of(kRanks, kNodes), entries, 1);
    write(all.dump());
  }

 private:
  std::string folder_;
  int n_files_ = 0;
};

// NCCL's choice for an all-reduce of 1 MiB with that file.
Chosen all_reduce(int version = 5, const Table& table = usual_table()) {
  const FakeNccl nccl(version);
  void* context = nccl.init(77, kRanks, kNodes);
  const Chosen chosen = nccl.call(context, kAllReduce, kMiB, table);
  nccl.destroy(context);
  return chosen;
}

bool warned(const std::string& part) {
  for (const std::string& line : FakeNccl::take_log())
    if (line.starts_with("warn: hetccl: ") && line.find(part) != std::string::npos) return true;
  return false;
}

TEST_CASE("plug-in: exports what NCCL 2.21 to 2.28 look up, and nothing of the first or sixth") {
  const FakeNccl nccl(5);
  for (const char* name : {"ncclTunerPlugin_v1", "ncclTunerPlugin_v6", "hetcclCommInitRank"})
    CHECK(nccl.find(name) == nullptr);
  for (int version = 2; version <= 5; ++version) {
    const auto name = "ncclTunerPlugin_v" + std::to_string(version);
    const auto* tuner = static_cast<const TunerV2*>(nccl.find(name.c_str()));
    REQUIRE(tuner != nullptr);
    CHECK(std::string(tuner->name) == "hetccl");
  }
}

TEST_CASE("plug-in: what the file says is chosen, through every version of the interface") {
  File file;
  file.write({learnt(kAllReduce, kMiB, resources(kRing, kSimple, 8)),
              learnt(kAllGather, 4 * kMiB, resources(kRing, kLl))});
  for (int version = 2; version <= 5; ++version) {
    CAPTURE(version);
    const FakeNccl nccl(version);
    void* context = nccl.init(77, kRanks, kNodes);
    CHECK(nccl.call(context, kAllReduce, kMiB) == Chosen{kRing, kSimple, 8});
    CHECK(nccl.call(context, kAllReduce, kMiB / 2 + 1) == Chosen{kRing, kSimple, 8});
    CHECK(nccl.call(context, kAllReduce, kMiB / 2) == kOwn);
    CHECK(nccl.call(context, kAllGather, 4 * kMiB) == Chosen{kRing, kLl, 0});
    CHECK(nccl.call(context, kReduceScatter, kMiB) == kOwn);
    CHECK(nccl.call(context, kBroadcast, kMiB) == kOwn);
    for (const int unknown : {-1, 5, 8, 11, 1000}) CHECK(nccl.call(context, unknown, kMiB) == kOwn);
    nccl.destroy(context);
    void* other = nccl.init(78, kRanks, 1);  // another shape
    CHECK(nccl.call(other, kAllReduce, kMiB) == kOwn);
    nccl.destroy(other);
    void* single = nccl.init(79, 1, 1);
    CHECK(nccl.call(single, kAllReduce, kMiB) == kOwn);
    nccl.destroy(single);
  }
}

TEST_CASE("plug-in: a file that a search may write meanwhile is not used, and is read once") {
  File file;
  file.write({learnt(kAllReduce, kMiB, resources(kRing, kSimple))});
  for (const char* mode : {"off", "online", "step"}) {
    setenv("HETCCL_TUNE", mode, 1);
    FakeNccl::take_log();
    CHECK(all_reduce() == kOwn);
    const auto lines = FakeNccl::take_log();
    REQUIRE(lines.size() == 1);
    CHECK(lines[0].find("set HETCCL_TUNE=frozen") != std::string::npos);
  }
  setenv("HETCCL_TUNE", "frozen", 1);
  CHECK(all_reduce() == Chosen{kRing, kSimple, 0});
  std::filesystem::remove(file.path());
  CHECK(all_reduce() == Chosen{kRing, kSimple, 0});
}

TEST_CASE("plug-in: what NCCL cannot run is not chosen") {
  File file;
  Table only_ring;
  for (auto& row : only_ring) row.fill(kImpossible);
  only_ring[kRing][kSimple] = 7;
  for (const auto& one :
       {resources(kNvls, kLl), resources(kPat, kSimple), resources(kNvls, kSimple, 8),
        resources(kRing, -1, 4), resources(-1, kLl), resources(-1, -1, 4)}) {
    file.write({learnt(kAllReduce, kMiB, one)});
    for (int version = 2; version <= 5; ++version) CHECK(all_reduce(version) == kOwn);
  }
  file.write({learnt(kAllReduce, kMiB, resources(kTree, kLl))});
  CHECK(all_reduce() == Chosen{kTree, kLl, 0});
  CHECK(all_reduce(5, only_ring) == Chosen{kRing, kSimple, 0});
  // Without a table, only the algorithms of every GPU are possible.
  file.write({learnt(kAllReduce, kMiB, resources(kRing, kLl128))});
  CHECK(all_reduce(3) == Chosen{kRing, kLl128, 0});
  CHECK(all_reduce(2) == kOwn);
}

TEST_CASE(
    "plug-in: no file, a corrupt one, a newer one, a folder: NCCL's choice and a line of log") {
  File file;
  FakeNccl::take_log();
  CHECK(all_reduce() == kOwn);
  CHECK(FakeNccl::take_log().empty());  // there is none yet
  file.write("");
  CHECK(all_reduce() == kOwn);
  CHECK(FakeNccl::take_log().empty());
  file.write("{\"hetccl_tuning\": 1, ");
  CHECK(all_reduce() == kOwn);
  CHECK(warned(file.path()));
  file.write(R"({"hetccl_tuning":99,"entries":[]})");
  CHECK(all_reduce() == kOwn);
  CHECK(warned("99"));
  file.take_next();
  std::filesystem::create_directory(file.path());
  CHECK(all_reduce() == kOwn);
  CHECK(warned(file.path()));
  setenv("HETCCL_TUNE_FILE", "", 1);
  CHECK(all_reduce() == kOwn);
  unsetenv("HETCCL_TUNE_FILE");
  CHECK(all_reduce() == kOwn);
  CHECK(FakeNccl::take_log().empty());
}

TEST_CASE("plug-in: settings that forbid or are wrong leave NCCL's choice") {
  File file;
  file.write({learnt(kAllReduce, kMiB, resources(kRing, kSimple))});
  CHECK(all_reduce() == Chosen{kRing, kSimple, 0});
  setenv("HETCCL_DETERMINISTIC", "1", 1);
  CHECK(all_reduce() == kOwn);
  unsetenv("HETCCL_DETERMINISTIC");
  setenv("HETCCL_TUNE_BITS", "keep", 1);
  CHECK(all_reduce() == kOwn);
  unsetenv("HETCCL_TUNE_BITS");
  FakeNccl::take_log();
  setenv("HETCCL_TUNE_BUDGET", "much", 1);
  CHECK(all_reduce() == kOwn);
  unsetenv("HETCCL_TUNE_BUDGET");
  CHECK(warned("HETCCL_TUNE_BUDGET=much"));
  setenv("HETCCL_TUNE_BUDGET", "\x1b[2J", 1);
  CHECK(all_reduce() == kOwn);
  unsetenv("HETCCL_TUNE_BUDGET");
  CHECK(warned("HETCCL_TUNE_BUDGET=\\x1b[2J"));
  setenv("HETCCL_TUNER_ID", "no id", 1);
  CHECK(all_reduce() == kOwn);
  unsetenv("HETCCL_TUNER_ID");
  CHECK(warned("256 hexadecimal digits"));
}

TEST_CASE(
    "plug-in: entries of hetccl's own communicators are none of NCCL's; garbage harms nothing") {
  File file;
  tune::Learnt other = learnt(kAllReduce, kMiB, resources(kRing, kSimple));
  other.setting = {"ring", {.slice_bytes = 4096, .depth = 3}, other.setting.resources};
  file.write({other});
  CHECK(all_reduce() == kOwn);
  tune::Knowledge all;
  all.add(fingerprint_of(kRanks, kNodes), {learnt(kAllReduce, kMiB, resources(kRing, kSimple))}, 1);
  const std::string whole = all.dump();
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {
    std::string text = whole;
    for (size_t n = 1 + random() % 3; n > 0; --n)
      text[random() % text.size()] = static_cast<char>(random());
    text.resize(random() % 4 == 0 ? random() % text.size() : text.size());
    file.write(text);
    const Chosen chosen = all_reduce();
    CHECK(usual_table()[static_cast<size_t>(chosen.algorithm)]
                       [static_cast<size_t>(chosen.protocol)] >= 0);
  }
}

TEST_CASE(
    "plug-in: communicators of several threads are served at once, in less than 1 us a call") {
  File file;
  std::vector<tune::Learnt> entries;
  for (int function = kBroadcast; function <= kAllReduce; ++function)
    for (size_t bytes = 1; bytes <= size_t{1} << 34U; bytes *= 2)
      entries.push_back(learnt(function, bytes * kRanks, resources(kRing, kSimple, 2)));
  file.write(entries);
  const FakeNccl nccl(5);
  constexpr int kCalls = 200'000;
  double ns[2] = {};
  size_t wrong[2] = {};
  std::vector<fake::Thread> threads;
  for (size_t t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      void* context = nccl.init(t, kRanks, kNodes);
      const auto from = std::chrono::steady_clock::now();
      for (int i = 0; i < kCalls; ++i)
        wrong[t] += nccl.call(context, i % 5, kMiB) == Chosen{kRing, kSimple, 2} ? 0 : 1;
      const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - from;
      ns[t] = took.count() / kCalls;
      nccl.destroy(context);
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(wrong[0] + wrong[1] == 0);
  MESSAGE("a call takes ", std::min(ns[0], ns[1]), " ns, the fake's own part included");
  CHECK(std::min(ns[0], ns[1]) < 5'000 * fake::patience());  // of a busy machine
}

}  // namespace
}  // namespace hetccl::nccl_tuner
