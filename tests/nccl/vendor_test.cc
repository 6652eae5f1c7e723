// Ranks of one vendor: its library's own communicators. The library is a fake (vendor_so.cc).
#include <dlfcn.h>

#include "nccl/ranks.h"

using namespace hetccl::nccl_test;

extern "C" {
ncclTeam_t ncclTeamWorld(ncclComm_t comm);
int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank);
ncclResult_t ncclPutSignal(const void* local, size_t count, ncclDataType_t type, int peer,
                           ncclWindow_t window, size_t offset, int signal, int context,
                           unsigned flags, ncclComm_t comm, ncclStream_t stream);
ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags);
const char* hetccl_nccl_vendor_path();
}

namespace {

template <typename Function>
Function* of_fake(const char* name) {
  static void* const library = dlopen(hetccl_nccl_vendor_path(), RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(library != nullptr);
  return reinterpret_cast<Function*>(dlsym(library, name));
}
int calls(const char* name) {
  return of_fake<int(const char*)>("fake_calls")(name);
}

}  // namespace

TEST_CASE("the vendor makes the communicator and gets its calls") {
  const auto comms = join(2);
  on_all_ranks(2, [&](int rank) {
    ncclComm_t comm = comms[static_cast<size_t>(rank)];
    int count = 0, own = -1;
    CHECK(ncclCommCount(comm, &count) == ncclSuccess);
    CHECK(ncclCommUserRank(comm, &own) == ncclSuccess);
    CHECK(count == 2);
    CHECK(own == rank);
  });
  float number = 1;
  const int broadcasts = calls("ncclBroadcast");
  CHECK(ncclBcast(&number, 1, kFloat, 0, comms[0], nullptr) == ncclSuccess);
  CHECK(calls("ncclBroadcast") == broadcasts + 1);
  CHECK(ncclPutSignal(&number, 3, kFloat, 1, nullptr, 40, 0, 0, 0, comms[1], nullptr) ==
        ncclSuccess);
  const ncclTeam_t team = ncclTeamWorld(comms[1]);
  CHECK(team.nRanks == 2);
  CHECK(team.rank == 1);
  CHECK(team.stride == 1);
  CHECK(ncclTeamRankToWorld(comms[0], {4, 3, 1}, 2) == 432);
  CHECK(ncclCommRevoke(comms[0], 0) == ncclInvalidUsage);
  CHECK(contains(ncclGetLastError(nullptr), "ncclCommRevoke is not in"));

  ncclComm_t part = nullptr;
  CHECK(ncclCommSplit(comms[0], 0, 0, &part, nullptr) == ncclSuccess);
  CHECK(std::string(of_fake<const char*(ncclComm_t)>("fake_name")(part)) == " split");
  CHECK(ncclAllReduce(&number, &number, 1, kFloat, kSum, part, nullptr) == ncclSuccess);
  CHECK(ncclCommDestroy(part) == ncclSuccess);
  CHECK(ncclAllReduce(&number, &number, 1, 99, kSum, comms[0], nullptr) == ncclInvalidArgument);
  CHECK(std::string(ncclGetLastError(comms[0])) == "the fake's last error");
  CHECK(std::string(ncclGetErrorString(ncclSuccess)) == "a fake's error");
  int version = 0;
  CHECK(ncclGetVersion(&version) == ncclSuccess);
  CHECK(version == 22'809);
  destroy(comms);
}

TEST_CASE("its group begins with its first call") {
  const auto comms = join(1);
  const int started = calls("ncclGroupStart"), ended = calls("ncclGroupEnd");
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclSuccess);
  CHECK(calls("ncclGroupStart") == started);
  float number = 1;
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(ncclGroupStart() == ncclSuccess);
  for (int i = 0; i < 2; ++i)
    CHECK(ncclAllReduce(&number, &number, 1, kFloat, kSum, comms[0], nullptr) == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclSuccess);
  CHECK(calls("ncclGroupEnd") == ended);
  CHECK(ncclGroupEnd() == ncclSuccess);
  CHECK(calls("ncclGroupStart") == started + 1);
  CHECK(calls("ncclGroupEnd") == ended + 1);
  destroy(comms);
}

TEST_CASE("it gets the caller's config, whatever has become of that") {
  const ncclUniqueId id = new_id();
  std::vector<ncclComm_t> comms(2);
  for (int rank = 0; rank < 2; ++rank) {
    Config options = config(0);
    std::string name = "not for long";
    options.known.commName = name.c_str();
    CHECK(ncclCommInitRankConfig(&comms[static_cast<size_t>(rank)], 2, id, rank, &options.known) ==
          ncclInProgress);
    name = "gone";
  }
  for (ncclComm_t comm : comms) CHECK(settled(comm) == ncclSuccess);
  ncclComm_t part = nullptr;
  CHECK(ncclCommSplit(comms[1], 0, 0, &part, nullptr) == ncclSuccess);
  CHECK(std::string(of_fake<const char*(ncclComm_t)>("fake_name")(part)) == "not for long split");
  CHECK(ncclCommDestroy(part) == ncclSuccess);
  destroy(comms);
}

TEST_CASE("an id and a communicator of its own pass through") {
  ncclUniqueId id{};
  REQUIRE(of_fake<ncclResult_t(ncclUniqueId*)>("ncclGetUniqueId")(&id) == ncclSuccess);
  ncclComm_t comm = nullptr;
  CHECK(ncclCommInitRank(&comm, 1, id, 0) == ncclSuccess);
  float number = 1;
  CHECK(ncclAllReduce(&number, &number, 1, kFloat, kSum, comm, nullptr) == ncclSuccess);
  CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

TEST_CASE("what it calls by public names stays its own") {
  std::vector<ncclComm_t> comms(2);
  CHECK(ncclCommInitAll(comms.data(), 2, nullptr) == ncclSuccess);
  int rank = -1;
  CHECK(ncclCommUserRank(comms[1], &rank) == ncclSuccess);
  CHECK(rank == 1);
  CHECK(ncclGroupEnd() == ncclInvalidUsage);  // its group was not counted as the program's
  destroy(comms);
}

TEST_CASE("an abort leaves behind an init in which the vendor blocks") {
  constexpr int kRanks = 7;  // which take the fake half a second
  const ncclUniqueId id = new_id();
  const int begun = calls("ncclCommInitRankConfig"), aborts = calls("ncclCommAbort");
  std::vector<ncclComm_t> comms(kRanks);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&comms, id, rank] {
      CHECK(ncclCommInitRank(&comms[static_cast<size_t>(rank)], kRanks, id, rank) != ncclSuccess);
    });
  }
  while (calls("ncclCommInitRankConfig") < begun + kRanks)
    std::this_thread::sleep_for(milliseconds(1));
  for (ncclComm_t& comm : comms)
    CHECK(ncclCommAbort(__atomic_load_n(&comm, __ATOMIC_ACQUIRE)) == ncclSuccess);
  for (std::thread& rank : ranks) rank.join();
  CHECK(comms == std::vector<ncclComm_t>(kRanks));
  const auto end = std::chrono::steady_clock::now() + hetccl::fake::kHang;
  while (calls("ncclCommAbort") < aborts + kRanks && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(milliseconds(1));
  CHECK(calls("ncclCommAbort") == aborts + kRanks);
}

TEST_CASE("what the vendor fails to make is aborted once") {
  constexpr int kRanks = 5;  // which the fake fails to make
  const ncclUniqueId id = new_id();
  const int aborts = calls("ncclCommAbort");
  std::vector<ncclComm_t> comms(kRanks);
  on_all_ranks(kRanks, [&](int rank) {
    CHECK(ncclCommInitRank(&comms[static_cast<size_t>(rank)], kRanks, id, rank) ==
          ncclInternalError);
  });
  CHECK(comms == std::vector<ncclComm_t>(kRanks));
  CHECK(calls("ncclCommAbort") == aborts + kRanks);
}

TEST_CASE("the environment decides whether calls block, as in NCCL") {
  setenv("NCCL_COMM_BLOCKING", "0", 1);
  const ncclUniqueId id = new_id();
  std::vector<ncclComm_t> comms(2);
  for (int rank = 0; rank < 2; ++rank)
    CHECK(ncclCommInitRank(&comms[static_cast<size_t>(rank)], 2, id, rank) == ncclInProgress);
  for (ncclComm_t comm : comms) CHECK(settled(comm) == ncclSuccess);
  unsetenv("NCCL_COMM_BLOCKING");
  destroy(comms);
}

TEST_CASE("aborts of one group go to the vendor as one") {
  const auto comms = join(2);
  const int started = calls("ncclGroupStart"), ended = calls("ncclGroupEnd");
  CHECK(ncclGroupStart() == ncclSuccess);
  for (ncclComm_t comm : comms) CHECK(ncclCommAbort(comm) == ncclSuccess);
  CHECK(calls("ncclGroupEnd") == ended);
  CHECK(ncclGroupEnd() == ncclSuccess);
  CHECK(calls("ncclGroupStart") == started + 1);
}
