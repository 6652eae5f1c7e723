// AMD's own runtime, behind the table of hetccl/runtime.h: every entry resolves, without a GPU.
#include <doctest/doctest.h>

#include <cstdio>

#include "runtime/load.h"

using namespace hetccl;

TEST_CASE("every entry of the table is in AMD's runtime") {
  const auto loaded = runtime::load({"hip", {}, {}}, {});
  REQUIRE_MESSAGE(loaded.ok(), loaded.status().message());
  const hetcclRuntime& table = *loaded.value();
  const std::string& missing = runtime::find(&table)->missing;
  std::printf("amd: %s, version %s: lacks %s\n", table.path, table.version_text,
              missing.empty() ? "nothing" : missing.c_str());
  CHECK(missing.empty());
}

TEST_CASE("without a GPU the table says so") {
  const auto loaded = runtime::load({"hip", {}, {}}, {});
  REQUIRE_MESSAGE(loaded.ok(), loaded.status().message());
  const hetcclRuntime& table = *loaded.value();
  int devices = 0;
  const hetcclRuntimeError_t error = table.get_device_count(&devices);
  if (error == hetcclRuntimeSuccess) return;  // there is one
  CHECK(error == hetcclRuntimeErrorNoDevice);
  CHECK(std::string(table.get_error_string(error)).find("no ROCm-capable device") !=
        std::string::npos);
  void* memory = nullptr;
  CHECK(table.malloc(&memory, 1) != hetcclRuntimeSuccess);
  CHECK(std::string(runtime::load({}, {}).status().message()).find("HIP: ") != std::string::npos);
}
