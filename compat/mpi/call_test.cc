#include "mpi/call.h"

#include <doctest/doctest.h>

#include <string>

#include "mpi/word.h"

namespace hetccl::mpi {
namespace {

std::vector<Word> seen;

int note(Word a, Word b, Word c) {
  seen = {a, b, c};
  return 7;
}

int note_none() {
  seen.clear();
  return 8;
}

TEST_CASE("words reach a function of as many arguments") {
  CHECK(invoke(reinterpret_cast<void*>(note), Words(1, 2, 3)) == 7);
  CHECK(seen == std::vector<Word>{1, 2, 3});
  CHECK(invoke(reinterpret_cast<void*>(note_none), Words()) == 8);
  Words words(1, 3);
  words.insert(1, 2);
  CHECK(invoke(reinterpret_cast<void*>(note), words) == 7);
  CHECK(seen == std::vector<Word>{1, 2, 3});
}

TEST_CASE("an int's word may have anything in its upper half") {
  CHECK(to_int(0xdeadbeef'00000005U) == 5);
  CHECK(to_int(0x12345678'ffffffffU) == -1);
  CHECK(to_int(from_int(-7)) == -7);
}

TEST_CASE("collectives have the names of tuning files") {
  for (size_t i = 0; i < kCollectives; ++i) {
    const auto collective = static_cast<Collective>(i);
    CHECK(collective_of(name_of(collective)) == collective);
    CHECK(arguments_of(collective).ends_with('x'));
  }
  CHECK(!collective_of("scan"));
}

TEST_CASE("lists of numbers are of int or of MPI_Count") {
  const int small[] = {1, -2};
  const int64_t large[] = {1, int64_t{1} << 40};
  CHECK(Numbers(from_pointer(small), false)[1] == -2);
  CHECK(Numbers(from_pointer(large), true)[1] == int64_t{1} << 40);
}

TEST_CASE("a kept call has its own lists, and of a root's only on the root") {
  std::vector<int> counts = {3, 4};
  MpiCall call;
  call.collective = Collective::Gatherv;
  call.recv.counts = Numbers(from_pointer(counts.data()), false);
  call.recv.displs = Numbers(from_pointer(counts.data()), false);
  call.root = 1;
  const KeptCall root(call, 2, 1);
  counts = {9, 9};
  CHECK(root.call().recv.counts[1] == 4);
  call.recv.counts = Numbers(1, false);  // no address: reading it crashes
  call.recv.displs = Numbers(1, false);
  const KeptCall other(call, 2, 0);
}

TEST_CASE("buffers that mean nothing on a rank are not looked at") {
  MpiCall call;
  call.root = 0;
  call.collective = Collective::Bcast;
  CHECK(significant_sides(call, 0).send);
  CHECK(!significant_sides(call, 0).recv);
  CHECK(significant_sides(call, 1).recv);
  call.collective = Collective::Gather;
  CHECK(!significant_sides(call, 1).recv);
  call.send.in_place = true;
  CHECK(!significant_sides(call, 0).send);
  call.collective = Collective::Barrier;
  CHECK(!significant_sides(call, 0).send);
}

}  // namespace
}  // namespace hetccl::mpi
