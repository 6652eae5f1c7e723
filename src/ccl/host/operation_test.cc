#include "ccl/host/operation.h"

#include <doctest/doctest.h>

#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace hetccl;
using namespace hetccl::ccl;
using namespace hetccl::ccl::host;

namespace {

HostCall prepared(Kind kind, const std::vector<Shard>& shards, DataType type,
                  const Geometry& geometry) {
  HostCall operation;
  std::vector<size_t> scratch;
  operation.prepare(kind, shards, type, {RedOp::Sum}, {7, 0}, geometry, scratch);
  return operation;
}

}  // namespace

TEST_CASE("pieces cover every shard once and fit into a slot") {
  std::mt19937_64 random(5);
  for (int round = 0; round < 100; ++round) {
    const int n = static_cast<int>(1 + random() % 100);
    const Geometry geometry{n, static_cast<int>(1 + random() % 8)};
    const Kind kind = random() % 2 == 0 ? Kind::Reduce : Kind::Broadcast;
    std::vector<Shard> shards(random() % (HostCall::max_shards(geometry) + 1));
    for (Shard& shard : shards) {
      shard.root = static_cast<int>(random() % static_cast<uint64_t>(n));
      shard.count = random() % 3 == 0 ? random() % 4 : random() % 50'000;
    }
    const HostCall operation = prepared(kind, shards, DataType::Float64, geometry);
    std::vector<size_t> next(shards.size(), 0);
    bool contiguous = true, fits = true;
    const uint64_t first = random() % 1000;  // chunk number of the operation
    for (uint64_t k = 0; k < operation.n_chunks; ++k) {
      std::vector<size_t> used(static_cast<size_t>(n), 0);
      for (size_t s = 0; s < shards.size(); ++s) {
        const Range piece = operation.piece(shards[s].count, k);
        contiguous &= piece.begin == next[s];
        next[s] = piece.end;
        // A broadcast's slots only hold the pieces of their own rank.
        used[kind == Kind::Broadcast ? static_cast<size_t>(shards[s].root) : 0] +=
            operation.slot_bytes(piece);
      }
      const size_t place = operation.place(first + k);
      for (size_t bytes : used) fits &= place + bytes <= geometry.slot_bytes();
    }
    CHECK(contiguous);
    CHECK(fits);
    for (size_t s = 0; s < shards.size(); ++s) contiguous &= next[s] == shards[s].count;
    CHECK(contiguous);
  }
}

TEST_CASE("chunks turn through their slots, but for those so short that caches may keep them") {
  const Geometry geometry{2};
  for (const size_t bytes : {size_t{1024}, size_t{4096}, size_t{65'536}, geometry.slot_bytes()}) {
    const HostCall operation =
        prepared(Kind::AllReduce, {{0, nullptr, nullptr, bytes}}, DataType::Int8, geometry);
    std::set<size_t> begins;
    for (uint64_t chunk = 0; chunk < 1000 * kDepth; chunk += kDepth) {
      const size_t begin = operation.place(chunk);
      CHECK((begins.empty() || begin == 0 || begin >= *begins.rbegin() + bytes ||
             begins.contains(begin)));
      CHECK(operation.place(chunk + kDepth - 1) == begin);  // each slot was used once
      begins.insert(begin);
    }
    const bool turns = bytes > 1024 && bytes < geometry.slot_bytes();
    CHECK((begins.size() > 1) == turns);
    if (turns) CHECK(begins.size() * (bytes + 256) > geometry.slot_bytes() - bytes - 256);
  }
}

TEST_CASE("the segments of a chunk cover it, on whole cache lines") {
  for (int n : {1, 2, 3, 7, 100})
    for (size_t count : {0, 1, 63, 64, 1000, 65'537}) {
      const HostCall operation =
          prepared(Kind::AllReduce, {{0, nullptr, nullptr, count}}, DataType::BFloat16, {n});
      size_t next = 0;
      for (int r = 0; r < n; ++r) {
        const Range segment = operation.segment(count, r, n);
        CHECK(segment.begin == next);
        CHECK((segment.begin * 2 % 64 == 0 || segment.begin == count));
        next = segment.end;
      }
      CHECK(next == count);
    }
}

TEST_CASE("calls differ when any root, receiver or count does") {
  const std::vector<Shard> shards = {{0, nullptr, nullptr, 5}, {1, nullptr, nullptr, 6}};
  const auto call = [](std::vector<Shard> list) {
    return prepared(Kind::Reduce, list, DataType::Int8, {3}).call;
  };
  CHECK(call(shards) == call(shards));
  auto other = shards;
  other[1].root = 2;
  CHECK_FALSE(call(shards) == call(other));
  other = shards;
  other[1].receiver = 2;
  CHECK_FALSE(call(shards) == call(other));
  other = shards;
  std::swap(other[0].count, other[1].count);  // the same total
  CHECK_FALSE(call(shards) == call(other));
  CHECK(describe(call(shards)) == "call 7, reduce of 11 int8 in 2 shards, sum");
}

TEST_CASE("a segment stays within its budget for any number of ranks") {
  for (int n = 1; n <= kMaxRanks; n = n * 2 + 1) {
    for (const int threads : {1, 8}) {
      CHECK(Geometry{n, threads}.slot_bytes() >= 16384);
      CHECK(Geometry{n, threads}.total_bytes() <= size_t{66} << 20);
    }
  }
}

TEST_CASE("the first failure stays") {
  auto memory = SharedMemory::create(Geometry{2}.total_bytes());
  REQUIRE(memory.ok());
  const Segment segment(std::move(memory.value()), {2});
  CHECK(segment.failure().ok());
  segment.fail(error(ErrorCode::InvalidUsage, "%s", std::string(5000, 'x').c_str()));
  segment.fail(error(ErrorCode::Aborted, "later"));
  CHECK(segment.failure().code() == ErrorCode::InvalidUsage);
  CHECK(segment.failure().message().size() < 1024);
}
