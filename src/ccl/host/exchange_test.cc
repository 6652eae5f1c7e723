#include "ccl/host/exchange.h"

#include <doctest/doctest.h>

#include <random>
#include <utility>
#include <vector>

using namespace hetccl;
using namespace hetccl::ccl;
using namespace hetccl::ccl::host;

namespace {

// Returns distinct addresses that nothing reads or writes.
std::byte* place(size_t offset) {
  static std::vector<std::byte> memory(1 << 20);
  return memory.data() + offset;
}

// Walks all chunks of `exchange`: each byte is carried once, in order, and fits into its slot.
void check_chunks(Exchange& exchange, const Geometry& geometry) {
  size_t carried = 0, expected = 0;
  bool fits = true, ordered = true;
  for (const int r : exchange.receivers()) expected += exchange.to(r).bytes();
  for (uint64_t k = 0; k < exchange.n_chunks(); ++k) {
    size_t offset = Exchange::table_bytes(geometry.n_ranks);
    for (const int r : exchange.receivers()) {
      const size_t bytes = exchange.piece_bytes(exchange.to(r), k);
      size_t taken = 0;
      exchange.take(exchange.to(r), bytes, [&](std::byte*, size_t block) {
        taken += block;
        ordered &= block > 0;
      });
      ordered &= taken == bytes;
      carried += bytes;
      offset = exchange.align(offset + bytes);
    }
    fits &= offset <= geometry.slot_bytes();
    fits &= offset <= Exchange::table_bytes(geometry.n_ranks) + exchange.chunk_bytes();
  }
  CHECK(carried == expected);
  CHECK(fits);
  CHECK(ordered);
  for (const int r : exchange.receivers()) CHECK(exchange.to(r).left() == 0);
}

}  // namespace

TEST_CASE("chunks carry every byte once, and fit into a slot") {
  std::mt19937_64 random(3);
  Exchange exchange;  // reuses its memory
  for (const int n : {1, 2, 3, 17, 255, 256, 257, 1000, kMaxRanks})
    for (int round = 0; round < (n < 1000 ? 6 : 2); ++round) {
      const Geometry geometry{n, static_cast<int>(1 + random() % 8)};
      const int rank = static_cast<int>(random() % static_cast<uint64_t>(n));
      std::vector<Transfer> transfers;
      for (int peer = 0; peer < n; ++peer)
        for (size_t i = random() % 3; i > 0; --i) {
          const size_t count = random() % (round % 2 == 0 ? 40 : 9000);
          transfers.push_back({peer, true, place(0), count});
          if (peer == rank) transfers.push_back({peer, false, place(0), count});
        }
      exchange.prepare(transfers, DataType::Float64, geometry, rank);
      check_chunks(exchange, geometry);
    }
}

TEST_CASE("a stream is walked through its messages, none of them empty") {
  Exchange exchange;
  const std::vector<Transfer> transfers = {{1, true, place(0), 3},
                                           {1, false, place(50), 9},
                                           {1, true, place(10), 0},
                                           {1, true, place(20), 4}};
  exchange.prepare(transfers, DataType::Int16, {2}, 0);
  std::vector<std::pair<std::byte*, size_t>> blocks;
  for (const size_t bytes : {5, 4, 5})
    exchange.take(exchange.to(1), bytes,
                  [&](std::byte* data, size_t block) { blocks.emplace_back(data, block); });
  const std::vector<std::pair<std::byte*, size_t>> expected = {
      {place(0), 5}, {place(5), 1}, {place(20), 3}, {place(23), 5}};
  CHECK(blocks == expected);
  CHECK(exchange.sent_count() == 7);
  CHECK(exchange.received_bytes() == 18);
}

TEST_CASE("two equal streams of different messages have different digests") {
  Exchange one, other;
  one.prepare(std::vector<Transfer>{{1, true, place(0), 3}, {1, true, place(0), 4}},
              DataType::Uint8, {2}, 0);
  other.prepare(std::vector<Transfer>{{0, false, place(0), 4}, {0, false, place(0), 3}},
                DataType::Uint8, {2}, 1);
  CHECK(one.to(1).bytes() == other.from(0).bytes());
  CHECK(one.to(1).digest() != other.from(0).digest());
  CHECK(one.balance() + other.balance() != 0);
  other.prepare(std::vector<Transfer>{{0, false, place(0), 3}, {0, false, place(0), 4}},
                DataType::Uint8, {2}, 1);
  CHECK(one.to(1).digest() == other.from(0).digest());
  CHECK(one.balance() + other.balance() == 0);
  CHECK(one.balance() != 0);
}

TEST_CASE("readers of one slot take turns: receivers go up, senders go down") {
  std::vector<Transfer> transfers;
  for (int r = 0; r < 4; ++r)
    for (const bool send : {true, false}) transfers.push_back({r, send, place(0), 1});
  Exchange exchange;
  exchange.prepare(transfers, DataType::Uint8, {4}, 1);
  CHECK(std::vector<int>(exchange.receivers().begin(), exchange.receivers().end()) ==
        std::vector{2, 3, 0});
  CHECK(std::vector<int>(exchange.senders().begin(), exchange.senders().end()) ==
        std::vector{0, 3, 2});
}
