// Memory of the C API's own, registrations, broadcasts in place, and what a group is expected to
// take.
#include <cstring>

#include "capi/threads.h"
#include "fake/thread.h"

using namespace hetccl::capi_test;

namespace {

void refused(hetcclResult_t result, const char* text, hetcclResult_t expected) {
  CHECK(result == expected);
  CAPTURE(std::string(hetcclGetLastError(nullptr)));
  CHECK(std::string(hetcclGetLastError(nullptr)).find(text) != std::string::npos);
}

void refused(hetcclResult_t result, const char* text) {
  refused(result, text, hetcclInvalidArgument);
}

void destroy(const std::vector<hetcclComm_t>& comms) {
  on_all_ranks(static_cast<int>(comms.size()), [&](int rank) {
    CHECK(hetcclCommDestroy(comms[static_cast<size_t>(rank)]) == hetcclSuccess);
  });
}

}  // namespace

TEST_CASE("a process without a GPU gets memory of the host, which calls take") {
  const auto comms = join(2, true);
  on_all_ranks(2, [&](int rank) {
    constexpr size_t kCount = 30'000;
    void* memory = nullptr;
    REQUIRE(hetcclMemAlloc(&memory, kCount * sizeof(float)) == hetcclSuccess);
    auto* data = static_cast<float*>(memory);
    std::fill_n(data, kCount, static_cast<float>(rank + 1));
    CHECK(hetcclAllReduce(data, data, kCount, hetcclFloat32, hetcclSum,
                          comms[static_cast<size_t>(rank)], nullptr) == hetcclSuccess);
    for (size_t i = 0; i < kCount; ++i) REQUIRE(data[i] == 3);
    CHECK(hetcclMemFree(memory) == hetcclSuccess);
    refused(hetcclMemFree(memory), "none of hetcclMemAlloc's, or was freed");
  });
  destroy(comms);
}

TEST_CASE("memory that cannot be given, or was not, is an error") {
  void* memory = &memory;
  refused(hetcclMemAlloc(&memory, 0), "size is 0");
  CHECK(memory == nullptr);
  refused(hetcclMemAlloc(nullptr, 1), "ptr is null");
  refused(hetcclMemAlloc(&memory, SIZE_MAX / 2), "bytes of memory left", hetcclSystemError);
  CHECK(memory == nullptr);
  refused(hetcclMemFree(nullptr), "ptr is null");
  int own = 0;
  refused(hetcclMemFree(&own), "none of hetcclMemAlloc's");
}

TEST_CASE("on the host nothing is registered, and calls take the memory all the same") {
  const auto comms = join(2, false);
  on_all_ranks(2, [&](int rank) {
    hetcclComm_t comm = comms[static_cast<size_t>(rank)];
    std::vector<float> data(100, 1);
    void* handle = &data;
    CHECK(hetcclCommRegister(comm, data.data(), 400, &handle) == hetcclSuccess);
    CHECK(handle == nullptr);
    CHECK(sum(data, comm, nullptr) == hetcclSuccess);
    CHECK(hetcclCommDeregister(comm, handle) == hetcclSuccess);
    refused(hetcclCommRegister(comm, nullptr, 400, &handle), "buff is null");
    refused(hetcclCommRegister(comm, data.data(), 0, &handle), "size is 0");
    refused(hetcclCommRegister(comm, data.data(), 400, nullptr), "handle is null");
    refused(hetcclCommDeregister(comm, data.data()), "handle is none of hetcclCommRegister's");
  });
  destroy(comms);
}

TEST_CASE("a broadcast in place") {
  const auto comms = join(3, true);
  on_all_ranks(3, [&](int rank) {
    std::vector<float> data(1000, static_cast<float>(rank));
    CHECK(hetcclBcast(data.data(), data.size(), hetcclFloat32, 1, comms[static_cast<size_t>(rank)],
                      nullptr) == hetcclSuccess);
    CHECK(all_are(data, 1));
  });
  refused(hetcclBcast(nullptr, 1, hetcclFloat32, 0, comms[0], nullptr), "is null");
  destroy(comms);
}

TEST_CASE("a group that is simulated ends without its calls, and longer calls take longer") {
  const auto comms = join(2, true);
  std::vector<float> data(1'000'000, 1);
  const auto simulate = [&](std::vector<size_t> counts) {
    CHECK(hetcclGroupStart() == hetcclSuccess);
    for (const size_t count : counts)
      CHECK(hetcclAllReduce(data.data(), data.data(), count, hetcclFloat32, hetcclSum, comms[0],
                            nullptr) == hetcclSuccess);
    hetcclSimInfo_t info = HETCCL_SIM_INFO_INITIALIZER;
    CHECK(hetcclGroupSimulateEnd(&info) == hetcclSuccess);
    return info.estimated_us;
  };
  CHECK(simulate({}) == 0);
  const double small = simulate({10}), large = simulate({1'000'000});
  CHECK(small > 0);
  CHECK(large > small);
  CHECK(simulate({10, 1'000'000}) == doctest::Approx(small + large));
  CHECK(all_are(data, 1));

  hetcclSimInfo_t info = HETCCL_SIM_INFO_INITIALIZER;
  refused(hetcclGroupSimulateEnd(&info), "without hetcclGroupStart", hetcclInvalidUsage);
  CHECK(hetcclGroupStart() == hetcclSuccess);
  CHECK(hetcclGroupStart() == hetcclSuccess);
  CHECK(hetcclSend(data.data(), 1, hetcclFloat32, 1, comms[0], nullptr) == hetcclSuccess);
  CHECK(hetcclGroupSimulateEnd(&info) == hetcclSuccess);  // the inner one
  CHECK(info.estimated_us == -1);
  refused(hetcclGroupSimulateEnd(&info), "sends or receives", hetcclUnsupported);
  CHECK(hetcclGroupStart() == hetcclSuccess);
  refused(hetcclGroupSimulateEnd(nullptr), "info is null");
  CHECK(hetcclGroupStart() == hetcclSuccess);
  info.size = 1;
  refused(hetcclGroupSimulateEnd(&info), "info->size");
  on_all_ranks(2, [&](int rank) {  // nothing of it is left
    std::vector<float> own(10, 1);
    CHECK(sum(own, comms[static_cast<size_t>(rank)], nullptr) == hetcclSuccess);
    CHECK(all_are(own, 2));
  });
  destroy(comms);
  const auto alone = join(2, false);
  CHECK(hetcclGroupStart() == hetcclSuccess);
  CHECK(sum(data, alone[0], nullptr) == hetcclSuccess);
  info = HETCCL_SIM_INFO_INITIALIZER;
  refused(hetcclGroupSimulateEnd(&info), "all ranks are in one cluster", hetcclUnsupported);
  destroy(alone);
}

TEST_CASE("a communicator's name stands in its dump") {
  hetcclUniqueId id;
  REQUIRE(hetcclGetUniqueId(&id) == hetcclSuccess);
  hetcclConfig_t config = HETCCL_CONFIG_INITIALIZER;
  const std::string name = "pipeline\n" + std::string(100, 'x');
  config.name = name.c_str();
  hetcclComm_t comm = nullptr;
  REQUIRE(hetcclCommInitRankConfig(&comm, 1, id, 0, &config) == hetcclSuccess);
  const char* json = nullptr;
  CHECK(hetcclCommDump(comm, &json) == hetcclSuccess);
  CAPTURE(json);
  CHECK(std::string(json).find(R"("name": "pipeline\\n)" + std::string(54, 'x') + '"') !=
        std::string::npos);
  CHECK(hetcclCommDestroy(comm) == hetcclSuccess);
}

TEST_CASE("thread blocks are for libraries of GPUs") {
  hetcclUniqueId id;
  REQUIRE(hetcclGetUniqueId(&id) == hetcclSuccess);
  hetcclConfig_t config = HETCCL_CONFIG_INITIALIZER;
  hetcclComm_t comm = nullptr;
  config.min_ctas = 4, config.max_ctas = 2;
  refused(hetcclCommInitRankConfig(&comm, 1, id, 0, &config), "config.min_ctas is 4");
  config.min_ctas = -1;
  refused(hetcclCommInitRankConfig(&comm, 1, id, 0, &config), "config.min_ctas is -1");
  config.min_ctas = 0;
  refused(hetcclCommInitRankConfig(&comm, 1, id, 0, &config), "leave min_ctas and max_ctas 0",
          hetcclUnsupported);
}
