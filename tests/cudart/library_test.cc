// NVIDIA's own runtime, behind the table of hetccl/runtime.h: every entry resolves, without a GPU.
#include <doctest/doctest.h>

#include <cstdio>
#include <string>

#include "runtime/load.h"

using namespace hetccl;

namespace {

const hetcclRuntime& load_cuda() {
  const auto loaded = runtime::load({"cuda", HETCCL_CUDART, {}}, {});
  REQUIRE_MESSAGE(loaded.ok(), loaded.status().message());
  return *loaded.value();
}

}  // namespace

TEST_CASE("every entry of the table that CUDA has is in NVIDIA's runtime") {
  const hetcclRuntime& table = load_cuda();
  const std::string& missing = runtime::find(&table)->missing;
  std::printf("cudart: wheel %s, version %s: lacks %s\n", HETCCL_CUDART_VERSION, table.version_text,
              missing.c_str());
  const std::string version = table.version_text;  // CUDA 11 does not say it without a driver
  CHECK((version.empty() || std::string(HETCCL_CUDART_VERSION).starts_with(version + ".")));
  for (size_t i = 0; i < runtime::kEntries.size(); ++i) {
    const runtime::Entry& entry = runtime::kEntries.at(i);
    INFO(entry.name);
    CHECK(runtime::find(&table)->available.at(i) ==
          (i < runtime::kOwnEntries || entry.cuda != nullptr));
  }
}

TEST_CASE("without a GPU the table says so, and without a driver, too") {
  const hetcclRuntime& table = load_cuda();
  int devices = 0;
  const hetcclRuntimeError_t error = table.get_device_count(&devices);
  if (error == hetcclRuntimeSuccess) return;  // there is one
  INFO(table.get_error_string(error));
  CHECK((error == hetcclRuntimeErrorNoDevice || error == hetcclRuntimeErrorInsufficientDriver));
  CHECK(table.get_last_error() == error);
  void* memory = nullptr;
  CHECK(table.malloc(&memory, 1) == error);
  hetcclRuntimeDeviceProperties_t properties{};
  CHECK(table.get_device_properties(&properties, 0) == error);
  CHECK(runtime::load({}, {}).status().message().find("CUDA: ") != std::string::npos);
}
