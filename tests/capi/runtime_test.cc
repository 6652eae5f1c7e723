// The table of runtimes through the C API, over the fake runtimes of tests/fake.
#include "hetccl/runtime.h"

#include <doctest/doctest.h>

#include <set>
#include <string>

namespace {

const hetcclRuntime* load(const char* platform, const std::string& file) {
  const hetcclRuntime* table = nullptr;
  const std::string path = HETCCL_FAKE_RUNTIMES "/" + file;
  const hetcclResult_t result = hetcclRuntimeLoad(platform, path.c_str(), &table);
  REQUIRE_MESSAGE(result == hetcclSuccess, hetcclGetLastError(nullptr));
  return table;
}

const hetcclRuntime* load_cuda() {
  return load("cuda", "libcudart.so.13");
}
const hetcclRuntime* load_hip() {
  return load("hip", "libamdhip64.so.6");
}

TEST_CASE("a table says what it has, entry by entry") {
  const hetcclRuntime* cuda = load_cuda();
  std::set<std::string> names;
  std::string missing;
  for (int i = 0; i < 66; ++i) {
    hetcclRuntimeEntry_t entry{};
    REQUIRE(hetcclRuntimeGetEntry(cuda, i, &entry) == hetcclSuccess);
    names.insert(entry.name);
    if (entry.available == 0) missing += (missing.empty() ? "" : ", ") + std::string(entry.name);
    CHECK((entry.symbol != nullptr || i < 4 || entry.available == 0));
  }
  CHECK(names.size() == 66);
  const char* listed = nullptr;
  CHECK(hetcclRuntimeGetMissing(cuda, &listed) == hetcclSuccess);
  CHECK(missing == listed);
  CHECK(missing.starts_with("ext_malloc_with_flags, "));
  CHECK((cuda->ext_malloc_with_flags == nullptr));
  hetcclRuntimeEntry_t entry{};
  CHECK(hetcclRuntimeGetEntry(load_hip(), 16 - 1, &entry) == hetcclSuccess);
  CHECK(std::string(entry.symbol) == "hipFreeHost");  // number 16 of figure 10
}

TEST_CASE("the entries that hetccl answers") {
  const hetcclRuntime* hip = load_hip();
  const hetcclRuntime* table = nullptr;
  unsigned platforms = 0;
  CHECK(hip->get_available_platforms(&platforms) == hetcclSuccess);
  CHECK((platforms & 1U << hetcclRuntimePlatformHip) != 0);
  CHECK(hip->set_platform("hip", &table) == hetcclSuccess);
  CHECK(table == hip);
  CHECK(hip->set_platform_auto(&table) == hetcclSuccess);
  CHECK(table != nullptr);
  hetcclRuntimePlatform_t platform{};
  CHECK(hip->get_platform(&platform) == hetcclSuccess);
  CHECK(platform == hetcclRuntimePlatformHip);
}

TEST_CASE("wrong arguments are errors with a text") {
  const hetcclRuntime* table = load_cuda();
  hetcclRuntimeEntry_t entry{};
  const char* text = nullptr;
  CHECK(hetcclRuntimeLoad("cuda", nullptr, nullptr) == hetcclInvalidArgument);
  CHECK(std::string(hetcclGetLastError(nullptr)) == "table is null");
  CHECK(hetcclRuntimeGetAvailable(nullptr) == hetcclInvalidArgument);
  CHECK(hetcclRuntimeGetEntry(table, 66, &entry) == hetcclInvalidArgument);
  CHECK(std::string(hetcclGetLastError(nullptr)) == "there is no entry 66: they are 0 to 65");
  CHECK(hetcclRuntimeGetEntry(table, -1, &entry) == hetcclInvalidArgument);
  CHECK(hetcclRuntimeGetEntry(table, 0, nullptr) == hetcclInvalidArgument);
  CHECK(hetcclRuntimeGetEntry(nullptr, 0, &entry) == hetcclInvalidArgument);
  CHECK(hetcclRuntimeGetMissing(table, nullptr) == hetcclInvalidArgument);
  const hetcclRuntime strange{};
  CHECK(hetcclRuntimeGetMissing(&strange, &text) == hetcclInvalidArgument);
  CHECK(hetcclRuntimeLoad("rocm", nullptr, &table) == hetcclInvalidArgument);
  CHECK(table == nullptr);
}

}  // namespace
