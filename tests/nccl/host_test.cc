// Ranks of the host: a mixed communicator, with no vendor's library.
#include <atomic>
#include <numeric>

#include "nccl/ranks.h"

using namespace hetccl::nccl_test;

namespace {

std::vector<float> numbers(size_t count, int rank) {
  std::vector<float> made(count);
  std::iota(made.begin(), made.end(), static_cast<float>(100 * rank));
  return made;
}

}  // namespace

TEST_CASE("every collective gives what NCCL's gives") {
  constexpr int kRanks = 3;
  constexpr size_t kCount = 5;
  const auto comms = join(kRanks);
  on_all_ranks(kRanks, [&](int rank) {
    ncclComm_t comm = comms[static_cast<size_t>(rank)];
    int count = 0, own = -1;
    CHECK(ncclCommCount(comm, &count) == ncclSuccess);
    CHECK(ncclCommUserRank(comm, &own) == ncclSuccess);
    CHECK(count == kRanks);
    CHECK(own == rank);
    const auto mine = numbers(kCount, rank), all = numbers(kCount * kRanks, rank);
    std::vector<float> one(kCount), many(kCount * kRanks);

    CHECK(ncclAllReduce(mine.data(), one.data(), kCount, kFloat, kSum, comm, nullptr) == 0);
    CHECK(one[1] == 303);
    CHECK(ncclReduce(mine.data(), one.data(), kCount, kFloat, kAvg, 1, comm, nullptr) == 0);
    CHECK(one[1] == (rank == 1 ? 101 : 303));
    CHECK(ncclReduceScatter(all.data(), one.data(), kCount, kFloat, kSum, comm, nullptr) == 0);
    CHECK(one[0] == 300 + 3 * kCount * static_cast<size_t>(rank));
    CHECK(ncclBroadcast(mine.data(), one.data(), kCount, kFloat, 2, comm, nullptr) == 0);
    CHECK(one[4] == 204);
    one = mine;
    CHECK(ncclBcast(one.data(), kCount, kFloat, 1, comm, nullptr) == 0);
    CHECK(one[4] == 104);
    CHECK(ncclAllGather(mine.data(), many.data(), kCount, kFloat, comm, nullptr) == 0);
    CHECK(many[2 * kCount + 1] == 201);
    CHECK(ncclGather(mine.data(), many.data(), kCount, kFloat, 0, comm, nullptr) == 0);
    CHECK(ncclScatter(all.data(), one.data(), kCount, kFloat, 0, comm, nullptr) == 0);
    CHECK(one[0] == kCount * static_cast<size_t>(rank));
    for (const auto all_to_all : {ncclAlltoAll, ncclAllToAll}) {
      std::fill(many.begin(), many.end(), -1.F);
      CHECK(all_to_all(all.data(), many.data(), kCount, kFloat, comm, nullptr) == 0);
      CHECK(many[2 * kCount] == 200 + kCount * static_cast<size_t>(rank));
    }
    const std::vector<size_t> counts(kRanks, 1), displs{0, 5, 10};
    CHECK(ncclAllToAllv(all.data(), counts.data(), displs.data(), many.data(), counts.data(),
                        displs.data(), kFloat, comm, nullptr) == 0);
    CHECK(many[5] == 100 + kCount * static_cast<size_t>(rank));

    ncclRedOp_t scaled = 0;
    float factor = 0.5F;
    CHECK(ncclRedOpCreatePreMulSum(&scaled, &factor, kFloat, 1, comm) == 0);
    CHECK(ncclAllReduce(mine.data(), one.data(), kCount, kFloat, scaled, comm, nullptr) == 0);
    CHECK(one[1] == 151.5F);
    CHECK(ncclRedOpDestroy(scaled, comm) == 0);
  });
  destroy(comms);
}

TEST_CASE("groups nest, and hold messages and several communicators of one thread") {
  const auto first = join(2), second = join(2);
  on_all_ranks(2, [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    std::vector<float> out(4, static_cast<float>(rank)), in(4, -1), sum = out;
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(ncclSend(out.data(), out.size(), kFloat, 1 - rank, first[r], nullptr) == ncclSuccess);
    CHECK(ncclGroupEnd() == ncclSuccess);
    CHECK(ncclRecv(in.data(), in.size(), kFloat, 1 - rank, first[r], nullptr) == ncclSuccess);
    CHECK(add_up(sum, second[r]) == ncclSuccess);
    CHECK(ncclGroupEnd() == ncclSuccess);
    CHECK(in[3] == static_cast<float>(1 - rank));
    CHECK(sum[3] == 1);
  });
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
  CHECK(contains(ncclGetLastError(nullptr), "without ncclGroupStart"));
  destroy(first);
  destroy(second);
}

TEST_CASE("one thread makes several ranks in a group, and drives them") {
  constexpr int kRanks = 3;
  const ncclUniqueId id = new_id();
  std::vector<ncclComm_t> comms(kRanks);
  CHECK(ncclGroupStart() == ncclSuccess);
  for (int rank = 0; rank < kRanks; ++rank)
    CHECK(ncclCommInitRank(&comms[static_cast<size_t>(rank)], kRanks, id, rank) == ncclSuccess);
  ncclResult_t state = ncclSuccess;
  CHECK(ncclCommGetAsyncError(comms[0], &state) == ncclSuccess);
  CHECK(state == ncclInProgress);
  CHECK(ncclGroupEnd() == ncclSuccess);

  std::vector<ncclComm_t> parts(kRanks);
  CHECK(ncclGroupStart() == ncclSuccess);
  std::vector<ncclComm_t> again(kRanks);
  for (size_t i = 0; i < kRanks; ++i) {
    CHECK(ncclCommSplit(comms[i], i == 1 ? -1 : 7, -static_cast<int>(i), &parts[i], nullptr) == 0);
    CHECK(ncclCommSplit(comms[i], 0, 0, &again[i], nullptr) == 0);
  }
  CHECK(ncclGroupEnd() == ncclSuccess);
  destroy(again);
  CHECK(parts[1] == nullptr);
  int rank = -1;
  CHECK(ncclCommUserRank(parts[2], &rank) == ncclSuccess);
  CHECK(rank == 0);  // the smallest key
  destroy({parts[0], parts[2]});
  destroy(comms);

  CHECK(ncclCommInitAll(comms.data(), kRanks, nullptr) == ncclSuccess);
  destroy(comms);
}

TEST_CASE("splits of splits, and shrinks without those who are left out") {
  const auto comms = join(4);
  std::vector<ncclComm_t> halves(4), pairs(4), rest(4);
  on_all_ranks(4, [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    CHECK(ncclCommSplit(comms[r], rank == 3 ? 1 : 0, 0, &halves[r], nullptr) == ncclSuccess);
    if (rank < 3) CHECK(ncclCommSplit(halves[r], rank / 2, 0, &pairs[r], nullptr) == ncclSuccess);
    int left_out[] = {1};
    if (rank != 1)
      CHECK(ncclCommShrink(comms[r], left_out, 1, &rest[r], nullptr, 0) == ncclSuccess);
  });
  on_all_ranks(4, [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    std::vector<float> data(3, 1);
    CHECK(add_up(data, halves[r]) == ncclSuccess);
    CHECK(data[0] == (rank == 3 ? 1 : 3));
    if (rank != 1) {
      data = {1};
      CHECK(add_up(data, rest[r]) == ncclSuccess);
      CHECK(data[0] == 3);
      int place = -1;
      CHECK(ncclCommUserRank(rest[r], &place) == ncclSuccess);
      CHECK(place == (rank == 0 ? 0 : rank - 1));
      CHECK(ncclCommDestroy(rest[r]) == ncclSuccess);
    } else {
      int left_out[] = {1};
      CHECK(ncclCommShrink(comms[r], left_out, 1, &rest[r], nullptr, 0) == ncclInvalidArgument);
      CHECK(contains(ncclGetLastError(nullptr), "excludes itself"));
    }
    CHECK(ncclCommShrink(comms[r], nullptr, 0, &rest[r], nullptr, 1) == ncclInvalidUsage);
    if (rank < 3) CHECK(ncclCommDestroy(pairs[r]) == ncclSuccess);
    CHECK(ncclCommDestroy(halves[r]) == ncclSuccess);
  });
  destroy(comms);
}

TEST_CASE("splits that are not waited for keep their order, and shrinks their ranks") {
  const auto comms = join(3);
  std::vector<std::vector<ncclComm_t>> all(3, std::vector<ncclComm_t>(6));
  on_all_ranks(3, [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    Config options = config(0);
    for (size_t i = 0; i < 6; ++i) {
      const int color = i % 2 == 0 ? 0 : rank / 2;
      CHECK(ncclCommSplit(comms[r], color, 0, &all[r][i], &options.known) == ncclInProgress);
    }
    for (size_t i = 0; i < 6; ++i) {
      CHECK(settled(all[r][i]) == ncclSuccess);
      int count = 0;
      CHECK(ncclCommCount(all[r][i], &count) == ncclSuccess);
      CHECK(count == (i % 2 == 0 ? 3 : rank == 2 ? 1 : 2));
      CHECK(ncclCommDestroy(all[r][i]) == ncclSuccess);
    }
    for (int left_out : {1, 2, 1}) {
      if (rank == left_out) continue;
      ncclComm_t rest = nullptr;
      CHECK(ncclCommShrink(comms[r], &left_out, 1, &rest, nullptr, 0) == ncclSuccess);
      CHECK(ncclCommDestroy(rest) == ncclSuccess);
    }
    CHECK(ncclCommShrink(comms[r], nullptr, 0, &all[r][0], nullptr, 0) == ncclInvalidArgument);
  });
  destroy(comms);
}

TEST_CASE(
    "what ends a communicator in a group comes behind its calls; a refused call ends it badly") {
  const auto comms = join(2);
  on_all_ranks(2, [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    std::vector<float> data(4, 1);
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(add_up(data, comms[r]) == ncclSuccess);
    CHECK(ncclCommDestroy(comms[r]) == ncclSuccess);
    CHECK(add_up(data, nullptr) == ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
    CHECK(data[3] == 2);
    CHECK(ncclCommDestroy(comms[r]) == ncclInvalidArgument);
  });
}

TEST_CASE("memory is allocated and registered") {
  const auto comms = join(1);
  void* memory = nullptr;
  void* place = nullptr;
  CHECK(ncclMemAlloc(&memory, 4096) == ncclSuccess);
  CHECK(ncclCommRegister(comms[0], memory, 4096, &place) == ncclSuccess);
  CHECK(ncclCommDeregister(comms[0], place) == ncclSuccess);
  CHECK(ncclMemFree(memory) == ncclSuccess);
  CHECK(ncclMemFree(memory) == ncclInvalidArgument);
  destroy(comms);
}

TEST_CASE("what is not blocking is in progress at once, and ready later") {
  const ncclUniqueId id = new_id();
  Config options = config(0);
  std::vector<ncclComm_t> comms(2);
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(ncclCommInitRankConfig(&comms[static_cast<size_t>(rank)], 2, id, rank, &options.known) ==
          ncclInProgress);
  }
  for (ncclComm_t comm : comms) CHECK(settled(comm) == ncclSuccess);
  on_all_ranks(2, [&](int rank) {
    std::vector<float> data(100'000, 1);
    CHECK(add_up(data, comms[static_cast<size_t>(rank)]) == ncclSuccess);
    CHECK(data[99'999] == 2);
  });
  for (ncclComm_t comm : comms) {
    const ncclResult_t begun = ncclCommFinalize(comm);
    CHECK((begun == ncclInProgress || begun == ncclSuccess));
  }
  for (ncclComm_t comm : comms) CHECK(settled(comm) == ncclSuccess);
  destroy(comms);
}

TEST_CASE("an abort ends an init and a collective that wait, soon") {
  using Clock = std::chrono::steady_clock;
  const ncclUniqueId id = new_id();
  ncclComm_t lonely = nullptr;
  Config options = config(0);
  REQUIRE(ncclCommInitRankConfig(&lonely, 2, id, 0, &options.known) == ncclInProgress);
  const auto begin = Clock::now();
  CHECK(ncclCommAbort(lonely) == ncclSuccess);
  CHECK(ncclCommAbort(lonely) == ncclInvalidArgument);  // no longer a communicator

  std::atomic<ncclComm_t> blocked{nullptr};
  ncclComm_t place = nullptr;
  std::thread waits([&] { CHECK(ncclCommInitRank(&place, 2, new_id(), 0) != ncclSuccess); });
  while (__atomic_load_n(&place, __ATOMIC_ACQUIRE) == nullptr)
    std::this_thread::sleep_for(milliseconds(1));
  CHECK(ncclCommAbort(__atomic_load_n(&place, __ATOMIC_ACQUIRE)) == ncclSuccess);
  waits.join();
  CHECK(place == nullptr);

  const auto comms = join(2);
  std::thread reduces([&] {
    std::vector<float> data(8, 1);
    CHECK(add_up(data, comms[0]) != ncclSuccess);
  });
  std::this_thread::sleep_for(milliseconds(50));
  CHECK(ncclCommAbort(comms[0]) == ncclSuccess);
  reduces.join();
  CHECK(ncclCommAbort(comms[1]) == ncclSuccess);
  CHECK(Clock::now() - begin < hetccl::fake::kHang / 2);
}

TEST_CASE("bad input is an error with a text") {
  ncclComm_t comm = nullptr;
  const ncclUniqueId none{};
  CHECK(ncclCommInitRank(&comm, 1, none, 0) == ncclInvalidArgument);
  CHECK(contains(ncclGetLastError(nullptr), "was not made by ncclGetUniqueId"));
  const ncclUniqueId id = new_id();
  CHECK(ncclCommInitRank(&comm, 2, id, 2) == ncclInvalidArgument);
  CHECK(contains(ncclGetLastError(nullptr), "2 is no rank of 2"));
  CHECK(ncclCommInitRank(nullptr, 1, id, 0) == ncclInvalidArgument);
  Config wrong = config(1);
  wrong.known.magic = 1;
  CHECK(ncclCommInitRankConfig(&comm, 1, id, 0, &wrong.known) == ncclInvalidArgument);
  CHECK(comm == nullptr);

  CHECK(ncclCommInitRank(&comm, 1, id, 0) == ncclSuccess);
  float number = 3;
  CHECK(ncclAllReduce(&number, &number, 1, 99, kSum, comm, nullptr) == ncclInvalidArgument);
  CHECK(std::string(ncclGetLastError(comm)) != "");
  int device = 0;
  CHECK(ncclCommCuDevice(comm, &device) == ncclSuccess);
  CHECK(device == -1);  // the rank is the host's
  CHECK(ncclCommDestroy(comm) == ncclSuccess);
  CHECK(ncclAllReduce(&number, &number, 1, kFloat, kSum, comm, nullptr) == ncclInvalidArgument);
  CHECK(contains(ncclGetLastError(nullptr), "was destroyed"));
  CHECK(ncclCommDestroy(comm) == ncclInvalidArgument);
  CHECK(ncclCommDestroy(nullptr) == ncclSuccess);
  CHECK(ncclAllReduce(&number, &number, 1, kFloat, kSum, nullptr, nullptr) == ncclInvalidArgument);
  CHECK(std::string(ncclGetErrorString(ncclInvalidUsage)) == "invalid usage");
  int version = 0;
  CHECK(ncclGetVersion(&version) == ncclSuccess);
  CHECK(version >= 23'203);
}

extern "C" ncclResult_t ncclCommWindowRegister(ncclComm_t, void*, size_t, ncclWindow_t*, int);
extern "C" ncclResult_t ncclParamGetI32(ncclParamHandle_t, int32_t*);
extern "C" ncclTeam_t ncclTeamWorld(ncclComm_t comm);
extern "C" int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank);

TEST_CASE("what only a vendor can do says so") {
  const auto comms = join(1);
  ncclWindow_t window = nullptr;
  CHECK(ncclCommWindowRegister(comms[0], &window, 8, &window, 0) == ncclInvalidUsage);
  CHECK(contains(ncclGetLastError(nullptr), "ncclCommWindowRegister: only a vendor's library"));
  int32_t value = 0;
  CHECK(ncclParamGetI32(nullptr, &value) == ncclInvalidUsage);
  CHECK(contains(ncclGetLastError(nullptr), "no NCCL"));
  CHECK(ncclTeamWorld(comms[0]).nRanks == 0);
  CHECK(ncclTeamRankToWorld(comms[0], {1, 0, 1}, 0) == -1);
  destroy(comms);
}
