#include "base/shared_memory.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <utility>

using namespace hetccl;

TEST_CASE("a segment is zeroed, page-aligned and seen through a second mapping") {
  auto created = SharedMemory::create(100'000);
  REQUIRE(created.ok());
  CHECK(reinterpret_cast<uintptr_t>(created->data()) % 4096 == 0);
  CHECK(created->bytes() == 100'000);
  for (size_t i = 0; i < created->bytes(); ++i) REQUIRE(created->data()[i] == std::byte{0});
  auto attached = SharedMemory::attach(created->address());
  REQUIRE(attached.ok());
  created->data()[99'999] = std::byte{42};
  CHECK(attached->data()[99'999] == std::byte{42});
}

TEST_CASE("a forked process writes what its parent reads") {
  auto created = SharedMemory::create(4096);
  REQUIRE(created.ok());
  const SharedMemoryAddress address = created->address();
  const pid_t child = fork();
  if (child == 0) {
    auto attached = SharedMemory::attach(address);
    if (!attached.ok()) _exit(1);
    std::memcpy(attached->data(), "hello", 6);
    _exit(0);
  }
  int state = -1;
  REQUIRE(waitpid(child, &state, 0) == child);
  CHECK(state == 0);
  CHECK(std::strcmp(reinterpret_cast<char*>(created->data()), "hello") == 0);
}

TEST_CASE("a wrong address is refused with a reason") {
  auto created = SharedMemory::create(8192);
  REQUIRE(created.ok());
  SharedMemoryAddress wrong = created->address();
  wrong.token[3] ^= 1;
  CHECK(SharedMemory::attach(wrong).status().code() == ErrorCode::InvalidArgument);
  wrong = created->address();
  wrong.bytes += 4096;
  CHECK(SharedMemory::attach(wrong).status().code() == ErrorCode::InvalidArgument);
  wrong = created->address();
  wrong.bytes = ~uint64_t{0};
  CHECK(SharedMemory::attach(wrong).status().code() == ErrorCode::InvalidArgument);
  wrong = created->address();
  wrong.pid = 0x3fffffff;
  CHECK(SharedMemory::attach(wrong).status().code() == ErrorCode::SystemError);
  CHECK(SharedMemory::create(0).status().code() == ErrorCode::InvalidArgument);

  const SharedMemoryAddress address = created->address();
  created->close_descriptor();
  CHECK_FALSE(SharedMemory::attach(address).ok());
  created->data()[0] = std::byte{1};  // the mapping stays
}

TEST_CASE("moving a segment moves its mapping") {
  auto created = SharedMemory::create(4096);
  REQUIRE(created.ok());
  SharedMemory other = std::move(created.value());
  other.data()[5] = std::byte{5};
  SharedMemory third;
  third = std::move(other);
  CHECK(third.data()[5] == std::byte{5});
}
