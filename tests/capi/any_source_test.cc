// Receives from whichever rank sends, as the C API's users see them.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>

#include "capi/threads.h"
#include "fake/thread.h"

namespace {

using namespace hetccl::capi_test;

constexpr int kRanks = 4;

std::vector<float> letter(int from, int number, size_t count) {
  return std::vector<float>(count, static_cast<float>(1000 * from + number));
}

hetcclResult_t send(const std::vector<float>& data, int peer, uint32_t tag, hetcclComm_t comm) {
  return hetcclSendTag(data.data(), data.size(), hetcclFloat32, peer, tag, comm, nullptr);
}

hetcclResult_t recv_any(std::vector<float>& data, uint32_t tag, int* source, hetcclComm_t comm,
                        hetcclStream_t stream = nullptr) {
  return hetcclRecvAny(data.data(), data.size(), hetcclFloat32, tag, source, comm, stream);
}

void destroy(const std::vector<hetcclComm_t>& comms) {
  on_all_ranks(static_cast<int>(comms.size()), [&](int rank) {
    CHECK(hetcclCommDestroy(comms[static_cast<size_t>(rank)]) == hetcclSuccess);
  });
}

// Number of this process's threads with that name.
int n_threads(const std::string& name) {
  int found = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "comm");
    std::string text;
    std::getline(file, text);
    found += text == name ? 1 : 0;
  }
  return found;
}

std::string failure_of(hetcclComm_t comm) {
  hetcclResult_t result = hetcclSuccess;
  const auto end = Clock::now() + milliseconds(kLimitMs);
  while (result == hetcclSuccess && Clock::now() < end) {
    CHECK(hetcclCommGetAsyncError(comm, &result) == hetcclSuccess);
    std::this_thread::sleep_for(milliseconds(1));
  }
  return hetcclGetLastError(comm);
}

}  // namespace

TEST_CASE("a server receives what all others send, each sender's messages in their order") {
  for (const bool two : {false, true}) {
    CAPTURE(two);
    const auto comms = join(kRanks, two);
    for (const size_t count : {size_t{0}, size_t{1}, size_t{5000}, size_t{3'000'000}}) {
      const int letters = count > 10'000 ? 3 : 40;
      on_all_ranks(kRanks, [&](int rank) {
        hetcclComm_t comm = comms[static_cast<size_t>(rank)];
        if (rank != 2) {
          for (int i = 0; i < letters; ++i)
            CHECK(send(letter(rank, i, count), 2, 0, comm) == hetcclSuccess);
          return;
        }
        std::vector<int> next(kRanks, 0);
        std::vector<float> data(count);
        for (int i = 0; i < letters * (kRanks - 1); ++i) {
          int source = -7;
          REQUIRE(recv_any(data, 0, &source, comm) == hetcclSuccess);
          REQUIRE((source >= 0 && source < kRanks && source != 2));
          CHECK(data == letter(source, next[static_cast<size_t>(source)]++, count));
        }
        CHECK(next == std::vector<int>{letters, letters, 0, letters});
      });
    }
    destroy(comms);
  }
}

TEST_CASE("tags tell messages apart, and what names its rank goes on beside") {
  const auto comms = join(3, true);
  on_all_ranks(3, [&](int rank) {
    hetcclComm_t comm = comms[static_cast<size_t>(rank)];
    std::vector<float> data(100);
    int source = -1;
    if (rank == 1) {  // its first message is no request
      CHECK(send(letter(1, 7, 100), 0, 7, comm) == hetcclSuccess);
      CHECK(send(letter(1, 1, 100), 0, 1, comm) == hetcclSuccess);
      return;
    }
    if (rank == 2) {
      std::this_thread::sleep_for(milliseconds(100));
      CHECK(send(letter(2, 1, 100), 0, 1, comm) == hetcclSuccess);
      return;
    }
    hetcclStream_t stream = nullptr;
    REQUIRE(hetcclHostStreamCreate(&stream) == hetcclSuccess);
    std::vector<float> request(100);
    CHECK(recv_any(request, 1, &source, comm, stream) == hetcclSuccess);
    // Rank 1's first message has another tag: a later receive that names it may have it.
    CHECK(hetcclRecvTag(data.data(), 100, hetcclFloat32, 1, 7, comm, nullptr) == hetcclSuccess);
    CHECK(data == letter(1, 7, 100));
    CHECK(hetcclHostStreamDestroy(stream) == hetcclSuccess);
    CHECK(request == letter(source, 1, 100));
    CHECK(recv_any(data, 1, nullptr, comm) == hetcclSuccess);
    CHECK(data == letter(3 - source, 1, 100));
  });
  destroy(comms);
}

TEST_CASE("of two receives the one called first takes the message") {
  const auto comms = join(2, true);
  hetcclStream_t first = nullptr, second = nullptr;
  REQUIRE(hetcclHostStreamCreate(&first) == hetcclSuccess);
  REQUIRE(hetcclHostStreamCreate(&second) == hetcclSuccess);
  for (const bool any_first : {true, false}) {
    std::vector<float> any(10), named(10);
    int source = -1;
    const auto receive_any = [&] {
      CHECK(recv_any(any, 0, &source, comms[0], first) == hetcclSuccess);
    };
    if (any_first) receive_any();
    CHECK(hetcclRecv(named.data(), 10, hetcclFloat32, 1, comms[0], second) == hetcclSuccess);
    if (!any_first) receive_any();
    CHECK(send(letter(1, 0, 10), 0, 0, comms[1]) == hetcclSuccess);
    CHECK(send(letter(1, 1, 10), 0, 0, comms[1]) == hetcclSuccess);
    for (auto* stream : {first, second}) {
      uint64_t ticket = 0;
      CHECK(hetcclHostStreamRecord(stream, &ticket) == hetcclSuccess);
      CHECK(hetcclHostStreamWait(stream, ticket, kLimitMs) == hetcclSuccess);
    }
    CHECK(any == letter(1, any_first ? 0 : 1, 10));
    CHECK(named == letter(1, any_first ? 1 : 0, 10));
    CHECK(source == 1);
  }
  CHECK(hetcclHostStreamDestroy(first) == hetcclSuccess);
  CHECK(hetcclHostStreamDestroy(second) == hetcclSuccess);
  destroy(comms);
}

TEST_CASE("what a later receive has got already, a receive from any rank leaves as it is") {
  const auto comms = join(2, true);
  std::atomic<bool> sent{false};
  on_all_ranks(2, [&](int rank) {
    hetcclComm_t comm = comms[static_cast<size_t>(rank)];
    if (rank == 1) {
      CHECK(send(letter(1, 0, 1), 0, 0, comm) == hetcclSuccess);  // connects the two
      const int tags[] = {7, 1, 7};
      for (int i = 0; i < 3; ++i)
        CHECK(send(letter(1, i, 100), 0, static_cast<uint32_t>(tags[i]), comm) == hetcclSuccess);
      sent = true;
      return;
    }
    hetcclStream_t streams[2] = {};
    for (auto& stream : streams) REQUIRE(hetcclHostStreamCreate(&stream) == hetcclSuccess);
    const auto receive = [&](std::vector<float>& data) {
      CHECK(hetcclRecvTag(data.data(), 100, hetcclFloat32, 1, 7, comm, streams[1]) ==
            hetcclSuccess);
    };
    const auto wait = [](hetcclStream_t stream) {
      uint64_t ticket = 0;
      CHECK(hetcclHostStreamRecord(stream, &ticket) == hetcclSuccess);
      CHECK(hetcclHostStreamWait(stream, ticket, kLimitMs) == hetcclSuccess);
    };
    std::vector<float> first(1), request(100), payload(100), next(100);
    CHECK(hetcclRecv(first.data(), 1, hetcclFloat32, 1, comm, nullptr) == hetcclSuccess);
    while (!sent) std::this_thread::sleep_for(milliseconds(1));
    int source = -1;
    CHECK(recv_any(request, 1, &source, comm, streams[0]) == hetcclSuccess);
    receive(payload);
    for (auto* stream : streams) wait(stream);
    CHECK(source == 1);
    CHECK(request == letter(1, 1, 100));
    CHECK(payload == letter(1, 0, 100));
    std::fill(payload.begin(), payload.end(), -1.0F);  // it is the caller's again
    receive(next);
    wait(streams[1]);
    CHECK(next == letter(1, 2, 100));
    CHECK(all_are(payload, -1));
    for (auto* stream : streams) CHECK(hetcclHostStreamDestroy(stream) == hetcclSuccess);
  });
  destroy(comms);
}

TEST_CASE("ranks that a receive from any rank waits for keep no threads") {
  const auto comms = join(8, false);
  std::vector<float> data(10);
  hetcclStream_t stream = nullptr;
  REQUIRE(hetcclHostStreamCreate(&stream) == hetcclSuccess);
  CHECK(recv_any(data, 0, nullptr, comms[0], stream) == hetcclSuccess);
  CHECK(n_threads("hetccl-chores") == 0);  // one for each rank before
  CHECK(n_threads("hetccl-shm") <= 1);
  CHECK(send(letter(5, 0, 10), 0, 0, comms[5]) == hetcclSuccess);
  CHECK(hetcclHostStreamDestroy(stream) == hetcclSuccess);
  CHECK(data == letter(5, 0, 10));
  destroy(comms);
  CHECK(n_threads("hetccl-chores") == 0);
}

TEST_CASE("a rank that sends all the time holds up no other") {
  const auto comms = join(3, false);
  std::atomic<bool> heard{false};
  on_all_ranks(3, [&](int rank) {
    hetcclComm_t comm = comms[static_cast<size_t>(rank)];
    if (rank == 2) {
      std::this_thread::sleep_for(milliseconds(50));
      CHECK(send(letter(2, 0, 1), 0, 0, comm) == hetcclSuccess);
      return;
    }
    if (rank == 1) {
      while (!heard.load()) CHECK(send(letter(1, 0, 1), 0, 0, comm) == hetcclSuccess);
      CHECK(send(letter(1, 9, 1), 0, 0, comm) == hetcclSuccess);  // the last
      return;
    }
    std::vector<float> data(1);
    const auto end = Clock::now() + milliseconds(kLimitMs);
    while (data != letter(1, 9, 1) && Clock::now() < end) {
      int source = -1;
      REQUIRE(recv_any(data, 0, &source, comm) == hetcclSuccess);
      if (source == 2) heard = true;
    }
    CHECK(heard.load());
  });
  destroy(comms);
}

TEST_CASE("in a group, beside sends to all") {
  const auto comms = join(3, true);
  on_all_ranks(3, [&](int rank) {
    hetcclComm_t comm = comms[static_cast<size_t>(rank)];
    std::vector<std::vector<float>> got(2, std::vector<float>(70'000));
    int sources[2] = {-1, -1};
    const auto sent = letter(rank, 0, 70'000);
    CHECK(hetcclGroupStart() == hetcclSuccess);
    for (size_t i = 0; i < 2; ++i) CHECK(recv_any(got[i], 0, &sources[i], comm) == hetcclSuccess);
    for (int peer = 0; peer < 3; ++peer) {
      if (peer != rank) CHECK(send(sent, peer, 0, comm) == hetcclSuccess);
    }
    CHECK(hetcclGroupEnd() == hetcclSuccess);
    CHECK(sources[0] + sources[1] == 3 - rank);
    CHECK(sources[0] != sources[1]);
    for (size_t i = 0; i < 2; ++i) CHECK(got[i] == letter(sources[i], 0, 70'000));
  });
  destroy(comms);
}

TEST_CASE("nobody sends: the deadline says so; and what is wrong is refused") {
  const auto comms = join(3, true);
  std::vector<float> data(4);
  CHECK(hetcclRecvAny(nullptr, 4, hetcclFloat32, 0, nullptr, comms[0], nullptr) ==
        hetcclInvalidArgument);
  const auto alone = join(1, false);
  CHECK(recv_any(data, 0, nullptr, alone[0]) == hetcclUnsupported);
  CHECK(std::string(hetcclGetLastError(nullptr)).find("only one of 2 to 256 can") !=
        std::string::npos);
  destroy(alone);
  CHECK(hetcclCommSetTimeout(comms[0], 200) == hetcclSuccess);
  CHECK(recv_any(data, 3, nullptr, comms[0]) == hetcclTimeout);
  for (auto* comm : comms) {
    const std::string text = failure_of(comm);
    CHECK_MESSAGE(text.find("rank 0: recv of 4 float32 from any rank with tag 3 timed out after "
                            "200 ms: no rank has sent it") != std::string::npos,
                  text);
  }
  for (auto* comm : comms) CHECK(hetcclCommAbort(comm) == hetcclSuccess);
}

TEST_CASE("ranks leave: one after its message, then all") {
  const auto comms = join(3, true);
  std::vector<float> data(10);
  int source = -1;
  hetccl::fake::Thread sender(
      [&] { CHECK(send(letter(1, 0, 10), 0, 0, comms[1]) == hetcclSuccess); });
  // Rank 2 never reaches rank 0.
  hetccl::fake::Thread leaver([&] { CHECK(hetcclCommDestroy(comms[2]) == hetcclSuccess); });
  CHECK(recv_any(data, 0, &source, comms[0]) == hetcclSuccess);
  sender.join();
  leaver.join();
  CHECK(source == 1);
  CHECK(data == letter(1, 0, 10));
  std::this_thread::sleep_for(milliseconds(400));  // a broken connection would be an error by now
  hetcclResult_t result = hetcclSuccess;
  CHECK(hetcclCommGetAsyncError(comms[0], &result) == hetcclSuccess);
  CHECK(result == hetcclSuccess);
  CHECK(send(letter(1, 1, 10), 0, 0, comms[1]) == hetcclSuccess);
  CHECK(hetcclCommDestroy(comms[1]) == hetcclSuccess);
  CHECK(recv_any(data, 0, &source, comms[0]) == hetcclSuccess);
  CHECK(data == letter(1, 1, 10));
  CHECK(recv_any(data, 0, &source, comms[0]) == hetcclRemoteError);
  const std::string text = failure_of(comms[0]);
  CHECK_MESSAGE(text.find("all other ranks have left the communicator") != std::string::npos, text);
  CHECK(hetcclCommAbort(comms[0]) == hetcclSuccess);
}

TEST_CASE("an abort ends it") {
  const auto comms = join(2, true);
  hetccl::fake::Thread aborter([&] {
    std::this_thread::sleep_for(milliseconds(100));
    CHECK(hetcclCommAbort(comms[0]) == hetcclSuccess);
  });
  std::vector<float> data(10, -1);
  CHECK(recv_any(data, 0, nullptr, comms[0]) == hetcclAborted);
  aborter.join();
  CHECK(all_are(data, -1));
  CHECK(hetcclCommAbort(comms[1]) == hetcclSuccess);
}
