// Tests which library is loaded, what it lacks, and the error texts.
#include "runtime/load.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>
#include <tuple>
#include <vector>

#include "fake/patience.h"
#include "fake/run_alone.h"
#include "fake/thread.h"
#include "runtime/testing.h"

namespace hetccl::runtime {
namespace {

constexpr const char* kAmdsAlone =
    "ext_malloc_with_flags, ext_launch_kernel, ext_stream_create_with_cu_mask, "
    "ext_get_link_type_and_hop_count";

bool has(const Status& status, const std::string& text) {
  INFO(status.message());
  return status.message().find(text) != std::string::npos;
}

// Reads a slot by its index from the struct's memory, because the table has no such query.
const void* slot_of(const hetcclRuntime& table, size_t index) {
  const void* slot = nullptr;
  std::memcpy(&slot, reinterpret_cast<const char*>(&table) + kEntries.at(index).slot, sizeof slot);
  return slot;
}

TEST_CASE("66 entries, one for each pointer of the struct, in its order") {
  CHECK(kEntries.size() == 66);
  for (size_t i = 1; i < kEntries.size(); ++i) {
    CHECK(kEntries.at(i).slot == kEntries.at(i - 1).slot + sizeof(void*));
  }
  CHECK(kEntries.back().slot + sizeof(void*) == sizeof(hetcclRuntime));
}

TEST_CASE("a process that is forked while another thread loads can load, too") {
  const Fake fake = load_fake("hip");
  std::atomic<bool> over = false;
  fake::Thread loader([&] {
    while (!over) std::ignore = available("", {});
  });
  for (int i = 0; i < 200; ++i) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child < 0) break;
    if (child == 0) {
      alarm(fake::kAlarm);
      _exit(find(fake.table) == nullptr ? 1 : 0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  over = true;
}

TEST_CASE("what a library lacks is null in its table, and listed") {
  for (const char* platform : {"cuda", "hip"}) {
    const Fake fake = load_fake(platform);
    const Table* table = find(fake.table);
    REQUIRE(table != nullptr);
    CHECK(table->missing == (fake.hip ? "" : kAmdsAlone));
    for (size_t i = kOwnEntries; i < kEntries.size(); ++i) {
      INFO(kEntries.at(i).name);
      CHECK((slot_of(*fake.table, i) != nullptr) == table->available.at(i));
    }
    CHECK(std::string(fake.table->version_text) == (fake.hip ? "6.4" : "13.0"));
    CHECK(fake.table->version == (fake.hip ? 6040 : 13000));
    CHECK(fake.table->size == sizeof(hetcclRuntime));
    CHECK(std::string(fake.table->path).starts_with(HETCCL_FAKE_RUNTIMES));
  }
  CHECK(find(nullptr) == nullptr);
  const hetcclRuntime strange{};
  CHECK(find(&strange) == nullptr);
}

TEST_CASE("a platform's library is loaded once, whoever asks") {
  const Fake fake = load_fake("cuda");
  std::vector<fake::Thread> threads;
  std::vector<const hetcclRuntime*> seen(8);
  for (auto& one : seen) {
    threads.emplace_back([&one] { one = load({"cuda", {}, {}}, {}).value(); });
  }
  for (auto& thread : threads) thread.join();
  for (const auto* one : seen) CHECK(one == fake.table);
  const Status other = load({"cuda", "/other/libcudart.so.12", {}}, {}).status();
  CHECK(other.code() == ErrorCode::InvalidUsage);
  CHECK(has(other, "cannot use /other/libcudart.so.12 beside it"));
}

TEST_CASE("what is no platform, a path without one, and libraries that are none") {
  CHECK(load({"rocm", {}, {}}, {}).status().code() == ErrorCode::InvalidArgument);
  CHECK(has(load({"rocm", {}, {}}, {}).status(), "\"rocm\" is neither cuda nor hip"));
  CHECK(load({{}, "/some/library.so", {}}, {}).status().code() == ErrorCode::InvalidArgument);
  const std::array libc = {std::string("libc.so.6")};
  const Status none = make_table<Cuda>(DynLib::open(libc).value(), {}).status();
  CHECK(none.code() == ErrorCode::Unsupported);
  CHECK(has(none, "it lacks cudaGetDeviceCount"));
}

TEST_CASE("found automatically: what is loaded comes first, and only what shows a device") {
  const Fake cuda = load_fake("cuda"), hip = load_fake("hip");
  const auto give = [](const Fake& fake) {
    return [table = fake.table] { return Result<const hetcclRuntime*>(table); };
  };
  std::array both = {Candidate{"CUDA", false, give(cuda)}, Candidate{"HIP", false, give(hip)}};
  CHECK(choose(both).value() == cuda.table);
  both[1].loaded = true;
  CHECK(choose(both).value() == hip.table);
  hip.answers->devices = 0;
  CHECK(choose(both).value() == cuda.table);
  cuda.answers->error = 35;
  const Status nobody = choose(both).status();
  CHECK(nobody.code() == ErrorCode::Unsupported);
  CHECK(has(nobody, "HIP: "));
  CHECK(has(nobody, "it shows no device; CUDA: "));
  CHECK(has(nobody, "the vendor's text"));
  CHECK(std::string(cuda.call->symbol) == "cudaGetLastError");
  both[0].load = [] { return error(ErrorCode::Unsupported, "no CUDA runtime: nowhere"); };
  CHECK(has(choose(both).status(), "CUDA: no CUDA runtime: nowhere"));
  hip.answers->devices = 1;
  CHECK(choose(both).value() == hip.table);
}

TEST_CASE("the platforms that show a device") {
  const Fake cuda = load_fake("cuda"), hip = load_fake("hip");
  CHECK(available({}, {}) == (1U << hetcclRuntimePlatformCuda | 1U << hetcclRuntimePlatformHip));
  cuda.answers->devices = 0;
  CHECK(available({}, {}) == 1U << hetcclRuntimePlatformHip);
  CHECK(load({}, {}).value() == hip.table);
}

bool is_loaded(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (library != nullptr) dlclose(library);
  return library != nullptr;
}

TEST_CASE("HIP before 6 is refused and stays loaded") {
  const std::array hip_5 = {std::string(HETCCL_FAKE_RUNTIMES "/libamdhip64.so.5")};
  const Functions before = Hip::functions;
  const Status status = make_table<Hip>(DynLib::open(hip_5).value(), {}).status();
  CHECK(status.code() == ErrorCode::Unsupported);
  CHECK(status.message() == hip_5[0] +
                                " is HIP 5.2; hetccl needs HIP 6 or newer: install ROCm 6 or "
                                "newer, or name its libamdhip64 by HETCCL_HIP_LIBRARY");
  CHECK(Hip::functions.entries == before.entries);
  CHECK(is_loaded(hip_5[0]));
}

constexpr const char* kAlone[] = {"alone: a runtime with a thread", "alone: whose choice",
                                  "alone: a soname"};

TEST_CASE(kAlone[0] * doctest::skip()) {
  const std::string hip_7 = HETCCL_FAKE_RUNTIMES "/libamdhip64.so.7";
  for (int i = 0; i < 2; ++i) {
    CHECK((available(hip_7, {}) & 1U << hetcclRuntimePlatformHip) != 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK(is_loaded(hip_7));
  }
  CHECK(std::string(load_fake("hip").table->path)
            .ends_with(".so.6"));  // a library that was only tried is not binding
}

TEST_CASE(kAlone[1] * doctest::skip()) {
  void* const hip = dlopen(HETCCL_FAKE_RUNTIMES "/libamdhip64.so.6", RTLD_NOW);
  REQUIRE(hip != nullptr);
  CHECK(available({}, {}) == (1U << hetcclRuntimePlatformCuda | 1U << hetcclRuntimePlatformHip));
  CHECK(is_loaded(HETCCL_FAKE_RUNTIMES "/libcudart.so.13"));
  CHECK(load({}, {}).value()->platform == hetcclRuntimePlatformHip);
}

TEST_CASE(kAlone[2] * doctest::skip()) {
  const auto first = load({"cuda", "libcudart.so.13", {}}, {});
  REQUIRE_MESSAGE(first.ok(), first.status().message());
  for (const char* name : {"libcudart.so.13", HETCCL_FAKE_RUNTIMES "/libcudart.so.13",
                           HETCCL_FAKE_RUNTIMES "/../runtime/libcudart.so.13"}) {
    const auto again = load({"cuda", name, {}}, {});
    CHECK_MESSAGE(again.ok(), again.status().message());
  }
  CHECK(load({"cuda", "libamdhip64.so.6", {}}, {}).status().code() == ErrorCode::InvalidUsage);
}

TEST_CASE("in processes that have loaded no runtime: threads and choices and sonames") {
  for (const char* test_case : kAlone) {
    CAPTURE(test_case);
    CHECK(fake::run_alone(test_case, HETCCL_FAKE_RUNTIMES) == 0);
  }
}

TEST_CASE("docs/runtime.md lists every entry") {
  std::ifstream file(HETCCL_DOCS "/runtime.md");
  std::stringstream page;
  page << file.rdbuf();
  size_t from = 0;
  for (const Entry& entry : kEntries) {
    const auto code = [](const char* name) {
      return name == nullptr ? std::string("-") : "`" + std::string(name) + "`";
    };
    const std::string row = "| `" + std::string(entry.name) + "` | " + code(entry.cuda) + " | " +
                            code(entry.hip) + " |";
    INFO(row);
    const size_t at = page.str().find(row, from);
    REQUIRE(at != std::string::npos);
    from = at;
  }
}

}  // namespace
}  // namespace hetccl::runtime
