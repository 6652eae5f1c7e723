// Ranks as threads of one process over libhetccl.so: streams, aborts, several communicators.
#include <atomic>

#include "capi/threads.h"
#include "fake/thread.h"

using namespace hetccl::capi_test;

TEST_CASE("a stream's tickets grow, are reached in order, and show the data ready") {
  const auto comms = join(2, true);
  on_all_ranks(2, [&](int rank) {
    hetcclComm_t comm = comms[static_cast<size_t>(rank)];
    hetcclStream_t stream = nullptr;
    CHECK(hetcclHostStreamCreate(&stream) == hetcclSuccess);
    uint64_t idle = 0;
    CHECK(hetcclHostStreamRecord(stream, &idle) == hetcclSuccess);
    CHECK(hetcclHostStreamQuery(stream, idle) == hetcclSuccess);
    std::vector<std::vector<float>> data(5, std::vector<float>(10'000, 1));
    std::vector<uint64_t> tickets(data.size());
    for (size_t i = 0; i < data.size(); ++i) {
      CHECK(sum(data[i], comm, stream) == hetcclSuccess);
      CHECK(hetcclHostStreamRecord(stream, &tickets[i]) == hetcclSuccess);
      CHECK(tickets[i] > (i == 0 ? idle : tickets[i - 1]));
    }
    for (size_t i = 0; i < data.size(); ++i) {
      CHECK(hetcclHostStreamWait(stream, tickets[i], kLimitMs) == hetcclSuccess);
      CHECK(hetcclHostStreamQuery(stream, tickets[i]) == hetcclSuccess);
      CHECK(all_are(data[i], 2));
    }
    CHECK(hetcclHostStreamDestroy(stream) == hetcclSuccess);
    CHECK(hetcclCommDestroy(comm) == hetcclSuccess);
  });
}

namespace {

// Each rank's elements: bits that differ between ranks, types and places.
template <typename T>
std::vector<T> bits_of(int rank, size_t count) {
  std::vector<T> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = static_cast<T>(0x9e3779b97f4a7c15U * (i + 7 * static_cast<size_t>(rank) + 1) >> 5U);
  }
  return values;
}

template <typename T>
void check_bitwise(hetcclDataType_t type, hetcclComm_t comm, int rank, int n_ranks) {
  constexpr size_t kCount = 70'001;
  for (const hetcclRedOp_t op : {hetcclBand, hetcclBor, hetcclBxor}) {
    std::vector<T> want = bits_of<T>(0, kCount);
    for (int r = 1; r < n_ranks; ++r) {
      const std::vector<T> other = bits_of<T>(r, kCount);
      for (size_t i = 0; i < kCount; ++i) {
        const T a = want[i], b = other[i];
        want[i] = static_cast<T>(op == hetcclBand ? a & b : op == hetcclBor ? a | b : a ^ b);
      }
    }
    std::vector<T> all = bits_of<T>(rank, kCount), one = all;
    CHECK(hetcclAllReduce(all.data(), all.data(), kCount, type, op, comm, nullptr) ==
          hetcclSuccess);
    CHECK(all == want);
    CHECK(hetcclReduce(one.data(), one.data(), kCount, type, op, 1, comm, nullptr) ==
          hetcclSuccess);
    CHECK((rank != 1 || one == want));
  }
}

}  // namespace

TEST_CASE("bitwise operators combine integers of every width") {
  for (const bool two : {false, true}) {
    CAPTURE(two);
    const auto comms = join(3, two);
    on_all_ranks(3, [&](int rank) {
      hetcclComm_t comm = comms[static_cast<size_t>(rank)];
      check_bitwise<int8_t>(hetcclInt8, comm, rank, 3);
      check_bitwise<uint8_t>(hetcclUint8, comm, rank, 3);
      check_bitwise<int16_t>(hetcclInt16, comm, rank, 3);
      check_bitwise<uint16_t>(hetcclUint16, comm, rank, 3);
      check_bitwise<int32_t>(hetcclInt32, comm, rank, 3);
      check_bitwise<uint32_t>(hetcclUint32, comm, rank, 3);
      check_bitwise<int64_t>(hetcclInt64, comm, rank, 3);
      check_bitwise<uint64_t>(hetcclUint64, comm, rank, 3);
    });
    on_all_ranks(3, [&](int rank) { hetcclCommDestroy(comms[static_cast<size_t>(rank)]); });
  }
}

TEST_CASE("a bitwise operator of floats is refused on every rank, and harms nothing") {
  const auto comms = join(2, true);
  on_all_ranks(2, [&](int rank) {
    hetcclComm_t comm = comms[static_cast<size_t>(rank)];
    std::vector<float> data(10, 1);
    for (const hetcclDataType_t type : {hetcclFloat32, hetcclFloat16, hetcclFloat8e4m3}) {
      CHECK(hetcclAllReduce(data.data(), data.data(), 10, type, hetcclBxor, comm, nullptr) ==
            hetcclInvalidArgument);
    }
    const std::string text = hetcclGetLastError(nullptr);
    CHECK_MESSAGE(text.find("bxor combines the bits of integers, and float8_e4m3 is none") !=
                      std::string::npos,
                  text);
    hetcclCommStats_t stats{};
    stats.size = sizeof stats;
    CHECK(hetcclCommGetStats(comm, &stats) == hetcclSuccess);
    CHECK(stats.operations == 0);
    CHECK(sum(data, comm, nullptr) == hetcclSuccess);
    CHECK(hetcclCommDestroy(comm) == hetcclSuccess);
  });
}

TEST_CASE("a pre-multiplied sum takes each rank's own scalar, read when its residence says") {
  for (const bool two : {false, true}) {
    CAPTURE(two);
    const auto comms = join(3, two);
    on_all_ranks(3, [&](int rank) {
      hetcclComm_t comm = comms[static_cast<size_t>(rank)];
      float scalar = static_cast<float>(rank + 1);
      hetcclRedOp_t now{}, later{};
      CHECK(hetcclRedOpCreatePreMulSum(&now, &scalar, hetcclFloat32, hetcclScalarHostImmediate,
                                       comm) == hetcclSuccess);
      CHECK(hetcclRedOpCreatePreMulSum(&later, &scalar, hetcclFloat32, hetcclScalarDevice, comm) ==
            hetcclSuccess);
      CHECK(now >= hetcclNumOps);
      scalar *= 10;
      const auto run = [&](hetcclRedOp_t op) {
        std::vector<float> data(5000, 1);
        CHECK(hetcclAllReduce(data.data(), data.data(), data.size(), hetcclFloat32, op, comm,
                              nullptr) == hetcclSuccess);
        return data;
      };
      CHECK(all_are(run(now), 6));
      CHECK(all_are(run(later), 60));
      // The operator may go as soon as the call has returned, and so may its scalar.
      hetcclStream_t stream = nullptr;
      CHECK(hetcclHostStreamCreate(&stream) == hetcclSuccess);
      std::vector<float> part(1000), whole(3000, 1), reduced(3000, -1);
      CHECK(hetcclReduceScatter(whole.data(), part.data(), 1000, hetcclFloat32, later, comm,
                                stream) == hetcclSuccess);
      CHECK(hetcclReduce(whole.data(), reduced.data(), 3000, hetcclFloat32, later, 1, comm,
                         stream) == hetcclSuccess);
      scalar = 0;
      CHECK(hetcclRedOpDestroy(later, comm) == hetcclSuccess);
      CHECK(hetcclHostStreamDestroy(stream) == hetcclSuccess);
      CHECK(all_are(part, 60));
      CHECK(all_are(reduced, rank == 1 ? 60 : -1));
      std::vector<float> data(10, 1);
      CHECK(hetcclAllReduce(data.data(), data.data(), 10, hetcclFloat32, later, comm, nullptr) ==
            hetcclInvalidArgument);
      CHECK(hetcclRedOpDestroy(later, comm) == hetcclInvalidArgument);
      CHECK(hetcclAllReduce(data.data(), data.data(), 10, hetcclFloat16, now, comm, nullptr) ==
            hetcclInvalidArgument);
      hetcclComm_t other = comms[static_cast<size_t>((rank + 1) % 3)];
      CHECK(hetcclRedOpDestroy(now, other) == hetcclInvalidArgument);
      CHECK(hetcclRedOpDestroy(hetcclSum, comm) == hetcclInvalidArgument);
      CHECK(hetcclBarrier(comm, nullptr) == hetcclSuccess);
    });
    for (auto* comm : comms) CHECK(hetcclCommDestroy(comm) == hetcclSuccess);
  }
}

TEST_CASE("work on a stream completes though nobody waits") {
  const auto comms = join(2, true);
  on_all_ranks(2, [&](int rank) {
    hetcclStream_t stream = nullptr;
    CHECK(hetcclHostStreamCreate(&stream) == hetcclSuccess);
    const auto end = Clock::now() + milliseconds(kLimitMs);
    for (int round = 0; round < 200; ++round) {
      std::vector<float> data(100, 1);
      uint64_t ticket = 0;
      CHECK(sum(data, comms[static_cast<size_t>(rank)], stream) == hetcclSuccess);
      CHECK(hetcclHostStreamRecord(stream, &ticket) == hetcclSuccess);
      while (hetcclHostStreamQuery(stream, ticket) == hetcclInProgress && Clock::now() < end) {
        std::this_thread::yield();
      }
      CHECK(hetcclHostStreamQuery(stream, ticket) == hetcclSuccess);
      CHECK(all_are(data, 2));
    }
    CHECK(hetcclHostStreamDestroy(stream) == hetcclSuccess);
    CHECK(hetcclCommDestroy(comms[static_cast<size_t>(rank)]) == hetcclSuccess);
  });
}

TEST_CASE("a wait for what does not come ends at its deadline, and goes on later") {
  const auto comms = join(2, true);
  hetcclStream_t stream = nullptr;
  REQUIRE(hetcclHostStreamCreate(&stream) == hetcclSuccess);
  std::vector<float> mine(100, 1), others(100, 1);
  uint64_t ticket = 0;
  REQUIRE(sum(mine, comms[0], stream) == hetcclSuccess);
  REQUIRE(hetcclHostStreamRecord(stream, &ticket) == hetcclSuccess);
  CHECK(hetcclHostStreamQuery(stream, ticket) == hetcclInProgress);
  CHECK(hetcclHostStreamWait(stream, ticket, 0) == hetcclTimeout);
  CHECK(hetcclHostStreamWait(stream, ticket, 30) == hetcclTimeout);
  CHECK(std::string(hetcclGetLastError(nullptr)).find("30 ms") != std::string::npos);
  hetccl::fake::Thread other([&] { CHECK(sum(others, comms[1], nullptr) == hetcclSuccess); });
  CHECK(hetcclHostStreamWait(stream, ticket, -1) == hetcclSuccess);
  other.join();
  CHECK(all_are(mine, 2));
  CHECK(all_are(others, 2));
  CHECK(hetcclHostStreamDestroy(stream) == hetcclSuccess);
  for (auto* comm : comms) CHECK(hetcclCommDestroy(comm) == hetcclSuccess);
}

TEST_CASE("an abort ends a call that blocks on another thread, and the calls of all ranks") {
  for (const bool two : {false, true}) {
    CAPTURE(two);
    const auto comms = join(3, two);
    std::atomic<int> entered{0};
    hetcclResult_t results[2] = {};
    std::string texts[2];
    std::vector<hetccl::fake::Thread> blocked;
    for (size_t rank = 0; rank < 2; ++rank) {
      blocked.emplace_back([&, rank] {
        std::vector<float> data(1000, 1);
        ++entered;
        results[rank] = sum(data, comms[rank], nullptr);  // rank 2 never comes
        texts[rank] = hetcclGetLastError(nullptr);
      });
    }
    while (entered.load() < 2) std::this_thread::yield();
    std::this_thread::sleep_for(milliseconds(50));
    const auto start = Clock::now();
    CHECK(hetcclCommAbort(comms[0]) == hetcclSuccess);
    for (auto& thread : blocked) thread.join();
    CHECK(Clock::now() - start < milliseconds(kLimitMs / 2));
    for (size_t rank = 0; rank < 2; ++rank) {
      CHECK(results[rank] == hetcclAborted);
      CHECK(texts[rank].find("rank 0") != std::string::npos);
    }
    CHECK(hetcclCommDestroy(comms[0]) == hetcclInvalidArgument);
    CHECK(hetcclCommDestroy(comms[1]) == hetcclAborted);
    CHECK(hetcclCommAbort(comms[2]) == hetcclSuccess);
  }
}

TEST_CASE("destroy against a blocking call, an abort and a query on other threads") {
  for (int round = 0; round < 20; ++round) {
    CAPTURE(round);
    const auto comms = join(2, round % 2 == 0);
    // The rank that destroys first leaves the other to wait until its deadline.
    for (auto* comm : comms) REQUIRE(hetcclCommSetTimeout(comm, 200) == hetcclSuccess);
    std::vector<hetccl::fake::Thread> threads;
    for (auto* comm : comms) {
      threads.emplace_back([comm] {
        std::vector<float> data(1000, 1);
        for (int i = 0; i < 20 && sum(data, comm, nullptr) == hetcclSuccess; ++i) {
        }
      });
      threads.emplace_back([comm] {
        hetcclResult_t result{};
        for (int i = 0; i < 50; ++i) {
          static_cast<void>(hetcclCommGetAsyncError(comm, &result));
          static_cast<void>(hetcclGetLastError(comm));
        }
      });
      threads.emplace_back([comm, round] {
        std::this_thread::sleep_for(std::chrono::microseconds(100 * round));
        static_cast<void>(hetcclCommAbort(comm));
      });
      threads.emplace_back([comm] { static_cast<void>(hetcclCommDestroy(comm)); });
    }
    for (auto& thread : threads) thread.join();
    for (auto* comm : comms) CHECK(hetcclCommDestroy(comm) == hetcclInvalidArgument);
  }
}

TEST_CASE("communicators of one process do not disturb each other") {
  const auto first = join(3, true), second = join(2, false), third = join(1, false);
  const std::vector<hetcclComm_t>* const all[] = {&first, &second, &third};
  std::vector<hetccl::fake::Thread> threads;
  std::atomic<int> wrong{0};
  for (const auto* comms : all) {
    for (auto* comm : *comms) {
      threads.emplace_back([&wrong, comm, n = static_cast<float>(comms->size())] {
        for (size_t i = 0; i < 100; ++i) {
          std::vector<float> data(1 + i * 37, 1);
          if (sum(data, comm, nullptr) != hetcclSuccess || !all_are(data, n)) ++wrong;
        }
      });
    }
  }
  for (auto& thread : threads) thread.join();
  CHECK(wrong.load() == 0);

  // The end of one is none of another's business.
  CHECK(hetcclCommAbort(first[0]) == hetcclSuccess);
  on_all_ranks(2, [&](int rank) {
    std::vector<float> data(100, 1);
    CHECK(sum(data, second[static_cast<size_t>(rank)], nullptr) == hetcclSuccess);
    CHECK(all_are(data, 2));
  });
  for (size_t rank = 1; rank < 3; ++rank) CHECK(hetcclCommDestroy(first[rank]) == hetcclAborted);
  for (auto* comm : second) CHECK(hetcclCommDestroy(comm) == hetcclSuccess);
  CHECK(hetcclCommDestroy(third[0]) == hetcclSuccess);
}
