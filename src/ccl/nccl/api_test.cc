// Loads libraries that claim to be NCCL.
#include "ccl/nccl/api.h"

#include <dlfcn.h>
#include <doctest/doctest.h>

#include "fake/fake_nccl.h"
#include "fake/patience.h"
#include "fake/run_alone.h"

namespace hetccl::ccl {
namespace {

using nccl::load_nccl;

std::string fake_library(const std::string& name) {
  return HETCCL_FAKE_NCCL_FOLDER "/libfake_nccl_" + name + ".so";
}

TEST_CASE("a library that is absent, and one that is no NCCL") {
  CHECK(load_nccl("/nonexistent/libnccl.so.2").status().code() == ErrorCode::Unsupported);
  const Status status = load_nccl("libc.so.6").status();
  CHECK(status.code() == ErrorCode::Unsupported);
  CHECK(status.message().find("ncclAllReduce") != std::string::npos);
}

TEST_CASE("the oldest NCCL is enough, an older one is refused with both versions") {
  auto oldest = load_nccl(fake_library("oldest"));
  REQUIRE_MESSAGE(oldest.ok(), oldest.status().message());
  CHECK((*oldest)->version == "2.18.0");
  CHECK((*oldest)->path == fake_library("oldest"));
  CHECK(nccl::has_operator(**oldest, RedOp::PreMulSum));
  const Status old = load_nccl(fake_library("old")).status();
  CHECK(old.code() == ErrorCode::Unsupported);
  CHECK(old.message() == fake_library("old") + " is NCCL 2.17.1; hetccl needs 2.18.0 or newer");
}

TEST_CASE("RCCL has the same calls, and may tell no version") {
  auto unknown = nccl::load_rccl(fake_library("unknown"), "");
  REQUIRE_MESSAGE(unknown.ok(), unknown.status().message());
  CHECK((*unknown)->name == "rccl");
  CHECK((*unknown)->version == "unknown");
  CHECK((*unknown)->version_code == nccl::kOldestVersion);
  CHECK((*nccl::load_rccl(fake_library("oldest"), ""))->version == "2.18.0");
  CHECK(nccl::load_rccl(fake_library("old"), "").status().message() ==
        fake_library("old") + " is RCCL 2.17.1; hetccl needs 2.18.0 or newer");
  CHECK(nccl::load_rccl("libc.so.6", "").status().message().find("it is no RCCL, or too old") !=
        std::string::npos);
  CHECK(load_nccl(fake_library("unknown")).status().message().find("is NCCL 0.0.0") !=
        std::string::npos);
}

// The fake RCCL is linked with the second of these two copies.
const std::string kHip = HETCCL_FAKE_NCCL_FOLDER "/hip_a/libamdhip64.so";
const std::string kHipOfRccl = HETCCL_FAKE_NCCL_FOLDER "/hip_b/libamdhip64.so";

std::string hip_that_rccl_calls() {
  void* const rccl = dlopen(fake_library("rccl").c_str(), RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(rccl != nullptr);
  return reinterpret_cast<const char* (*)()>(dlsym(rccl, "fake_rccl_hip"))();
}

TEST_CASE("alone: RCCL's HIP was loaded first" * doctest::skip()) {
  REQUIRE(dlopen(fake_library("rccl").c_str(), RTLD_NOW) != nullptr);
  REQUIRE(dlopen(kHip.c_str(), RTLD_NOW) != nullptr);
  CHECK(hip_that_rccl_calls() == "b");
  for (int i = 0; i < 2; ++i) {
    const Status status = nccl::load_rccl(fake_library("rccl"), kHip).status();
    CHECK(status.code() == ErrorCode::Unsupported);
    CHECK(status.message() == fake_library("rccl") + " has loaded the HIP runtime " + kHipOfRccl +
                                  " beside the process's own " + kHip +
                                  ": use the RCCL that belongs to that, by HETCCL_RCCL_LIBRARY");
  }
  CHECK(nccl::load_rccl(fake_library("rccl"), kHipOfRccl).ok());
  CHECK(nccl::load_rccl(fake_library("rccl"), "").ok());
}

TEST_CASE("alone: RCCL finds the HIP that the program has loaded globally" * doctest::skip()) {
  REQUIRE(dlopen(kHipOfRccl.c_str(), RTLD_NOW) != nullptr);
  REQUIRE(dlopen(kHip.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr);
  const auto rccl = nccl::load_rccl(fake_library("rccl"), kHip);
  CHECK_MESSAGE(rccl.ok(), rccl.status().message());
  CHECK(hip_that_rccl_calls() == "a");
  CHECK_FALSE(nccl::load_rccl(fake_library("rccl"), kHipOfRccl).ok());
}

TEST_CASE("RCCL has to call the HIP runtime that hetccl uses") {
  for (const char* test_case : {"alone: RCCL's HIP was loaded first",
                                "alone: RCCL finds the HIP that the program has loaded globally"}) {
    CAPTURE(test_case);
    CHECK(fake::run_alone(test_case, HETCCL_FAKE_NCCL_FOLDER) == 0);
  }
}

TEST_CASE("RCCL joins one architecture, and is asked for no 8-bit floats") {
  fake::FakeNccl nccl;
  const auto api = nccl.api();
  api->version_code = 22'803;
  for (const char* gpu : {"gfx1100", "gfx1201", "gfx942:sramecc+:xnack-"}) {
    const auto workspace = std::make_shared<fake::FakeWorkspace>();
    workspace->gpu = gpu;
    const auto library = make_nccl_library(api, workspace, kRcclReach);
    CHECK_FALSE(library->reach().architectures);
    CHECK(library->reach().hosts);
    CHECK_FALSE(library->supports(DataType::Float8E4m3, RedOp::Sum));
    CHECK(library->supports(DataType::BFloat16, RedOp::Sum));
  }
  const auto hopper = make_nccl_library(api, std::make_shared<fake::FakeWorkspace>(), kNcclReach);
  CHECK(hopper->reach().architectures);
  CHECK(hopper->supports(DataType::Float8E4m3, RedOp::Sum));
}

TEST_CASE("a library that lacks a call which everything needs is refused by the call's name") {
  const Status status = load_nccl(fake_library("without_recv")).status();
  CHECK(status.code() == ErrorCode::Unsupported);
  CHECK(status.message() ==
        fake_library("without_recv") + " lacks ncclRecv: it is no NCCL, or too old");
}

TEST_CASE("a library that lacks an operator's calls does all but that operator") {
  auto loaded = load_nccl(fake_library("without_optional"));
  REQUIRE_MESSAGE(loaded.ok(), loaded.status().message());
  fake::FakeNccl nccl;
  const auto api = nccl.api();
  api->path = (*loaded)->path;
  api->last_error = (*loaded)->last_error;
  api->create_premul_sum = (*loaded)->create_premul_sum;
  api->destroy_op = (*loaded)->destroy_op;
  const auto library = make_nccl_library(api, std::make_shared<fake::FakeWorkspace>(), kNcclReach);
  CHECK(library->supports(DataType::Float32, RedOp::Avg));
  CHECK_FALSE(library->supports(DataType::Float32, RedOp::PreMulSum));
  auto made = library->init(library->unique_id(2, 5000).value(), 2, 0, nullptr, fake::kHangMs);
  REQUIRE_MESSAGE(made.ok(), made.status().message());
  float word = 0;
  const auto all_reduce = [&](RedOp op) {
    return (*made)->all_reduce(&word, &word, 1, DataType::Float32, {op}, nullptr);
  };
  CHECK(all_reduce(RedOp::Sum).ok());
  const Status status = all_reduce(RedOp::PreMulSum);
  CHECK(status.code() == ErrorCode::Unsupported);
  CHECK(status.message().find("it lacks ncclRedOpCreatePreMulSum") != std::string::npos);
  nccl.async_outcome = nccl::kRemoteError;
  CHECK((*made)->async_error().message().ends_with("a collective: an error"));
}

}  // namespace
}  // namespace hetccl::ccl
