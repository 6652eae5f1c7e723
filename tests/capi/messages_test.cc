// Send, receive and groups as the C API's users see them.
#include "capi/threads.h"
#include "fake/thread.h"

namespace {

using namespace hetccl::capi_test;

constexpr int kRanks = 4;

std::vector<float> letter(int from, int to, size_t count) {
  std::vector<float> data(count);
  for (size_t i = 0; i < count; ++i) {
    data[i] = static_cast<float>(1000 * from + 100 * to + static_cast<int>(i % 89));
  }
  return data;
}

hetcclResult_t send(const std::vector<float>& data, int peer, hetcclComm_t comm,
                    hetcclStream_t stream = nullptr) {
  return hetcclSend(data.data(), data.size(), hetcclFloat32, peer, comm, stream);
}

hetcclResult_t recv(std::vector<float>& data, int peer, hetcclComm_t comm,
                    hetcclStream_t stream = nullptr) {
  return hetcclRecv(data.data(), data.size(), hetcclFloat32, peer, comm, stream);
}

// Waits until a failure is known.
hetcclResult_t failed(hetcclComm_t comm) {
  const auto end = Clock::now() + milliseconds(kLimitMs);
  hetcclResult_t result = hetcclSuccess;
  while (result == hetcclSuccess && Clock::now() < end) {
    CHECK(hetcclCommGetAsyncError(comm, &result) == hetcclSuccess);
    std::this_thread::sleep_for(milliseconds(1));
  }
  return result;
}

std::string failure_of(hetcclComm_t comm) {
  CHECK(failed(comm) != hetcclSuccess);
  return hetcclGetLastError(comm);
}

void destroy(const std::vector<hetcclComm_t>& comms) {
  on_all_ranks(static_cast<int>(comms.size()), [&](int rank) {
    CHECK(hetcclCommDestroy(comms[static_cast<size_t>(rank)]) == hetcclSuccess);
  });
}

void abort(const std::vector<hetcclComm_t>& comms) {
  for (auto* comm : comms) CHECK(hetcclCommAbort(comm) == hetcclSuccess);
}

}  // namespace

TEST_CASE("a pipeline of ranks, each blocking") {
  for (const bool two : {false, true}) {
    const auto comms = join(kRanks, two);
    on_all_ranks(kRanks, [&](int rank) {
      hetcclComm_t comm = comms[static_cast<size_t>(rank)];
      for (const size_t count : {size_t{0}, size_t{1}, size_t{1000}, size_t{3'000'000}}) {
        std::vector<float> data = letter(0, 1, count);
        if (rank > 0) {
          std::fill(data.begin(), data.end(), -1.0F);
          CHECK(recv(data, rank - 1, comm) == hetcclSuccess);
        }
        CHECK(data == letter(0, 1, count));
        if (rank + 1 < kRanks) CHECK(send(data, rank + 1, comm) == hetcclSuccess);
      }
    });
    destroy(comms);
  }
}

TEST_CASE("a ring sends before it receives, each on a stream of its own") {
  const auto comms = join(kRanks, true);
  on_all_ranks(kRanks, [&](int rank) {
    hetcclComm_t comm = comms[static_cast<size_t>(rank)];
    hetcclStream_t out = nullptr, in = nullptr;
    REQUIRE(hetcclHostStreamCreate(&out) == hetcclSuccess);
    REQUIRE(hetcclHostStreamCreate(&in) == hetcclSuccess);
    const int to = (rank + 1) % kRanks, from = (rank + kRanks - 1) % kRanks;
    const auto sent = letter(rank, to, 500'000);
    std::vector<float> got(sent.size(), -1);
    CHECK(send(sent, to, comm, out) == hetcclSuccess);
    CHECK(recv(got, from, comm, in) == hetcclSuccess);
    CHECK(hetcclHostStreamDestroy(out) == hetcclSuccess);  // waits
    CHECK(hetcclHostStreamDestroy(in) == hetcclSuccess);
    CHECK(got == letter(from, rank, got.size()));
  });
  destroy(comms);
}

TEST_CASE("a group exchanges with everybody at once, itself included, beside collectives") {
  for (const bool two : {false, true}) {
    const auto comms = join(kRanks, two);
    on_all_ranks(kRanks, [&](int rank) {
      hetcclComm_t comm = comms[static_cast<size_t>(rank)];
      std::vector<std::vector<float>> sent, got;
      for (int peer = 0; peer < kRanks; ++peer) {
        sent.push_back(letter(rank, peer, 20'000));
        got.emplace_back(20'000, -1.0F);
      }
      std::vector<float> total(1000, 1);
      CHECK(hetcclGroupStart() == hetcclSuccess);
      if (rank % 2 == 0) CHECK(sum(total, comm, nullptr) == hetcclSuccess);
      for (int peer = 0; peer < kRanks; ++peer) {
        const auto p = static_cast<size_t>(peer);
        CHECK(hetcclGroupStart() == hetcclSuccess);
        CHECK(send(sent[p], peer, comm) == hetcclSuccess);
        CHECK(hetcclGroupEnd() == hetcclSuccess);
        CHECK(recv(got[p], peer, comm) == hetcclSuccess);
      }
      if (rank % 2 == 1) CHECK(sum(total, comm, nullptr) == hetcclSuccess);
      CHECK(all_are(total, 1));  // only noted
      CHECK(hetcclGroupEnd() == hetcclSuccess);
      CHECK(all_are(total, kRanks));
      for (int peer = 0; peer < kRanks; ++peer) {
        CHECK(got[static_cast<size_t>(peer)] == letter(peer, rank, 20'000));
      }
    });
    destroy(comms);
  }
}

TEST_CASE("one thread calls for all ranks within a group") {
  const auto comms = join(kRanks, true);
  std::vector<std::vector<float>> data, got;
  const std::vector<size_t> counts = {1, 2, 3, 4};
  std::vector<std::vector<float>> gathered(kRanks, std::vector<float>(10));
  CHECK(hetcclGroupStart() == hetcclSuccess);
  for (int rank = 0; rank < kRanks; ++rank) {
    data.emplace_back(100'000, static_cast<float>(rank));
    got.emplace_back(100'000, -1.0F);
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto r = static_cast<size_t>(rank);
    std::vector<size_t> lengths = counts;  // read by the call, gone at the group's end
    CHECK(hetcclAllToAll(data[r].data(), got[r].data(), 25'000, hetcclFloat32, comms[r], nullptr) ==
          hetcclSuccess);
    CHECK(hetcclAllGatherV(data[r].data(), gathered[r].data(), lengths.data(), nullptr,
                           hetcclFloat32, comms[r], nullptr) == hetcclSuccess);
  }
  CHECK(hetcclGroupEnd() == hetcclSuccess);
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto r = static_cast<size_t>(rank);
    for (size_t i = 0; i < got[r].size(); ++i) {
      REQUIRE(got[r][i] == static_cast<float>(i / 25'000));
    }
    CHECK(gathered[r] == std::vector<float>{0, 1, 1, 2, 2, 2, 3, 3, 3, 3});
  }
  destroy(comms);
}

TEST_CASE("what is wrong with messages and groups is said, and nothing is harmed") {
  const auto comms = join(2, true);
  hetcclComm_t comm = comms[0];
  std::vector<float> data(4, 1);
  const auto fails = [&](hetcclResult_t result, hetcclResult_t expected, const std::string& text) {
    CHECK(result == expected);
    CAPTURE(hetcclGetLastError(nullptr));
    CHECK(std::string(hetcclGetLastError(nullptr)).find(text) != std::string::npos);
  };
  fails(send(data, 2, comm), hetcclInvalidArgument, "peer is 2: it must be from 0 to 1");
  fails(recv(data, -1, comm), hetcclInvalidArgument, "peer is -1");
  fails(hetcclSend(nullptr, 4, hetcclFloat32, 1, comm, nullptr), hetcclInvalidArgument,
        "sendbuff is null but count is 4");
  fails(hetcclRecv(data.data(), 4, static_cast<hetcclDataType_t>(40), 1, comm, nullptr),
        hetcclInvalidArgument, "datatype 40");
  fails(send(data, 0, comm), hetcclInvalidUsage, "put both ends of each into one group");
  fails(hetcclGroupEnd(), hetcclInvalidUsage, "hetcclGroupEnd without hetcclGroupStart");

  // Nothing of a group is done where one call of it is wrong.
  std::vector<float> got(4, -1), shorter(3);
  CHECK(hetcclGroupStart() == hetcclSuccess);
  CHECK(send(data, 0, comm) == hetcclSuccess);
  CHECK(recv(got, 0, comm) == hetcclSuccess);
  CHECK(send(data, 7, comm) == hetcclSuccess);
  fails(hetcclCommDestroy(comm), hetcclInvalidUsage, "hetcclCommDestroy cannot be part of a group");
  fails(hetcclGroupEnd(), hetcclInvalidArgument, "no call of the group was made");
  CHECK(all_are(got, -1));
  CHECK(hetcclGroupStart() == hetcclSuccess);
  CHECK(send(data, 0, comm) == hetcclSuccess);
  CHECK(recv(shorter, 0, comm) == hetcclSuccess);
  fails(hetcclGroupEnd(), hetcclInvalidArgument, "send of 4 float32 to rank 0 meets recv of 3");

  on_all_ranks(2, [&](int rank) {
    std::vector<float> total(10, 1);
    CHECK(sum(total, comms[static_cast<size_t>(rank)], nullptr) == hetcclSuccess);
    CHECK(all_are(total, 2));
  });
  destroy(comms);
}

TEST_CASE("a send without a receive times out, and both ranks are named to both") {
  const auto comms = join(2, true);
  const int64_t limit_ms = hetccl::fake::patient_ms(200);
  CHECK(hetcclCommSetTimeout(comms[0], limit_ms) == hetcclSuccess);
  const std::vector<float> data(3'000'000, 1);  // more than fits on the way
  CHECK(send(data, 1, comms[0]) == hetcclTimeout);
  for (auto* comm : comms) {
    const std::string text = failure_of(comm);
    CAPTURE(text);
    CHECK(text.find("rank 0: send of 3000000 float32 to rank 1 timed out after " +
                    std::to_string(limit_ms) + " ms: rank 1 has not received it") !=
          std::string::npos);
  }
  abort(comms);
}

TEST_CASE("a dump shows the messages under way, and those that have ended") {
  const auto comms = join(2, true);
  hetcclStream_t stream = nullptr;
  REQUIRE(hetcclHostStreamCreate(&stream) == hetcclSuccess);
  std::vector<float> data(7);
  CHECK(hetcclRecvTag(data.data(), 7, hetcclFloat32, 0, 5, comms[1], stream) == hetcclSuccess);
  const char* json = nullptr;
  CHECK(hetcclCommDump(comms[1], &json) == hetcclSuccess);
  CHECK(std::string(json).find("\"direction\": \"recv\"") != std::string::npos);
  CHECK(std::string(json).find("\"tag\": 5") != std::string::npos);
  CHECK(std::string(json).find("\"completed\"") == std::string::npos);
  CHECK(hetcclSendTag(data.data(), 7, hetcclFloat32, 1, 5, comms[0], nullptr) == hetcclSuccess);
  CHECK(hetcclHostStreamDestroy(stream) == hetcclSuccess);
  CHECK(hetcclCommWait(comms[1], 60'000) == hetcclSuccess);
  CHECK(hetcclCommDump(comms[1], &json) == hetcclSuccess);
  CHECK(std::string(json).find("\"completed\"") != std::string::npos);
  destroy(comms);
}

TEST_CASE("a send that meets another receive is an error on both ranks") {
  const auto comms = join(2, false);
  on_all_ranks(2, [&](int rank) {
    hetcclComm_t comm = comms[static_cast<size_t>(rank)];
    std::vector<float> data(rank == 0 ? 12 : 10);
    // The message may have left before the sender learns that it will not be received.
    if (rank == 0) static_cast<void>(send(data, 1, comm));
    if (rank == 1) CHECK(recv(data, 0, comm) == hetcclInvalidUsage);
    CHECK(failed(comm) == hetcclInvalidUsage);
  });
  CHECK(failure_of(comms[1]).find("rank 0 sends 12 float32, tag 0, where this rank receives 10") !=
        std::string::npos);
  abort(comms);
}

TEST_CASE("a rank that has left is named to whoever waits for its message") {
  const auto comms = join(2, true);
  std::vector<float> data(10);
  hetcclComm_t comm = comms[1];
  hetccl::fake::Thread receiver([&] {
    CHECK(recv(data, 0, comm) == hetcclRemoteError);
    const std::string text = failure_of(comm);
    CAPTURE(text);
    CHECK(text.find("recv of 10 float32 from rank 0 cannot complete: rank 0 has left") !=
          std::string::npos);
  });
  std::this_thread::sleep_for(milliseconds(50));
  CHECK(hetcclCommDestroy(comms[0]) == hetcclSuccess);
  receiver.join();
  CHECK(hetcclCommAbort(comm) == hetcclSuccess);
}

TEST_CASE("what a rank has sent can be had after it has left") {
  for (const bool two : {false, true}) {
    const auto comms = join(2, two);
    std::vector<float> data(10);
    on_all_ranks(2, [&](int rank) {
      if (rank == 0) CHECK(send(letter(0, 1, 10), 1, comms[0]) == hetcclSuccess);
      if (rank == 0) CHECK(send(letter(0, 1, 1000), 1, comms[0]) == hetcclSuccess);
      if (rank == 1) CHECK(recv(data, 0, comms[1]) == hetcclSuccess);
    });
    CHECK(hetcclCommDestroy(comms[0]) == hetcclSuccess);
    std::this_thread::sleep_for(milliseconds(100));
    data.assign(1000, -1);
    CHECK(recv(data, 0, comms[1]) == hetcclSuccess);
    CHECK(data == letter(0, 1, 1000));
    CHECK(hetcclCommDestroy(comms[1]) == hetcclSuccess);
  }
}

TEST_CASE("messages count as bytes across clusters") {
  const auto comms = join(2, true);
  on_all_ranks(2, [&](int rank) {
    hetcclComm_t comm = comms[static_cast<size_t>(rank)];
    std::vector<float> data(1000);
    CHECK((rank == 0 ? send(data, 1, comm) : recv(data, 0, comm)) == hetcclSuccess);
    hetcclCommStats_t stats;
    stats.size = sizeof stats;
    CHECK(hetcclCommGetStats(comm, &stats) == hetcclSuccess);
    CHECK(stats.cross_bytes_sent == (rank == 0 ? 4000 : 0));
    CHECK(stats.least_cross_bytes == (rank == 0 ? 4000 : 0));
    CHECK(stats.operations == 1);
  });
  destroy(comms);
}
