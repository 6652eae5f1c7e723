// Messages whose memory is a list of pieces, over every transport that takes lists.
#include <doctest/doctest.h>

#include <array>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "contract/transport_kinds.h"
#include "fake/patience.h"
#include "fake/reference.h"
#include "fake/thread.h"
#include "transport/message.h"

namespace hetccl::transport {
namespace {

using Bytes = std::vector<uint8_t>;

struct Pair {
  explicit Pair(const Kind& kind) {
    for (size_t i = 0; i < 2; ++i) {
      ranks[i] = kind.make().value();
      addresses[i] = ranks[i]->listen().value();
    }
    fake::Thread other([this] { join(1); });
    join(0);
    other.join();
    REQUIRE(channels[0]);
    REQUIRE(channels[1]);
  }
  void join(int self) {
    auto made = ranks[static_cast<size_t>(self)]->connect(
        {7, self, 1 - self}, addresses[static_cast<size_t>(1 - self)], Bytes(32, 1), fake::kHangMs);
    CHECK_MESSAGE(made.ok(), made.status().message());
    if (made.ok()) channels[static_cast<size_t>(self)] = std::move(made).value();
  }
  template <typename Done>
  void until(const Done& done) {
    for (const auto end = steady_clock().now() + fake::kHang; !done();) {
      for (const auto& rank : ranks) rank->progress();
      REQUIRE_MESSAGE(steady_clock().now() < end, channels[0]->status().message()
                                                      << " / " << channels[1]->status().message());
    }
  }
  std::array<std::unique_ptr<Transport>, 2> ranks;
  std::array<Address, 2> addresses;
  std::array<std::unique_ptr<Channel>, 2> channels;
};

// Memory of a message in scattered pieces, with bytes between them that nothing may touch.
struct Scattered {
  static constexpr uint8_t kBetween = 0x5a;
  Scattered(size_t bytes, size_t longest, std::mt19937& random) {
    for (size_t left = bytes; left > 0 || list.empty();) {
      const size_t piece = random() % 5 == 0 ? 0 : std::min(left, 1 + random() % longest);
      sizes.push_back(piece);
      left -= piece;
      list.push_back({});
    }
    memory.assign(bytes + 3 * sizes.size() + 3, kBetween);
    size_t at = 3;
    for (size_t i = 0; i < sizes.size(); at += sizes[i++] + 3) list[i] = {&memory[at], sizes[i]};
    std::shuffle(list.begin(), list.end(), random);
  }
  void fill(const Bytes& from) const {
    size_t at = 0;
    for (const iovec& piece : list) {
      if (piece.iov_len > 0) std::memcpy(piece.iov_base, &from[at], piece.iov_len);
      at += piece.iov_len;
    }
  }
  // Returns the message, and checks the bytes between its pieces.
  [[nodiscard]] Bytes read() {
    Bytes message;
    for (const iovec& piece : list) {
      const auto* data = static_cast<const uint8_t*>(piece.iov_base);
      message.insert(message.end(), data, data + piece.iov_len);
      if (piece.iov_len > 0) std::memset(piece.iov_base, kBetween, piece.iov_len);
    }
    CHECK(memory == Bytes(memory.size(), kBetween));
    return message;
  }
  std::vector<size_t> sizes;
  std::vector<iovec> list;
  Bytes memory;
};

Parcel parcel_of(Scattered& memory, size_t bytes, uint64_t number) {
  Parcel parcel;
  parcel.bytes = bytes;
  parcel.info = {7, number, 0, 1, {Collective::PointToPoint, DataType::Uint8}};
  parcel.list = memory.list;
  return parcel;
}

std::vector<Kind> kinds_with_lists() {
  std::vector<Kind> all;
  for (const Kind& kind : kinds()) {
    const std::string name = kind.name;
    if (name.starts_with("tcp") || name.starts_with("shm")) all.push_back(kind);
  }
  return all;
}

TEST_CASE("both ends of a channel say alike whether it takes lists") {
  for (const Kind& kind : kinds()) {
    INFO(std::string(kind.name));
    const Pair pair(kind);
    CHECK(pair.channels[0]->takes_lists() == pair.channels[1]->takes_lists());
  }
  for (const Kind& kind : kinds_with_lists()) {
    INFO(std::string(kind.name));
    CHECK(Pair(kind).channels[0]->takes_lists());
  }
}

TEST_CASE("messages in lists arrive, however each end cuts them") {
  for (const Kind& kind : kinds_with_lists()) {
    INFO(std::string(kind.name));
    Pair pair(kind);
    std::mt19937 random(11);
    std::vector<size_t> sizes = {0, 1, 5000, 8192, 262'144, 262'145, 1 << 20, 0, 3'000'000};
    for (int i = 0; i < 30; ++i) sizes.push_back(random() % (1U << (random() % 19)));
    struct Message {
      Bytes content, whole;  // whole: an end that has it in one piece
      Scattered from, to;
      bool is_list[2];
    };
    std::vector<std::unique_ptr<Message>> messages[2];
    for (int side = 0; side < 2; ++side) {
      for (const size_t bytes : sizes) {
        const size_t longest = 1 + random() % (bytes / 3 + 10);
        const size_t other = 1 + random() % (bytes / 20 + 40);
        const bool from_list = random() % 4 > 0, to_list = random() % 4 > 0;
        auto message = std::make_unique<Message>(Message{Bytes(bytes),
                                                         Bytes(bytes),
                                                         Scattered(bytes, longest, random),
                                                         Scattered(bytes, other, random),
                                                         {from_list, to_list}});
        fake::fill(message->content.data(), bytes, random());
        message->from.fill(message->content);
        messages[side].push_back(std::move(message));
      }
    }
    size_t next[4] = {};
    const auto post = [&](size_t what) {
      const size_t end = what % 2, i = next[what];
      if (i == sizes.size()) return;
      ++next[what];
      const bool sends = what < 2;
      Message& message = *messages[sends ? end : 1 - end][i];
      Parcel parcel = parcel_of(sends ? message.from : message.to, sizes[i], i);
      if (!message.is_list[sends ? 0 : 1]) {
        parcel.list = {};
        parcel.data = sends ? message.content.data() : message.whole.data();
      }
      sends ? pair.channels[end]->post_send(parcel) : pair.channels[end]->post_recv(parcel);
    };
    pair.until([&] {
      if (random() % 3 == 0) post(random() % 4);
      for (const auto& channel : pair.channels)
        REQUIRE_MESSAGE(channel->status().ok(), channel->status().message());
      return std::all_of(pair.channels.begin(), pair.channels.end(), [&](const auto& channel) {
        return channel->sends_completed() == sizes.size() &&
               channel->recvs_completed() == sizes.size();
      });
    });
    for (auto& sent : messages) {
      for (const auto& message : sent) {
        CHECK((message->is_list[1] ? message->to.read() : message->whole) == message->content);
        CHECK(message->from.read() == message->content);
      }
    }
  }
}

TEST_CASE("a list of many short pieces is one message") {
  constexpr size_t kPieces = 5000, kBytes = 100;
  for (const Kind& kind : kinds_with_lists()) {
    INFO(std::string(kind.name));
    Pair pair(kind);
    Bytes from(2 * kPieces * kBytes), to(kPieces * kBytes);
    fake::fill(from.data(), from.size(), 1);
    std::vector<iovec> list;
    for (size_t i = 0; i < kPieces; ++i) list.push_back({&from[2 * i * kBytes], kBytes});
    Parcel out, in;
    out.list = list;
    in.data = to.data();
    out.bytes = in.bytes = to.size();
    const uint64_t before = pair.ranks[0]->bytes_sent();
    pair.channels[0]->post_send(out);
    pair.channels[1]->post_recv(in);
    pair.until([&] { return pair.channels[1]->recvs_completed() == 1; });
    pair.until([&] { return pair.channels[0]->sends_completed() == 1; });
    for (size_t i = 0; i < kPieces; ++i)
      REQUIRE(std::memcmp(&to[i * kBytes], list[i].iov_base, kBytes) == 0);
    CHECK(pair.ranks[0]->bytes_sent() - before <= to.size() + 10 * kHeaderBytes);
  }
}

TEST_CASE("a peer that leaves in the middle of a list is named") {
  for (const Kind& kind : kinds_with_lists()) {
    INFO(std::string(kind.name));
    Pair pair(kind);
    std::mt19937 random(5);
    const size_t bytes = 40 << 20;  // more than any buffer between them
    Scattered from(bytes, 100'000, random), to(bytes, 70'000, random);
    pair.channels[0]->post_send(parcel_of(from, bytes, 0));
    pair.channels[1]->post_recv(parcel_of(to, bytes, 0));
    for (int i = 0; i < 5; ++i) pair.ranks[0]->progress();
    pair.channels[0]->close();
    pair.until([&] { return !pair.channels[1]->status().ok(); });
    CHECK(pair.channels[1]->status().code() == ErrorCode::RemoteError);
    pair.channels[1]->close();
    static_cast<void>(to.read());
  }
}

}  // namespace
}  // namespace hetccl::transport
