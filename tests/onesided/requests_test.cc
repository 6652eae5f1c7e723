// Gets request a bounded part, in pieces of the link's speed. A get that ends expects nothing more.
#include "onesided/requests.h"

#include <doctest/doctest.h>

#include <memory>
#include <vector>

namespace hetccl::onesided {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMiB = size_t{1} << 20;

// Gets into one region.
class Gets {
 public:
  Gets() {
    auto region = std::make_shared<Region>();
    region->data = memory_.data();
    region->bytes = memory_.size();
    region_ = regions_.add(region).value();
  }
  std::shared_ptr<Transfer> get(size_t bytes) {
    const std::vector<Block> blocks{{region_, 0, 7, 0, bytes}};
    return std::make_shared<Transfer>(false, BlockList::make(regions_, blocks).value(),
                                      Transfer::Options{});
  }
  // Requests in one frame what it may.
  Frame add(Transfer& get) {
    Frame frame{.kind = Frame::Kind::Get};
    requests.add(get, frame);
    get.begun = true;
    return frame;
  }

  Requests requests;
  TimePoint now{};

 private:
  Regions regions_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(64 * kMiB);
  uint64_t region_ = 0;
};

size_t bytes_of(const Frame& frame) {
  size_t bytes = 0;
  for (const Piece& piece : frame.pieces) bytes += piece.bytes;
  return bytes;
}

TEST_CASE("gets ask for a bounded part, and go on as it arrives or another one ends") {
  Gets gets;
  const auto one = gets.get(48 * kMiB), other = gets.get(16 * kMiB);
  CHECK(bytes_of(gets.add(*other)) == 8 * kMiB);
  for (int i = 0; i < 3; ++i) CHECK(bytes_of(gets.add(*one)) == 8 * kMiB);
  CHECK(gets.add(*one).pieces.empty());
  const auto places = gets.requests.take(*one, 1, gets.now);
  REQUIRE(places.size() == 1);
  CHECK(places[0].bytes == 4 * kMiB);
  CHECK(bytes_of(gets.add(*one)) == 4 * kMiB);
  gets.requests.drop(*other);
  CHECK(other->outstanding == 0);
  CHECK(bytes_of(gets.add(*one)) == 8 * kMiB);
  CHECK(one->outstanding == 8);
}

TEST_CASE("a get asks a slow link for short pieces, and they arrive as they were asked for") {
  Gets gets;
  const auto first = gets.get(17 * kMiB);
  for (int i = 0; i < 3; ++i) gets.add(*first);
  // It began before the link's speed was known. What is announced has not arrived.
  for (const size_t announced : {4, 4, 4, 4, 1}) {
    CHECK(gets.requests.take(*first, 1, gets.now)[0].bytes == announced * kMiB);
    gets.now += milliseconds(33);  // 1 Gbit/s
  }
  const auto second = gets.get(5 * kMiB / 2);
  const Frame frame = gets.add(*second);
  REQUIRE(frame.pieces.size() == 3);
  CHECK(frame.pieces[0].bytes == kMiB);
  CHECK(frame.pieces[2] == Piece{7, 2 * kMiB, kMiB / 2});
  const auto places = gets.requests.take(*second, 3, gets.now + milliseconds(60));
  CHECK(places[1].to.data == places[0].to.data + kMiB);
  CHECK(places[2].bytes == kMiB / 2);
  CHECK(second->outstanding == 0);
}

TEST_CASE("the length of the last announcement says nothing about the link") {
  Gets gets;
  const auto first = gets.get(12 * kMiB + 65536);
  for (int i = 0; i < 2; ++i) gets.add(*first);
  for (int i = 0; i < 4; ++i) {
    gets.requests.take(*first, 1, gets.now);
    gets.now += milliseconds(3);  // 11 Gbit/s
  }
  const auto second = gets.get(16 * kMiB);
  CHECK(gets.add(*second).pieces[0].bytes == 4 * kMiB);
}

}  // namespace
}  // namespace hetccl::onesided
