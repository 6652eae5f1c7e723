#include "device/gpu/pool.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

namespace hetccl::device::gpu {
namespace {

constexpr size_t kMib = size_t{1} << 20U;

// The vendor's memory: allocations not yet returned, and a limit.
struct Vendor {
  size_t taken = 0, calls = 0;
  size_t most = SIZE_MAX;  // limit of one call
  Pool::Take take = [this](void** memory, size_t bytes) {
    ++calls;
    if (bytes > most) return 2;
    ++taken;
    *memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    return 0;
  };
  Pool::Give give = [this](void* memory) {
    --taken;
    std::free(memory);
    return 0;
  };
};

struct Block {
  void* memory = nullptr;
  size_t bytes = 0;
  int mark = 0;
};

bool intact(const Block& block) {
  const auto* bytes = static_cast<const unsigned char*>(block.memory);
  for (size_t i = 0; i < block.bytes; i += 97) {
    if (bytes[i] != block.mark) return false;
  }
  return block.bytes == 0 || bytes[block.bytes - 1] == block.mark;
}

}  // namespace

TEST_CASE("blocks in use never overlap, and what was given back is found again") {
  Vendor vendor;
  {
    Pool pool(vendor.take, vendor.give);
    std::mt19937_64 random(7);
    std::vector<Block> blocks;
    for (int round = 0; round < 3000; ++round) {
      if (blocks.size() < 20 || random() % 2 == 0) {
        Block block;
        block.bytes = random() % (random() % 8 == 0 ? 3 * kMib : 5000);
        block.mark = static_cast<int>(random() % 256);
        REQUIRE(pool.allocate(&block.memory, block.bytes) == 0);
        CHECK(reinterpret_cast<uintptr_t>(block.memory) % 512 == 0);
        std::memset(block.memory, block.mark, block.bytes);
        blocks.push_back(block);
      } else {
        const size_t which = random() % blocks.size();
        REQUIRE(intact(blocks[which]));
        pool.free(blocks[which].memory);
        blocks.erase(blocks.begin() + static_cast<ptrdiff_t>(which));
      }
      if (blocks.size() < 60) continue;
      for (const Block& block : blocks) {
        REQUIRE(intact(block));
        pool.free(block.memory);
      }
      blocks.clear();
    }
    for (const Block& block : blocks) pool.free(block.memory);
    // Each chunk is one free block again.
    const size_t calls = vendor.calls;
    std::vector<void*> whole(vendor.taken);
    for (void*& memory : whole) REQUIRE(pool.allocate(&memory, 16 * kMib) == 0);
    CHECK(vendor.calls == calls);
    CHECK(vendor.taken > 1);
  }
  CHECK(vendor.taken == 0);
}

TEST_CASE("what the vendor refuses is its error, and smaller blocks are still to be had") {
  Vendor vendor;
  vendor.most = 20 * kMib;
  Pool pool(vendor.take, vendor.give);
  void* memory = nullptr;
  for (const size_t bytes : {21 * kMib, SIZE_MAX - 100, SIZE_MAX}) {
    CHECK(pool.allocate(&memory, bytes) == 2);
  }
  CHECK(memory == nullptr);
  REQUIRE(pool.allocate(&memory, 20 * kMib) == 0);
  void* other = nullptr;
  REQUIRE(pool.allocate(&other, 0) == 0);
  CHECK(other != memory);
  const size_t calls = vendor.calls;
  CHECK(pool.reserve(36 * kMib) == 0);
  CHECK(vendor.calls == calls);
  CHECK(pool.reserve(37 * kMib) == 0);
  CHECK(vendor.calls == calls + 1);
  pool.free(nullptr);
  pool.free(memory);
  void* again = nullptr;
  REQUIRE(pool.allocate(&again, 20 * kMib) == 0);
  CHECK(again == memory);
}

}  // namespace hetccl::device::gpu
