#include "ccl/solo/solo_library.h"

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

namespace hetccl::ccl {
namespace {

TEST_CASE("a rank alone gets what it gives, by copies") {
  int copies = 0;
  const auto library = make_solo_library([&](void*, void* to, const void* from, size_t bytes) {
    ++copies;
    std::memcpy(to, from, bytes);
    return Status();
  });
  CHECK(library->init({}, 2, 0, nullptr, 100).status().code() == ErrorCode::InternalError);
  const auto comm = library->init({}, 1, 0, nullptr, 100).value();
  const std::vector<float> send = {1, 2, 3};
  std::vector<float> recv(3);
  const auto type = DataType::Float32;
  REQUIRE(comm->all_reduce(send.data(), recv.data(), 3, type, {RedOp::Avg, {}}, nullptr).ok());
  CHECK(recv == send);
  REQUIRE(comm->all_reduce(recv.data(), recv.data(), 3, type, {RedOp::Sum, {}}, nullptr).ok());
  CHECK(copies == 1);  // in place nothing is copied
  CHECK_FALSE(library->supports(type, RedOp::PreMulSum));
  CHECK_FALSE(
      comm->all_reduce(send.data(), recv.data(), 3, type, {RedOp::PreMulSum, {}}, nullptr).ok());

  std::vector<float> a(1), b(2);
  const std::vector<Shard> shards = {{0, &send[2], a.data(), 1}, {0, &send[0], b.data(), 2}};
  REQUIRE(comm->reduce(shards, type, {RedOp::Max, {}}, nullptr).ok());
  CHECK(a[0] == 3);
  CHECK(b == std::vector<float>{1, 2});
  const std::vector<Shard> stranger = {{1, &send[0], a.data(), 1}};
  CHECK(comm->broadcast(stranger, type, nullptr).code() == ErrorCode::InvalidArgument);

  // The first send matches the first receive, wherever they are in the list.
  std::vector<float> first(1), second(2);
  auto* data = const_cast<float*>(send.data());
  const std::vector<Transfer> transfers = {{0, false, first.data(), 1},
                                           {0, true, data, 1},
                                           {0, true, data + 1, 2},
                                           {0, false, nullptr, 0},
                                           {0, false, second.data(), 2}};
  REQUIRE(comm->exchange(transfers, type, nullptr).ok());
  CHECK(first[0] == 1);
  CHECK(second == std::vector<float>{2, 3});
  CHECK(comm->barrier(nullptr).ok());
}

}  // namespace
}  // namespace hetccl::ccl
