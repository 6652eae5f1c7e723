// Gather, scatter, all-to-all, and blocks of any lengths with gaps between them.
#include <numeric>

#include "capi/threads.h"

namespace {

using namespace hetccl::capi_test;

using Counts = std::vector<size_t>;
constexpr int kRanks = 4;
constexpr size_t kGap = 3;

// Offsets of blocks with some elements between them.
Counts spread(const Counts& counts) {
  Counts displs;
  size_t next = kGap;
  for (const size_t count : counts) {
    displs.push_back(next);
    next += count + kGap;
  }
  return displs;
}

size_t extent(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), kGap * (counts.size() + 1));
}

float element(int from, int to, size_t i) {
  return static_cast<float>(1000 * from + 100 * to + static_cast<int>(i % 97));
}

// Block `b` of a buffer holds what `value(b, i)` says; gaps hold -1.
template <typename Value>
std::vector<float> filled(const Counts& counts, Value&& value) {
  std::vector<float> data(extent(counts), -1);
  const Counts displs = spread(counts);
  for (size_t b = 0; b < counts.size(); ++b)
    for (size_t i = 0; i < counts[b]; ++i) data[displs[b] + i] = value(static_cast<int>(b), i);
  return data;
}

// Elements that `from` sends to `to` in call number `call`.
size_t length(int call, int from, int to) {
  return static_cast<size_t>((call * 7 + from * 5 + to * 3) % 4) * 250;
}

uint64_t plans_of(hetcclComm_t comm) {
  hetcclCommStats_t stats;
  stats.size = sizeof stats;
  CHECK(hetcclCommGetStats(comm, &stats) == hetcclSuccess);
  return stats.plans;
}

}  // namespace

TEST_CASE("an all-to-all of other lengths in every call plans nothing") {
  for (const bool two : {false, true}) {
    const auto comms = join(kRanks, two);
    on_all_ranks(kRanks, [&](int rank) {
      hetcclComm_t comm = comms[static_cast<size_t>(rank)];
      uint64_t plans = 0;
      for (int call = 0; call < 12; ++call) {
        Counts out, in;
        for (int peer = 0; peer < kRanks; ++peer) {
          out.push_back(length(call, rank, peer));
          in.push_back(length(call, peer, rank));
        }
        const auto sent = filled(out, [&](int to, size_t i) { return element(rank, to, i); });
        const auto want = filled(in, [&](int from, size_t i) { return element(from, rank, i); });
        std::vector<float> got(want.size(), -1);
        const Counts from = spread(out), to = spread(in);
        CHECK(hetcclAllToAllV(sent.data(), out.data(), from.data(), got.data(), in.data(),
                              to.data(), hetcclFloat32, comm, nullptr) == hetcclSuccess);
        CHECK(got == want);
        if (call == 0) plans = plans_of(comm);
      }
      CHECK(plans_of(comm) == plans);
    });
    for (auto* comm : comms) CHECK(hetcclCommDestroy(comm) == hetcclSuccess);
  }
}

TEST_CASE("uneven gathers and scatters leave the gaps alone") {
  const Counts counts = {0, 700, 3, 2000};
  for (const bool two : {false, true}) {
    const auto comms = join(kRanks, two);
    on_all_ranks(kRanks, [&](int rank) {
      hetcclComm_t comm = comms[static_cast<size_t>(rank)];
      const size_t own = counts[static_cast<size_t>(rank)];
      const Counts displs = spread(counts);
      std::vector<float> mine(own);
      for (size_t i = 0; i < own; ++i) mine[i] = element(rank, 0, i);
      const auto all = filled(counts, [](int from, size_t i) { return element(from, 0, i); });

      std::vector<float> got(all.size(), -1);
      CHECK(hetcclAllGatherV(mine.data(), got.data(), counts.data(), displs.data(), hetcclFloat32,
                             comm, nullptr) == hetcclSuccess);
      CHECK(got == all);
      for (int root = 0; root < kRanks; ++root) {
        const bool is_root = rank == root;
        std::fill(got.begin(), got.end(), -1.0F);
        CHECK(hetcclGatherV(mine.data(), own, is_root ? got.data() : nullptr,
                            is_root ? counts.data() : nullptr, is_root ? displs.data() : nullptr,
                            hetcclFloat32, root, comm, nullptr) == hetcclSuccess);
        if (is_root) CHECK(got == all);
        std::vector<float> part(own, -1);
        CHECK(hetcclScatterV(is_root ? all.data() : nullptr, is_root ? counts.data() : nullptr,
                             is_root ? displs.data() : nullptr, part.data(), own, hetcclFloat32,
                             root, comm, nullptr) == hetcclSuccess);
        CHECK(part == mine);
      }
      std::vector<float> part(own, -1);
      CHECK(hetcclReduceScatterV(all.data(), counts.data(), displs.data(), part.data(),
                                 hetcclFloat32, hetcclSum, comm, nullptr) == hetcclSuccess);
      for (size_t i = 0; i < own; ++i) part[i] /= kRanks;
      CHECK(part == mine);
    });
    for (auto* comm : comms) CHECK(hetcclCommDestroy(comm) == hetcclSuccess);
  }
}

TEST_CASE("even gather, scatter and all-to-all, packed and in place") {
  constexpr size_t kCount = 1500;
  const auto comms = join(kRanks, true);
  on_all_ranks(kRanks, [&](int rank) {
    hetcclComm_t comm = comms[static_cast<size_t>(rank)];
    const auto own = kCount * static_cast<size_t>(rank);
    std::vector<float> whole(kCount * kRanks, -1), mine(kCount, static_cast<float>(rank));
    std::copy(mine.begin(), mine.end(), whole.begin() + static_cast<ptrdiff_t>(own));
    const bool is_root = rank == 2;
    CHECK(hetcclGather(is_root ? whole.data() + own : mine.data(), is_root ? whole.data() : nullptr,
                       kCount, hetcclFloat32, 2, comm, nullptr) == hetcclSuccess);
    for (size_t i = 0; is_root && i < whole.size(); ++i)
      CHECK(whole[i] == static_cast<float>(i / kCount));
    std::vector<float> part(kCount, -1);
    CHECK(hetcclScatter(whole.data(), is_root ? whole.data() + own : part.data(), kCount,
                        hetcclFloat32, 2, comm, nullptr) == hetcclSuccess);
    if (!is_root) CHECK(part == mine);
    std::vector<float> sent(kCount * kRanks), got(kCount * kRanks);
    for (size_t i = 0; i < sent.size(); ++i)
      sent[i] = element(rank, static_cast<int>(i / kCount), i % kCount);
    CHECK(hetcclAllToAll(sent.data(), got.data(), kCount, hetcclFloat32, comm, nullptr) ==
          hetcclSuccess);
    for (size_t i = 0; i < got.size(); ++i)
      REQUIRE(got[i] == element(static_cast<int>(i / kCount), rank, i % kCount));
  });
  for (auto* comm : comms) CHECK(hetcclCommDestroy(comm) == hetcclSuccess);
}

TEST_CASE("bad blocks are refused with the argument's name, and harm nobody") {
  const auto comms = join(2, false);
  hetcclComm_t comm = comms[0];
  std::vector<float> data(100), other(100);
  const Counts good = {10, 10}, huge = {SIZE_MAX / 8, 1}, uneven = {20, 0};
  const auto refused = [&](hetcclResult_t result, const char* text) {
    CHECK(result == hetcclInvalidArgument);
    CHECK(std::string(hetcclGetLastError(nullptr)).find(text) != std::string::npos);
  };
  refused(hetcclAllToAllV(data.data(), nullptr, nullptr, other.data(), good.data(), nullptr,
                          hetcclFloat32, comm, nullptr),
          "sendcounts is null");
  refused(
      hetcclAllGatherV(data.data(), other.data(), nullptr, nullptr, hetcclFloat32, comm, nullptr),
      "recvcounts is null");
  refused(hetcclAllGatherV(data.data(), other.data(), huge.data(), nullptr, hetcclFloat32, comm,
                           nullptr),
          "recvcounts");
  refused(hetcclAllToAllV(data.data(), uneven.data(), nullptr, other.data(), good.data(), nullptr,
                          hetcclFloat32, comm, nullptr),
          "20 elements are sent to this rank itself, and 10 received");
  refused(hetcclAllToAllV(data.data(), good.data(), nullptr, data.data() + 5, good.data(), nullptr,
                          hetcclFloat32, comm, nullptr),
          "overlap");
  refused(hetcclAllToAll(data.data(), data.data(), 10, hetcclFloat32, comm, nullptr), "overlap");
  refused(hetcclGatherV(data.data(), 10, nullptr, good.data(), nullptr, hetcclFloat32, 0, comm,
                        nullptr),
          "recvbuff is null");
  refused(hetcclScatterV(data.data(), good.data(), nullptr, nullptr, 10, hetcclFloat32, 0, comm,
                         nullptr),
          "recvbuff is null");
  refused(hetcclGatherV(data.data(), 10, other.data(), good.data(), nullptr, hetcclFloat32, 2, comm,
                        nullptr),
          "root is 2");
  on_all_ranks(2, [&](int rank) {
    CHECK(hetcclBarrier(comms[static_cast<size_t>(rank)], nullptr) == hetcclSuccess);
  });
  for (auto* one : comms) CHECK(hetcclCommDestroy(one) == hetcclSuccess);
}

TEST_CASE("ranks whose counts differ are both named") {
  for (const bool two : {false, true}) {
    const auto comms = join(2, two);
    on_all_ranks(2, [&](int rank) {
      hetcclComm_t comm = comms[static_cast<size_t>(rank)];
      std::vector<float> data(100), other(100);
      const Counts out = {10, rank == 0 ? 11U : 10U}, in = {10, 10};
      auto result = hetcclAllToAllV(data.data(), out.data(), nullptr, other.data(), in.data(),
                                    nullptr, hetcclFloat32, comm, nullptr);
      if (result == hetcclSuccess) result = hetcclBarrier(comm, nullptr);
      CHECK(result != hetcclSuccess);
      const std::string text = hetcclGetLastError(nullptr);
      CAPTURE(text);
      if (two) {
        CHECK(text.find("rank 0 sent") != std::string::npos);
        CHECK(text.find("rank 1") != std::string::npos);
        CHECK(text.find("44 bytes") != std::string::npos);
      } else {
        CHECK(text.find("ranks 1 and 0 passed different counts") != std::string::npos);
      }
    });
    for (auto* one : comms) hetcclCommAbort(one);
  }
}
