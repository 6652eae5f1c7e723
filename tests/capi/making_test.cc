// Making communicators in one thread that has several ranks, and without some ranks.
#include "capi/threads.h"
#include "fake/thread.h"

using namespace hetccl::capi_test;

namespace {

hetcclUniqueId new_id() {
  hetcclUniqueId id;
  REQUIRE(hetcclGetUniqueId(&id) == hetcclSuccess);
  return id;
}

bool says(const std::string& text, hetcclComm_t comm = nullptr) {
  const std::string last = hetcclGetLastError(comm);
  CAPTURE(last);
  const bool found = last.find(text) != std::string::npos;
  CHECK(found);
  return found;
}

// One thread's sums over the ranks of one communicator, in one group.
bool sum_in_group(const std::vector<hetcclComm_t>& comms) {
  std::vector<std::vector<float>> data(comms.size(), std::vector<float>(1000, 1));
  CHECK(hetcclGroupStart() == hetcclSuccess);
  for (size_t r = 0; r < comms.size(); ++r) CHECK(sum(data[r], comms[r], nullptr) == hetcclSuccess);
  CHECK(hetcclGroupEnd() == hetcclSuccess);
  for (const auto& one : data) {
    if (!all_are(one, static_cast<float>(comms.size()))) return false;
  }
  return true;
}

void destroy_all(const std::vector<hetcclComm_t>& comms) {
  for (auto* comm : comms) CHECK(hetcclCommDestroy(comm) == hetcclSuccess);
}

int rank_of(hetcclComm_t comm) {
  int rank = -1;
  CHECK(hetcclCommUserRank(comm, &rank) == hetcclSuccess);
  return rank;
}

// The ranks of one communicator, made by this thread.
std::vector<hetcclComm_t> join_in_group(int n_ranks, bool two, int blocking = 1) {
  const auto id = new_id();
  std::vector<hetcclComm_t> comms(static_cast<size_t>(n_ranks));
  CHECK(hetcclGroupStart() == hetcclSuccess);
  for (int rank = 0; rank < n_ranks; ++rank) {
    hetcclConfig_t config = config_of(rank, two);
    config.blocking = blocking;
    auto& comm = comms[static_cast<size_t>(rank)];
    CHECK(hetcclCommInitRankConfig(&comm, n_ranks, id, rank, &config) ==
          (blocking == 1 ? hetcclSuccess : hetcclInProgress));
    CHECK(comm != nullptr);
  }
  CHECK(hetcclGroupEnd() == (blocking == 1 ? hetcclSuccess : hetcclInProgress));
  return comms;
}

}  // namespace

TEST_CASE("one thread makes all ranks of a communicator in a group, and calls for them") {
  for (const bool two : {false, true}) {
    CAPTURE(two);
    const auto comms = join_in_group(3, two);
    for (int rank = 0; rank < 3; ++rank) CHECK(rank_of(comms[static_cast<size_t>(rank)]) == rank);
    CHECK(sum_in_group(comms));
    // With a stream for each rank, the thread waits for nothing but the streams.
    std::vector<hetcclStream_t> streams(3);
    std::vector<std::vector<float>> data(3, std::vector<float>(50'000, 1));
    for (auto& stream : streams) REQUIRE(hetcclHostStreamCreate(&stream) == hetcclSuccess);
    CHECK(hetcclGroupStart() == hetcclSuccess);
    for (size_t r = 0; r < 3; ++r) CHECK(sum(data[r], comms[r], streams[r]) == hetcclSuccess);
    CHECK(hetcclGroupEnd() == hetcclSuccess);
    for (size_t r = 0; r < 3; ++r) {
      uint64_t ticket = 0;
      CHECK(hetcclHostStreamRecord(streams[r], &ticket) == hetcclSuccess);
      CHECK(hetcclHostStreamWait(streams[r], ticket, kLimitMs) == hetcclSuccess);
      CHECK(all_are(data[r], 3));
    }
    destroy_all(comms);
    for (auto* stream : streams) CHECK(hetcclHostStreamDestroy(stream) == hetcclSuccess);
  }
}

TEST_CASE("a group of what does not block goes on in the background") {
  const auto comms = join_in_group(2, true, 0);
  for (auto* comm : comms) CHECK(settled(comm) == hetcclSuccess);
  CHECK(sum_in_group(comms));
  destroy_all(comms);
}

TEST_CASE("until a group ends, its communicators are being set up; then its calls come") {
  const auto old = join_in_group(2, true);
  const auto id = new_id();
  std::vector<std::vector<float>> data(2, std::vector<float>(10, 1));
  std::vector<hetcclComm_t> young(2);
  CHECK(hetcclGroupStart() == hetcclSuccess);
  for (size_t r = 0; r < 2; ++r) CHECK(sum(data[r], old[r], nullptr) == hetcclSuccess);
  CHECK(hetcclGroupStart() == hetcclSuccess);
  for (int rank = 0; rank < 2; ++rank)
    CHECK(hetcclCommInitRank(&young[static_cast<size_t>(rank)], 2, id, rank) == hetcclSuccess);
  CHECK(hetcclGroupEnd() == hetcclSuccess);  // the inner one
  int count = 0;
  CHECK(hetcclCommCount(young[0], &count) == hetcclInvalidUsage);
  says("end the group that makes it");
  hetcclResult_t state{};
  CHECK(hetcclCommGetAsyncError(young[1], &state) == hetcclSuccess);
  CHECK(state == hetcclInProgress);
  CHECK(all_are(data[0], 1));
  CHECK(hetcclGroupEnd() == hetcclSuccess);
  for (const auto& one : data) CHECK(all_are(one, 2));
  CHECK(sum_in_group(young));
  destroy_all(young);
  destroy_all(old);
}

TEST_CASE("one thread splits all ranks in a group, twice at the same time") {
  for (const int blocking : {1, 0}) {
    const auto comms = join_in_group(4, true);
    hetcclConfig_t config = HETCCL_CONFIG_INITIALIZER;
    config.blocking = blocking;
    std::vector<hetcclComm_t> halves(4), some(4);
    CHECK(hetcclGroupStart() == hetcclSuccess);
    for (int rank = 0; rank < 4; ++rank) {
      const auto r = static_cast<size_t>(rank);
      const auto answer = blocking == 1 ? hetcclSuccess : hetcclInProgress;
      CHECK(hetcclCommSplit(comms[r], rank / 2, 0, &halves[r], &config) == answer);
      CHECK(hetcclCommSplit(comms[r], rank == 3 ? HETCCL_SPLIT_NOCOLOR : 0, -rank, &some[r],
                            &config) == (rank == 3 ? hetcclSuccess : answer));
    }
    CHECK(hetcclGroupEnd() == (blocking == 1 ? hetcclSuccess : hetcclInProgress));
    CHECK(some[3] == nullptr);
    some.pop_back();
    for (auto* comm : halves) CHECK(settled(comm) == hetcclSuccess);
    for (auto* comm : some) CHECK(settled(comm) == hetcclSuccess);
    for (int rank = 0; rank < 3; ++rank)
      CHECK(rank_of(some[static_cast<size_t>(rank)]) == 2 - rank);
    CHECK(sum_in_group({halves[0], halves[1]}));
    CHECK(sum_in_group({halves[2], halves[3]}));
    CHECK(sum_in_group(some));
    for (const auto& all : {halves, some, comms}) destroy_all(all);
  }
}

TEST_CASE("a group in which one communicator fails makes no calls, and the others are made") {
  const auto good = new_id(), missing = new_id();
  const auto old = join_in_group(2, true);
  hetcclConfig_t config = HETCCL_CONFIG_INITIALIZER;
  config.init_timeout_ms = hetccl::fake::patient_ms(300);
  std::vector<float> data(4, 1);
  std::vector<hetcclComm_t> made(2);
  hetcclComm_t lonely = nullptr;
  CHECK(hetcclGroupStart() == hetcclSuccess);
  CHECK(hetcclCommInitRankConfig(&lonely, 2, missing, 0, &config) == hetcclSuccess);
  for (int rank = 0; rank < 2; ++rank)
    CHECK(hetcclCommInitRank(&made[static_cast<size_t>(rank)], 2, good, rank) == hetcclSuccess);
  CHECK(sum(data, old[0], nullptr) == hetcclSuccess);
  CHECK(hetcclGroupEnd() == hetcclTimeout);
  says("no call of the group was made: ");
  says("rank 1 of 2 never came");
  CHECK(settled(lonely) == hetcclTimeout);
  CHECK(hetcclCommAbort(lonely) == hetcclSuccess);
  CHECK(all_are(data, 1));
  CHECK(sum_in_group(made));
  CHECK(sum_in_group(old));
  destroy_all(made);
  destroy_all(old);
}

TEST_CASE("what was destroyed in its group is not made, and a group that is simulated makes none") {
  hetcclComm_t comm = nullptr;
  CHECK(hetcclGroupStart() == hetcclSuccess);
  CHECK(hetcclCommInitRank(&comm, 1, new_id(), 0) == hetcclSuccess);
  CHECK(hetcclCommAbort(comm) == hetcclSuccess);
  CHECK(hetcclGroupEnd() == hetcclAborted);

  CHECK(hetcclGroupStart() == hetcclSuccess);
  CHECK(hetcclCommInitRank(&comm, 1, new_id(), 0) == hetcclSuccess);
  hetcclSimInfo_t info = HETCCL_SIM_INFO_INITIALIZER;
  CHECK(hetcclGroupSimulateEnd(&info) == hetcclInvalidUsage);
  CHECK(info.estimated_us == -1);
  CHECK(settled(comm) == hetcclInvalidUsage);
  says("hetcclGroupSimulateEnd ended the group", comm);
  CHECK(hetcclCommDestroy(comm) == hetcclInvalidUsage);
}

TEST_CASE("several ids: ranks meet at the first") {
  const std::vector<hetcclUniqueId> ids = {new_id(), new_id()};
  std::vector<hetcclComm_t> comms(3);
  CHECK(hetcclGroupStart() == hetcclSuccess);
  for (int rank = 0; rank < 3; ++rank)
    CHECK(hetcclCommInitRankScalable(&comms[static_cast<size_t>(rank)], 3, rank, 2, ids.data(),
                                     nullptr) == hetcclSuccess);
  CHECK(hetcclGroupEnd() == hetcclSuccess);
  CHECK(sum_in_group(comms));
  destroy_all(comms);
  hetcclComm_t comm = nullptr;
  for (const int wrong : {-1, 0, 4}) {
    CHECK(hetcclCommInitRankScalable(&comm, 3, 0, wrong, ids.data(), nullptr) ==
          hetcclInvalidArgument);
    says("nId is");
  }
  CHECK(hetcclCommInitRankScalable(&comm, 3, 0, 1, nullptr, nullptr) == hetcclInvalidArgument);
  says("commIds is null");
  CHECK(hetcclCommInitRankScalable(nullptr, 1, 0, 1, ids.data(), nullptr) == hetcclInvalidArgument);
}

TEST_CASE("all ranks of a process without a GPU are made at once, on the host") {
  std::vector<hetcclComm_t> comms(3);
  REQUIRE(hetcclCommInitAll(comms.data(), 3, nullptr) == hetcclSuccess);
  for (int rank = 0; rank < 3; ++rank) {
    int gpu = 0;
    CHECK(rank_of(comms[static_cast<size_t>(rank)]) == rank);
    CHECK(hetcclCommCuDevice(comms[static_cast<size_t>(rank)], &gpu) == hetcclSuccess);
    CHECK(gpu == -1);
  }
  CHECK(sum_in_group(comms));
  destroy_all(comms);
  CHECK(hetcclGroupStart() == hetcclSuccess);
  CHECK(hetcclCommInitAll(comms.data(), 2, nullptr) == hetcclSuccess);
  CHECK(hetcclGroupEnd() == hetcclSuccess);
  comms.pop_back();
  CHECK(sum_in_group(comms));
  destroy_all(comms);
  const int devices[] = {0, 1};
  CHECK(hetcclCommInitAll(comms.data(), 2, devices) == hetcclUnsupported);
  says("devlist names GPUs");
  CHECK(comms[0] == nullptr);
  CHECK(hetcclCommInitAll(comms.data(), 0, nullptr) == hetcclInvalidArgument);
  CHECK(hetcclCommInitAll(nullptr, 2, nullptr) == hetcclInvalidArgument);
}

TEST_CASE("a shrink leaves out ranks that take no part, and the old communicator lives on") {
  for (const bool two : {false, true}) {
    CAPTURE(two);
    const auto comms = join(5, two);
    std::vector<hetcclComm_t> four(5), two_of(5);
    const int first[] = {3}, then[] = {0, 2, 3};
    on_all_ranks(5, [&](int rank) {
      const auto r = static_cast<size_t>(rank);
      if (rank == 3) return;
      CHECK(hetcclCommShrink(comms[r], first, 1, &four[r], nullptr, HETCCL_SHRINK_DEFAULT) ==
            hetcclSuccess);
      int count = 0;
      CHECK(hetcclCommCount(four[r], &count) == hetcclSuccess);
      CHECK(count == 4);
      CHECK(rank_of(four[r]) == (rank > 3 ? rank - 1 : rank));
      std::vector<float> data(100, 1);
      CHECK(sum(data, four[r], nullptr) == hetcclSuccess);
      CHECK(all_are(data, 4));
      // Again of the first, by ranks of which another is the lowest.
      if (rank != 1 && rank != 4) return;
      CHECK(hetcclCommShrink(comms[r], then, 3, &two_of[r], nullptr, 0) == hetcclSuccess);
      CHECK(sum(data, two_of[r], nullptr) == hetcclSuccess);
      CHECK(all_are(data, 8));
    });
    on_all_ranks(5, [&](int rank) {
      const auto r = static_cast<size_t>(rank);
      std::vector<float> data(100, 1);
      CHECK(sum(data, comms[r], nullptr) == hetcclSuccess);
      CHECK(all_are(data, 5));
      for (auto* comm : {two_of[r], four[r], comms[r]})
        if (comm != nullptr) CHECK(hetcclCommDestroy(comm) == hetcclSuccess);
    });
  }
}

TEST_CASE("a shrink in a group, down to one rank, and in the background") {
  const auto comms = join_in_group(3, true);
  const int last[] = {2}, others[] = {1, 2};
  hetcclConfig_t config = HETCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  std::vector<hetcclComm_t> two(2);
  hetcclComm_t one = nullptr;
  CHECK(hetcclGroupStart() == hetcclSuccess);
  for (size_t r = 0; r < 2; ++r)
    CHECK(hetcclCommShrink(comms[r], last, 1, &two[r], nullptr, 0) == hetcclSuccess);
  CHECK(hetcclGroupEnd() == hetcclSuccess);
  CHECK(sum_in_group(two));
  CHECK(hetcclCommShrink(comms[0], others, 2, &one, &config, 0) == hetcclInProgress);
  CHECK(settled(one) == hetcclSuccess);
  CHECK(sum_in_group({one}));
  destroy_all(two);
  destroy_all({one});
  destroy_all(comms);
}

TEST_CASE("what is wrong with a shrink is said, and the communicator goes on") {
  const auto comms = join(3, true);
  hetcclComm_t made = comms[0];
  const int none[] = {3}, self[] = {0}, twice[] = {1, 1}, one[] = {1};
  const auto refused = [&](const int* list, int n, int flags, hetcclResult_t expected,
                           const char* text) {
    made = comms[0];
    CHECK(hetcclCommShrink(comms[0], list, n, &made, nullptr, flags) == expected);
    CHECK(made == nullptr);
    says(text);
  };
  refused(none, 1, 0, hetcclInvalidArgument, "excluded rank 3 is none: ranks are 0 to 2");
  refused(self, 1, 0, hetcclInvalidArgument, "rank 0 excludes itself");
  refused(twice, 2, 0, hetcclInvalidArgument, "rank 1 is excluded twice");
  refused(one, 0, 0, hetcclInvalidArgument, "excludeRanksCount is 0");
  refused(nullptr, 1, 0, hetcclInvalidArgument, "excludeRanksList is null");
  refused(one, 1, 2, hetcclInvalidArgument, "shrinkFlags is 2");
  refused(one, 1, HETCCL_SHRINK_ABORT, hetcclInvalidUsage, "hetcclGetUniqueId");
  CHECK(hetcclCommShrink(comms[0], one, 1, nullptr, nullptr, 0) == hetcclInvalidArgument);

  // Rank 2 does not call.
  hetcclConfig_t config = config_of(0, true);
  config.init_timeout_ms = hetccl::fake::patient_ms(300);
  CHECK(hetcclCommShrink(comms[0], one, 1, &made, &config, 0) == hetcclTimeout);
  says("shrinking: rank 2 has not called hetcclCommShrink");
  config = config_of(2, true);
  config.init_timeout_ms = hetccl::fake::patient_ms(300);
  CHECK(hetcclCommShrink(comms[2], one, 1, &made, &config, 0) == hetcclTimeout);
  says("shrinking: rank 0, the lowest that stays");
  on_all_ranks(3, [&](int rank) {
    std::vector<float> data(10, 1);
    CHECK(sum(data, comms[static_cast<size_t>(rank)], nullptr) == hetcclSuccess);
    CHECK(all_are(data, 3));
  });

  // A failed attempt leaves nothing that the next one could take for its own.
  on_all_ranks(3, [&](int rank) {
    if (rank == 1) return;
    hetcclComm_t part = nullptr;
    CHECK(hetcclCommShrink(comms[static_cast<size_t>(rank)], one, 1, &part, nullptr, 0) ==
          hetcclSuccess);
    CHECK(hetcclCommDestroy(part) == hetcclSuccess);
  });
  on_all_ranks(3, [&](int rank) {
    if (rank == 2) return;
    const auto r = static_cast<size_t>(rank);
    const int two[] = {2};
    hetcclComm_t part = nullptr;
    CHECK(hetcclCommShrink(comms[r], two, 1, &part, nullptr, 0) == hetcclSuccess);
    CHECK(hetcclCommDestroy(part) == hetcclSuccess);
  });
  on_all_ranks(3, [&](int rank) {
    CHECK(hetcclCommDestroy(comms[static_cast<size_t>(rank)]) == hetcclSuccess);
  });
}

TEST_CASE("ranks that exclude different ranks are told of each other") {
  const auto comms = join(4, true);
  on_all_ranks(4, [&](int rank) {
    if (rank == 3) return;
    const int lists[][2] = {{3, -1}, {3, -1}, {3, 1}};
    hetcclComm_t part = nullptr;
    hetcclConfig_t config = config_of(rank, true);
    config.init_timeout_ms = kLimitMs;
    const auto r = static_cast<size_t>(rank);
    CHECK(hetcclCommShrink(comms[r], lists[rank], rank == 2 ? 2 : 1, &part, &config, 0) ==
          hetcclInvalidUsage);
    says("rank 2 excludes rank 1, rank 0 does not");
  });
  on_all_ranks(4, [&](int rank) {
    CHECK(hetcclCommDestroy(comms[static_cast<size_t>(rank)]) == hetcclSuccess);
  });
}

TEST_CASE("a shrink ends with a rank that leaves, and with a communicator that fails") {
  const auto comms = join(3, true);
  const int one[] = {1};
  std::string text;
  hetcclComm_t part = nullptr;
  hetccl::fake::Thread waits([&] {
    if (hetcclCommShrink(comms[0], one, 1, &part, nullptr, 0) == hetcclRemoteError)
      text = hetcclGetLastError(nullptr);
  });
  CHECK(hetcclCommDestroy(comms[2]) == hetcclSuccess);
  waits.join();
  CHECK(text.find("rank 2 has left the communicator") != std::string::npos);
  hetccl::fake::Thread fails([&] {
    const int two[] = {2};
    if (hetcclCommShrink(comms[0], two, 1, &part, nullptr, 0) == hetcclAborted)
      text = hetcclGetLastError(nullptr);
  });
  CHECK(hetcclCommAbort(comms[1]) == hetcclSuccess);
  fails.join();
  CHECK(text.find("rank 1: the communicator was aborted") != std::string::npos);
  CHECK(hetcclCommDestroy(comms[0]) == hetcclAborted);
}
