// RCCL's calls over a stub of NCCL.
#include <doctest/doctest.h>
#include <rccl/rccl.h>

#include <functional>
#include <string>

#include "hip/exports.h"
#include "support.h"

extern "C" unsigned long forward_rccl_rejections();

namespace {

ncclComm_t comm() {
  return reinterpret_cast<ncclComm_t>(0x55);
}

void check_rejected(const std::function<ncclResult_t()>& call) {
  (void)test::nccl().take();
  const unsigned long before = forward_rccl_rejections();
  CHECK(call() == ncclInvalidArgument);
  CHECK(forward_rccl_rejections() == before + 1);
  CHECK(test::nccl().take().empty());
}

ncclResult_t all_reduce(int type, int op) {
  return ncclAllReduce(nullptr, nullptr, 3, static_cast<ncclDataType_t>(type),
                       static_cast<ncclRedOp_t>(op), comm(), nullptr);
}

}  // namespace

TEST_CASE("communicators pass through") {
  ncclUniqueId id;
  ncclComm_t created = nullptr;
  CHECK(ncclGetUniqueId(&id) == ncclSuccess);
  CHECK(ncclCommInitRank(&created, 2, id, 1) == ncclSuccess);
  CHECK(test::nccl().last() == "ncclCommInitRank 2 7 1");
  CHECK(created == comm());
  int count = 0;
  int rank = 0;
  CHECK(ncclCommCount(created, &count) == ncclSuccess);
  CHECK(ncclCommUserRank(created, &rank) == ncclSuccess);
  CHECK(count == 2);
  CHECK(rank == 1);
  int version = 0;
  CHECK(ncclGetVersion(&version) == ncclSuccess);
  CHECK(version == NCCL_VERSION_CODE);
  ncclResult_t error = ncclSuccess;
  test::nccl().set("asynchronous error", 6);
  CHECK(ncclCommGetAsyncError(created, &error) == ncclSuccess);
  CHECK(error == ncclRemoteError);
  test::nccl().set("ncclCommAbort", 99);
  CHECK(ncclCommAbort(created) == ncclInternalError);
}

#ifndef FORWARD_NO_SPLIT_REGISTER
TEST_CASE("configuration, split and registration pass through") {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t created = nullptr;
  CHECK(ncclCommInitRankConfig(&created, 2, id, 0, &config) == ncclSuccess);
  CHECK(ncclCommSplit(created, NCCL_SPLIT_NOCOLOR, 4, &created, nullptr) == ncclSuccess);
  CHECK(test::nccl().last() == "ncclCommSplit 85 -1 4");
  config.magic = 1;
  check_rejected([&] { return ncclCommInitRankConfig(&created, 2, id, 0, &config); });
  check_rejected([&] { return ncclCommSplit(created, -2, 0, &created, nullptr); });
  void* handle = nullptr;
  CHECK(ncclCommRegister(comm(), &config, 8, &handle) == ncclSuccess);
  CHECK(ncclCommDeregister(comm(), handle) == ncclSuccess);
}
#endif

TEST_CASE("types and operators arrive with NCCL's numbers") {
  for (int type = ncclInt8; type < ncclNumTypes; ++type) {
    for (int op = ncclSum; op < ncclNumOps; ++op) {
      CHECK(all_reduce(type, op) == ncclSuccess);
      CHECK(test::nccl().last() ==
            "ncclAllReduce 3 " + std::to_string(type) + " " + std::to_string(op) + " 85 0");
    }
  }
}

TEST_CASE("undefined types and operators are rejected") {
  check_rejected([] { return all_reduce(ncclNumTypes, ncclSum); });
  check_rejected([] { return all_reduce(-1, ncclSum); });
  check_rejected([] { return all_reduce(ncclFloat32, ncclNumOps); });
  check_rejected([] { return all_reduce(ncclFloat32, -1); });
  const auto bad = static_cast<ncclDataType_t>(12);
  check_rejected([&] { return ncclBroadcast(nullptr, nullptr, 1, bad, 0, comm(), nullptr); });
  check_rejected([&] { return ncclAllGather(nullptr, nullptr, 1, bad, comm(), nullptr); });
  check_rejected([&] { return ncclSend(nullptr, 1, bad, 0, comm(), nullptr); });
  check_rejected([&] { return ncclRecv(nullptr, 1, bad, 0, comm(), nullptr); });
  check_rejected([&] { return ncclAllToAll(nullptr, nullptr, 1, bad, comm(), nullptr); });
  check_rejected(
      [&] { return ncclReduceScatter(nullptr, nullptr, 1, bad, ncclSum, comm(), nullptr); });
  ncclRedOp_t op = ncclSum;
  check_rejected([&] {
    return ncclRedOpCreatePreMulSum(&op, nullptr, ncclFloat32,
                                    static_cast<ncclScalarResidence_t>(2), comm());
  });
}

TEST_CASE("an operator is valid from its creation to its destruction") {
  ncclRedOp_t op = ncclSum;
  REQUIRE(ncclRedOpCreatePreMulSum(&op, nullptr, ncclFloat32, ncclScalarHostImmediate, comm()) ==
          ncclSuccess);
  CHECK(test::nccl().last() == "ncclRedOpCreatePreMulSum 7 1 85");
  CHECK(all_reduce(ncclFloat32, op) == ncclSuccess);
  CHECK(ncclRedOpDestroy(op, comm()) == ncclSuccess);
  check_rejected([&] { return all_reduce(ncclFloat32, op); });
}

TEST_CASE("all-to-all is a group of sends and receives") {
  (void)test::nccl().take();
  CHECK(ncclAllToAll(reinterpret_cast<void*>(1000), reinterpret_cast<void*>(2000), 3, ncclFloat16,
                     comm(), nullptr) == ncclSuccess);
  CHECK(test::nccl().take() ==
        "ncclCommCount 85\nncclGroupStart\nncclSend 1000 3 6 0 85 0\nncclRecv 2000 3 6 0 85 0\n"
        "ncclSend 1006 3 6 1 85 0\nncclRecv 2006 3 6 1 85 0\nncclGroupEnd\n");
}

TEST_CASE("fnuz fp8" * doctest::skip()) {
  CHECK(all_reduce(ncclFloat8e4m3, ncclSum) == ncclSuccess);
  CHECK(all_reduce(ncclFloat8e5m2, ncclMax) == ncclSuccess);
  CHECK(all_reduce(ncclFloat32, ncclProd) == ncclSuccess);
  (void)test::nccl().take();
  CHECK(all_reduce(ncclFloat8e4m3, ncclProd) == ncclInvalidUsage);
  ncclRedOp_t op = ncclSum;
  CHECK(ncclRedOpCreatePreMulSum(&op, nullptr, ncclFloat8e4m3, ncclScalarDevice, comm()) ==
        ncclSuccess);
  (void)test::nccl().take();
  CHECK(all_reduce(ncclFloat8e4m3, op) == ncclInvalidUsage);
  CHECK(test::nccl().take().empty());
}

TEST_CASE("one queue" * doctest::skip()) {
  hipStream_t stream = nullptr;
  REQUIRE(hipStreamCreate(&stream) == hipSuccess);
  CHECK(ncclBroadcast(nullptr, nullptr, 1, ncclInt8, 0, comm(), stream) == ncclSuccess);
  const auto queue = reinterpret_cast<std::uintptr_t>(forward_cuda_stream(stream));
  CHECK(queue != reinterpret_cast<std::uintptr_t>(stream));
  CHECK(test::nccl().last() == "ncclBroadcast 1 0 0 85 " + std::to_string(queue));
}

TEST_CASE("non-coherent" * doctest::skip()) {
  void* memory = nullptr;
  REQUIRE(hipHostMalloc(&memory, 64, hipHostMallocDefault) == hipSuccess);
  const void* host = forward_host_copy(memory);
  CHECK(host != memory);
  const std::string copy = std::to_string(reinterpret_cast<std::uintptr_t>(host));
  CHECK(ncclSend(memory, 1, ncclInt8, 0, comm(), nullptr) == ncclSuccess);
  CHECK(test::nccl().last() == "ncclSend " + copy + " 1 0 0 85 0");
  CHECK(ncclRecv(memory, 1, ncclInt8, 0, comm(), nullptr) == ncclSuccess);
  CHECK(test::nccl().last() == "ncclRecv " + copy + " 1 0 0 85 0");
  CHECK(ncclAllToAll(memory, memory, 1, ncclInt8, comm(), nullptr) == ncclSuccess);
  const std::string log = test::nccl().take();
  CHECK(log.find("ncclSend " + copy) != std::string::npos);
  CHECK(log.find("ncclRecv " + copy) != std::string::npos);
  CHECK(hipHostFree(memory) == hipSuccess);
}
