// The C API answers any argument with a code and a text: it never crashes and never throws.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fake/patience.h"
#include "fake/thread.h"
#include "hetccl/hetccl.h"

namespace {

const hetcclResult_t kResults[] = {hetcclSuccess,       hetcclUnsupported,     hetcclSystemError,
                                   hetcclInternalError, hetcclInvalidArgument, hetcclInvalidUsage,
                                   hetcclRemoteError,   hetcclInProgress,      hetcclTimeout,
                                   hetcclAborted};

hetcclComm_t lone_rank() {
  hetcclUniqueId id;
  REQUIRE(hetcclGetUniqueId(&id) == hetcclSuccess);
  hetcclComm_t comm = nullptr;
  const auto result = hetcclCommInitRank(&comm, 1, id, 0);
  CAPTURE(std::string(hetcclGetLastError(nullptr)));
  REQUIRE(result == hetcclSuccess);
  return comm;
}

// Answer of every function that takes a communicator to `comm`; "" if all agree on `expected`.
std::string all_calls(hetcclComm_t comm, hetcclResult_t expected) {
  float data[4] = {};
  int number = 0;
  const char* text = nullptr;
  hetcclResult_t result{};
  hetcclComm_t part = nullptr;
  hetcclCommStats_t stats{};
  stats.size = sizeof stats;
  hetcclRedOp_t op{};
  void* handle = nullptr;
  const std::pair<const char*, hetcclResult_t> results[] = {
      {"AllReduce", hetcclAllReduce(data, data, 4, hetcclFloat32, hetcclSum, comm, nullptr)},
      {"ReduceScatter",
       hetcclReduceScatter(data, data, 1, hetcclFloat32, hetcclSum, comm, nullptr)},
      {"AllGather", hetcclAllGather(data, data, 1, hetcclFloat32, comm, nullptr)},
      {"Broadcast", hetcclBroadcast(data, data, 4, hetcclFloat32, 0, comm, nullptr)},
      {"Bcast", hetcclBcast(data, 4, hetcclFloat32, 0, comm, nullptr)},
      {"Reduce", hetcclReduce(data, data, 4, hetcclFloat32, hetcclSum, 0, comm, nullptr)},
      {"Barrier", hetcclBarrier(comm, nullptr)},
      {"RedOpCreatePreMulSum",
       hetcclRedOpCreatePreMulSum(&op, data, hetcclFloat32, hetcclScalarHostImmediate, comm)},
      {"RedOpDestroy", hetcclRedOpDestroy(hetcclNumOps, comm)},
      {"Count", hetcclCommCount(comm, &number)},
      {"UserRank", hetcclCommUserRank(comm, &number)},
      {"SetTimeout", hetcclCommSetTimeout(comm, 1000)},
      {"GetAsyncError", hetcclCommGetAsyncError(comm, &result)},
      {"GetStats", hetcclCommGetStats(comm, &stats)},
      {"IsCapturing", hetcclCommIsCapturing(comm, nullptr, &number)},
      {"GetTopology", hetcclCommGetTopology(comm, &text)},
      {"Split", hetcclCommSplit(comm, 0, 0, &part, nullptr)},
      {"Shrink", hetcclCommShrink(comm, &number, 1, &part, nullptr, HETCCL_SHRINK_DEFAULT)},
      {"CuDevice", hetcclCommCuDevice(comm, &number)},
      {"Register", hetcclCommRegister(comm, data, sizeof data, &handle)},
      {"Deregister", hetcclCommDeregister(comm, data)},
      {"Finalize", hetcclCommFinalize(comm)},
      {"Dump", hetcclCommDump(comm, &text)},
      {"Destroy", hetcclCommDestroy(comm)},
      {"Abort", hetcclCommAbort(comm)}};
  std::string wrong;
  for (const auto& [name, got] : results) {
    if (got != expected) wrong += std::string(" ") + name + "=" + hetcclGetErrorString(got);
  }
  return wrong;
}

}  // namespace

TEST_CASE("every result has a text of its own, an unknown one too") {
  std::vector<std::string> texts;
  for (const auto result : kResults) texts.emplace_back(hetcclGetErrorString(result));
  texts.emplace_back(hetcclGetErrorString(static_cast<hetcclResult_t>(15)));
  for (size_t a = 0; a < texts.size(); ++a) {
    CHECK(!texts[a].empty());
    for (size_t b = 0; b < a; ++b) CHECK(texts[a] != texts[b]);
  }
}

TEST_CASE("null arguments are named") {
  const auto refused = [](hetcclResult_t result, const char* argument) {
    CAPTURE(argument);
    CHECK(result == hetcclInvalidArgument);
    CHECK(std::string(hetcclGetLastError(nullptr)).find(argument) != std::string::npos);
  };
  refused(hetcclGetVersion(nullptr), "version");
  refused(hetcclGetUniqueId(nullptr), "id");
  refused(hetcclCommInitRank(nullptr, 1, {}, 0), "comm");
  refused(hetcclHostStreamCreate(nullptr), "stream");
  refused(hetcclHostStreamDestroy(nullptr), "stream");
  uint64_t ticket = 0;
  refused(hetcclHostStreamRecord(nullptr, &ticket), "stream");
  refused(hetcclHostStreamQuery(nullptr, 0), "stream");
  refused(hetcclHostStreamWait(nullptr, 0, 0), "stream");
  refused(hetcclGetInfo(nullptr), "json");
  refused(hetcclBarrier(nullptr, nullptr), "comm");

  hetcclComm_t comm = lone_rank();
  refused(hetcclCommCount(comm, nullptr), "count");
  refused(hetcclCommUserRank(comm, nullptr), "rank");
  refused(hetcclCommCuDevice(comm, nullptr), "device");
  refused(hetcclCommGetAsyncError(comm, nullptr), "async_error");
  refused(hetcclCommGetStats(comm, nullptr), "stats");
  refused(hetcclCommIsCapturing(comm, nullptr, nullptr), "capturing");
  refused(hetcclCommGetTopology(comm, nullptr), "json");
  refused(hetcclCommSplit(comm, 0, 0, nullptr, nullptr), "newcomm");
  refused(hetcclCommDump(comm, nullptr), "json");
  float data[4] = {};
  refused(hetcclAllReduce(nullptr, data, 4, hetcclFloat32, hetcclSum, comm, nullptr), "sendbuff");
  refused(hetcclAllReduce(data, nullptr, 4, hetcclFloat32, hetcclSum, comm, nullptr), "recvbuff");
  refused(hetcclReduce(data, nullptr, 4, hetcclFloat32, hetcclSum, 0, comm, nullptr), "recvbuff");
  hetcclRedOp_t op{};
  const auto create = [&](hetcclRedOp_t* out, void* scalar, int residence) {
    return hetcclRedOpCreatePreMulSum(out, scalar, hetcclFloat32,
                                      static_cast<hetcclScalarResidence_t>(residence), comm);
  };
  refused(create(nullptr, data, hetcclScalarDevice), "op");
  refused(create(&op, nullptr, hetcclScalarDevice), "scalar");
  refused(create(&op, data, 2), "residence");
  CHECK(hetcclCommDestroy(comm) == hetcclSuccess);
}

TEST_CASE("a handle that is none, or no more, is an invalid argument to every call") {
  CHECK(all_calls(nullptr, hetcclInvalidArgument) == "");
  for (const uintptr_t garbage : {uintptr_t{0xdeadbeef}, uintptr_t{8}, UINTPTR_MAX}) {
    CHECK(all_calls(reinterpret_cast<hetcclComm_t>(garbage), hetcclInvalidArgument) == "");
  }
  hetcclComm_t destroyed = lone_rank();
  CHECK(hetcclCommDestroy(destroyed) == hetcclSuccess);
  CHECK(all_calls(destroyed, hetcclInvalidArgument) == "");
  CHECK(std::string(hetcclGetLastError(destroyed)).find("destroyed") != std::string::npos);
  hetcclComm_t aborted = lone_rank();
  CHECK(hetcclCommAbort(aborted) == hetcclSuccess);
  CHECK(all_calls(aborted, hetcclInvalidArgument) == "");
}

TEST_CASE("a config that no initializer made is refused") {
  hetcclUniqueId id;
  REQUIRE(hetcclGetUniqueId(&id) == hetcclSuccess);
  const auto init = [&](const hetcclConfig_t& config) {
    hetcclComm_t comm = reinterpret_cast<hetcclComm_t>(8);
    const auto result = hetcclCommInitRankConfig(&comm, 1, id, 0, &config);
    if (result == hetcclSuccess) {
      CHECK(hetcclCommDestroy(comm) == hetcclSuccess);
    } else {
      CHECK(comm == nullptr);
      CHECK(!std::string(hetcclGetLastError(nullptr)).empty());
    }
    return result;
  };
  hetcclConfig_t config = HETCCL_CONFIG_INITIALIZER;
  const auto refused = [&](hetcclResult_t expected) {
    CHECK(init(config) == expected);
    config = HETCCL_CONFIG_INITIALIZER;
  };
  config.magic = 0;
  refused(hetcclInvalidArgument);
  config.size = offsetof(hetcclConfig_t, blocking) - 1;
  refused(hetcclInvalidArgument);
  config.timeout_ms = -1;
  refused(hetcclInvalidArgument);
  config.init_timeout_ms = -1;
  refused(hetcclInvalidArgument);
  config.init_limit_ms = -1;
  refused(hetcclInvalidArgument);
  config.blocking = 2;
  refused(hetcclInvalidArgument);
  config.wire = "int8:33";
  refused(hetcclInvalidArgument);
  config.wire_gather = "int";
  refused(hetcclInvalidArgument);
  for (const int inside : {-2, 2}) {
    config.wire_inside = inside;
    refused(hetcclInvalidArgument);
    CHECK(std::string(hetcclGetLastError(nullptr)).find("config.wire_inside") == 0);
  }
  config.wire = "", config.wire_gather = "e5m2:512", config.wire_inside = 1;
  config.timeout_ms = INT64_MAX;
  config.cluster = "\xff\xfe is no UTF-8";
  refused(hetcclSuccess);
}

TEST_CASE("a config of the first release lacks the later fields, which are not read") {
  hetcclUniqueId id;
  REQUIRE(hetcclGetUniqueId(&id) == hetcclSuccess);
  hetcclConfig_t config = HETCCL_CONFIG_INITIALIZER;
  config.size = offsetof(hetcclConfig_t, blocking);
  config.blocking = -7;
  config.init_timeout_ms = -7;
  hetcclComm_t comm = nullptr;
  CHECK(hetcclCommInitRankConfig(&comm, 1, id, 0, &config) == hetcclSuccess);
  CHECK(hetcclCommDestroy(comm) == hetcclSuccess);
}

TEST_CASE("a device that is not there is an error on every rank, at once") {
  hetcclUniqueId id;
  REQUIRE(hetcclGetUniqueId(&id) == hetcclSuccess);
  hetcclConfig_t config = HETCCL_CONFIG_INITIALIZER;
  std::string others;
  hetccl::fake::Thread other([&] {
    hetcclComm_t comm = nullptr;
    if (hetcclCommInitRank(&comm, 2, id, 1) != hetcclSuccess) others = hetcclGetLastError(nullptr);
  });
  config.device = "abacus";
  hetcclComm_t comm = nullptr;
  CHECK(hetcclCommInitRankConfig(&comm, 2, id, 0, &config) == hetcclUnsupported);
  other.join();
  CHECK(others.find("rank 0: device \"abacus\"") != std::string::npos);
}

TEST_CASE("ranks and ids out of range are refused") {
  hetcclUniqueId id;
  REQUIRE(hetcclGetUniqueId(&id) == hetcclSuccess);
  hetcclComm_t comm = nullptr;
  CHECK(hetcclCommInitRank(&comm, 0, id, 0) == hetcclInvalidArgument);
  CHECK(hetcclCommInitRank(&comm, -1, id, 0) == hetcclInvalidArgument);
  CHECK(hetcclCommInitRank(&comm, 2, id, 2) == hetcclInvalidArgument);
  CHECK(hetcclCommInitRank(&comm, 2, id, -1) == hetcclInvalidArgument);
  CHECK(hetcclCommInitRank(&comm, 1, {}, 0) != hetcclSuccess);
  CHECK(comm == nullptr);
}

TEST_CASE("types and operators that are none are refused, whatever their low bits") {
  hetcclComm_t comm = lone_rank();
  float data[4] = {};
  for (const int wrong : {-1, 12, 63, 66, 255, 256 + 7, (1 << 16) + 7}) {
    CAPTURE(wrong);
    CHECK(hetcclAllReduce(data, data, 4, static_cast<hetcclDataType_t>(wrong), hetcclSum, comm,
                          nullptr) == hetcclInvalidArgument);
  }
  for (const int wrong : {-1, 5, 256, 257}) {
    CAPTURE(wrong);
    CHECK(hetcclAllReduce(data, data, 4, hetcclFloat32, static_cast<hetcclRedOp_t>(wrong), comm,
                          nullptr) == hetcclInvalidArgument);
  }
  CHECK(hetcclBroadcast(data, data, 4, hetcclFloat32, 1, comm, nullptr) == hetcclInvalidArgument);
  CHECK(hetcclReduce(data, data, 4, hetcclFloat32, hetcclSum, -1, comm, nullptr) ==
        hetcclInvalidArgument);
  CHECK(hetcclAllReduce(data, data, SIZE_MAX, hetcclFloat32, hetcclSum, comm, nullptr) ==
        hetcclInvalidArgument);
  CHECK(hetcclAllReduce(data, data, 4, hetcclFloat32, hetcclSum, comm, nullptr) == hetcclSuccess);
  CHECK(hetcclCommSetTimeout(comm, 0) == hetcclInvalidArgument);
  CHECK(hetcclCommSetTimeout(comm, INT64_MAX) == hetcclSuccess);
  CHECK(hetcclBarrier(comm, nullptr) == hetcclSuccess);
  hetcclCommStats_t stats{};
  CHECK(hetcclCommGetStats(comm, &stats) == hetcclInvalidArgument);
  struct Newer {  // a caller that knows more members than the library
    hetcclCommStats_t known;
    uint64_t more;
  } newer{{}, 77};
  newer.known.size = sizeof newer;
  CHECK(hetcclCommGetStats(comm, &newer.known) == hetcclSuccess);
  CHECK(newer.known.size == sizeof newer);
  CHECK(newer.known.operations > 0);
  CHECK(newer.more == 77);
  CHECK(hetcclCommDestroy(comm) == hetcclSuccess);
}

TEST_CASE("a stream that is none, or no more, is an invalid argument") {
  hetcclComm_t comm = lone_rank();
  hetcclStream_t stream = nullptr;
  REQUIRE(hetcclHostStreamCreate(&stream) == hetcclSuccess);
  REQUIRE(hetcclHostStreamDestroy(stream) == hetcclSuccess);
  float data[4] = {};
  uint64_t ticket = 0;
  for (auto* wrong : {stream, static_cast<hetcclStream_t>(data)}) {
    CHECK(hetcclHostStreamRecord(wrong, &ticket) == hetcclInvalidArgument);
    CHECK(hetcclHostStreamQuery(wrong, 0) == hetcclInvalidArgument);
    CHECK(hetcclHostStreamWait(wrong, 0, 0) == hetcclInvalidArgument);
    CHECK(hetcclHostStreamDestroy(wrong) == hetcclInvalidArgument);
  }
  // Ranks that passed a good stream wait in the collective: this one has failed them.
  CHECK(hetcclBarrier(comm, data) == hetcclInvalidArgument);
  CHECK(hetcclBarrier(comm, nullptr) == hetcclInvalidArgument);
  CHECK(std::string(hetcclGetLastError(nullptr)).find("rank 0: launching barrier: stream") !=
        std::string::npos);
  CHECK(hetcclCommDestroy(comm) == hetcclInvalidArgument);
}

TEST_CASE("a forked child is told so by every call, and its parent goes on") {
  hetcclComm_t comm = lone_rank();
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(hetccl::fake::kAlarm);  // ends a child that hangs
    hetcclUniqueId id;
    void* memory = nullptr;
    hetcclComm_t all = nullptr;
    const bool told = all_calls(comm, hetcclInvalidUsage).empty() &&
                      hetcclGetUniqueId(&id) == hetcclInvalidUsage &&
                      hetcclMemAlloc(&memory, 1) == hetcclInvalidUsage &&
                      hetcclCommInitAll(&all, 1, nullptr) == hetcclInvalidUsage &&
                      std::string(hetcclGetLastError(nullptr)).find("fork") != std::string::npos;
    _exit(told ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(hetcclBarrier(comm, nullptr) == hetcclSuccess);
  CHECK(hetcclCommDestroy(comm) == hetcclSuccess);
}

TEST_CASE("what the machine offers is JSON") {
  const char* json = nullptr;
  REQUIRE(hetcclGetInfo(&json) == hetcclSuccess);
  CHECK(std::string(json).find("\"settings\"") != std::string::npos);
}
