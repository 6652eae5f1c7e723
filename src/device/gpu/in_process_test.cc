// Tests when HIP's runtime is called, because its calls would initialise it.
#include "device/gpu/in_process.h"

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "fake/manual_clock.h"

namespace hetccl::device::gpu {
namespace {

TEST_CASE("HIP is asked for an address once the process has loaded it, and opened its driver") {
  REQUIRE(dlopen(HETCCL_FAKE_RUNTIMES "/libamdhip64.so.6", RTLD_NOW | RTLD_LOCAL) != nullptr);
  const auto absent = hip_in_process("/nowhere/kfd");
  CHECK(!absent->is_possible());
  CHECK(absent->is_loaded());
  CHECK(absent->owner_of(&absent).device == -1);

  std::string kfd = "/tmp/hetccl-kfd-XXXXXX";
  const int file = mkstemp(kfd.data());
  REQUIRE(file >= 0);
  close(file);
  fake::ManualClock clock;
  const auto process = hip_in_process(kfd, clock);
  CHECK(process->is_possible());
  CHECK(process->owner_of(&process).device == -1);
  CHECK(process->current_device() == -1);
  const int used = open(kfd.c_str(), O_RDONLY);
  CHECK(process->owner_of(&process).device == -1);  // the folder of open files is not read again
  clock.time += std::chrono::milliseconds(1);
  CHECK(process->owner_of(&process).device == 5);  // the fake's answer for every address
  CHECK(absent->owner_of(&absent).device == -1);
  close(used);
  CHECK(process->owner_of(&process).device == 5);
  unlink(kfd.c_str());
}

TEST_CASE("a HIP runtime that is too old is not asked") {
  REQUIRE(dlopen(HETCCL_FAKE_RUNTIMES "/libamdhip64.so.5", RTLD_NOW | RTLD_LOCAL) != nullptr);
  const auto process = hip_in_process("");
  const bool newer =
      dlopen(HETCCL_FAKE_RUNTIMES "/libamdhip64.so.6", RTLD_NOW | RTLD_NOLOAD) != nullptr;
  CHECK(process->is_loaded() == newer);
}

TEST_CASE("a HIP runtime that needs no driver is asked once it is loaded") {
  REQUIRE(dlopen(HETCCL_FAKE_RUNTIMES "/libamdhip64.so.6", RTLD_NOW | RTLD_LOCAL) != nullptr);
  const auto process = hip_in_process("");
  CHECK(process->is_possible());
  CHECK(process->owner_of(&process).device == 5);
}

}  // namespace
}  // namespace hetccl::device::gpu
