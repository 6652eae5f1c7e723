// Failures of endpoints: regions that are gone, peers that leave, calls that are cancelled.
#include <doctest/doctest.h>

#include <thread>

#include "bootstrap/unique_id.h"
#include "onesided/pair.h"

namespace hetccl::onesided {

namespace {

bool says(const Status& status, const char* text) {
  return status.message().find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("a block of a region that is gone, or outside it, fails the transfer by name") {
  for (const bool puts : {true, false}) {
    for (const bool on_device : {false, true}) {
      CAPTURE(puts);
      CAPTURE(on_device);
      End prefill("prefill", {on_device, "a"}), decode("decode", {on_device, "b"});
      const uint64_t peer = connect(prefill, decode);
      const auto content = pattern(9'000'000, 2);
      const auto own = prefill.add(pattern(9'000'000, 1)), other = decode.add(content);
      const auto gone = decode.add(pattern(100, 3));
      CHECK(decode->remove_region(gone.region, fake::kHangMs).ok());
      const auto first = prefill.begin(peer, puts, {{own.region, 0, gone.region, 0, 100}});
      const Status missing = prefill.wait(*first);
      CHECK(missing.code() == ErrorCode::InvalidArgument);
      CHECK_MESSAGE(says(missing, "is not registered, or not any more"), missing.message());
      CHECK_MESSAGE(says(missing, "\"decode\""), missing.message());
      // A long one has moved the blocks before, and the link goes on.
      const auto second = prefill.begin(peer, puts,
                                        {{own.region, 0, other.region, 0, 8'500'000},
                                         {own.region, 0, other.region, 8'999'990, 11}});
      CHECK(says(prefill.wait(*second), "lie outside region"));
      const auto third = prefill.begin(peer, puts, {{own.region, 5, other.region, 5, 1000}});
      CHECK(prefill.wait(*third).ok());
    }
  }
}

TEST_CASE("peers have the rights that a region gives") {
  End prefill("prefill", {false, "a"}), decode("decode", {false, "a"});
  const uint64_t peer = connect(prefill, decode);
  const auto own = prefill.add(pattern(100, 1));
  const auto to_get = decode.add(pattern(100, 2), kGet), to_put = decode.add(pattern(100, 3), kPut);
  const auto begin = [&](bool puts, const End::Memory& memory) {
    return prefill.wait(*prefill.begin(peer, puts, {{own.region, 0, memory.region, 0, 100}}));
  };
  CHECK(says(begin(true, to_get), "may not be written by peers"));
  CHECK(says(begin(false, to_put), "may not be read by peers"));
  CHECK(begin(true, to_put).ok());
  CHECK(begin(false, to_get).ok());
}

TEST_CASE("arguments that are wrong are refused before anything moves") {
  End one("one", {false, "a"}), other("other", {false, "a"});
  const uint64_t peer = connect(one, other);
  const auto memory = one.add(pattern(100, 1));
  CHECK(says(
      one->prepare(std::vector<Block>{{memory.region, 0, 1, 0, 100}, {memory.region, 1, 1, 0, 100}})
          .status(),
      "block 1: 100 bytes from byte 1 on lie outside"));
  CHECK(says(one->prepare(std::vector<Block>{{5, 0, 1, 0, 1}}).status(),
             "region 5 is not registered"));
  CHECK(says(one->prepare(std::vector<Block>{{memory.region, UINT64_MAX, 1, 0, 9}}).status(),
             "9 bytes from byte 18446744073709551615 on lie outside"));
  CHECK(one->add_region(nullptr, 1, kGet, "").status().code() == ErrorCode::InvalidArgument);
  CHECK(one->add_region(memory.data, 0, kGet, "").status().code() == ErrorCode::InvalidArgument);
  CHECK(one->add_region(memory.data, 1, 64, "").status().code() == ErrorCode::InvalidArgument);
  CHECK(one->notify(peer, Bytes(kMaxNotification + 1)).code() == ErrorCode::InvalidArgument);
  CHECK(one->notify(99, {}).code() == ErrorCode::InvalidArgument);
  CHECK(one->disconnect(99).code() == ErrorCode::InvalidArgument);
  CHECK(one->connect("{}", 100).status().code() == ErrorCode::InvalidArgument);
  CHECK(Endpoint::create(one.runtime(), {"", ""}).status().code() == ErrorCode::InvalidArgument);
  CHECK(Endpoint::create(one.runtime(), {"a\nb", ""}).status().code() ==
        ErrorCode::InvalidArgument);
}

TEST_CASE("a transfer that is cancelled ends, and no byte of it moves after that") {
  for (const bool puts : {true, false}) {
    for (const bool on_device : {false, true}) {
      CAPTURE(puts);
      CAPTURE(on_device);
      End prefill("prefill", {on_device, "a"}), decode("decode", {on_device, "b"});
      const uint64_t peer = connect(prefill, decode);
      const size_t bytes = 12'000'000;
      const auto own = prefill.add(pattern(bytes, 1)), other = decode.add(pattern(bytes, 2));
      const auto transfer = prefill.begin(peer, puts, {{own.region, 0, other.region, 0, bytes}});
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
      prefill->cancel(peer, *transfer, "nobody wants it");
      const Status status = prefill.wait(*transfer);
      if (status.ok()) continue;  // it was quicker
      CHECK(status.code() == ErrorCode::Aborted);
      CHECK(says(status, "nobody wants it"));
      const auto& [end, memory] = puts ? std::pair(&decode, &other) : std::pair(&prefill, &own);
      const auto now = end->read(*memory);
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      CHECK(end->read(*memory) == now);
      const auto next = prefill.begin(peer, puts, {{own.region, 0, other.region, 0, 100}});
      CHECK(prefill.wait(*next).ok());
    }
  }
}

TEST_CASE("a transfer that is not done in its time says so, and the link goes on") {
  End prefill("prefill", {false, "a"}), decode("decode", {false, "b"});
  const uint64_t peer = connect(prefill, decode);
  const size_t bytes = 24'000'000;
  const auto own = prefill.add(pattern(bytes, 1)), other = decode.add(pattern(bytes, 2));
  const std::vector<Block> all = {{own.region, 0, other.region, 0, bytes}};
  const Status late = prefill.wait(*prefill.begin(peer, true, all, {}, 1));
  CHECK(late.code() == ErrorCode::Timeout);
  CHECK(says(late, "a put of 24000000 bytes with \"decode\""));
  CHECK(prefill.wait(*prefill.begin(peer, true, {{own.region, 0, other.region, 0, 9}})).ok());
}

TEST_CASE("the end of a peer ends its transfers by name, and its memory is free") {
  for (const bool on_device : {false, true}) {
    CAPTURE(on_device);
    End prefill("prefill", {on_device, "a"});
    auto decode = std::make_unique<End>("decode", Kind{on_device, "b"});
    const uint64_t peer = connect(prefill, *decode);
    const size_t bytes = 12'000'000;
    const auto own = prefill.add(pattern(bytes, 1)), other = decode->add(pattern(bytes, 2));
    const auto put = prefill.begin(peer, true, {{own.region, 0, other.region, 0, bytes}});
    const auto get = prefill.begin(peer, false, {{own.region, 0, other.region, 0, bytes}});
    decode.reset();
    for (const auto& transfer : {put, get}) {
      const Status status = prefill.wait(*transfer);
      if (status.ok()) continue;
      CHECK_MESSAGE(says(status, "\"decode\""), status.message());
    }
    CHECK(prefill->remove_region(own.region, fake::kHangMs).ok());
    const TimePoint end = soon();  // the peer's last bytes are read for a moment
    while (prefill->peer(peer).value().gone.ok() && steady_clock().now() < end)
      std::this_thread::yield();
    CHECK(says(prefill->notify(peer, {}), "\"decode\""));
    CHECK_FALSE(prefill->peer(peer).value().gone.ok());
  }
}

TEST_CASE("a region is not removed while a transfer uses it") {
  End prefill("prefill", {false, "a"}), decode("decode", {false, "b"});
  const uint64_t peer = connect(prefill, decode);
  const size_t bytes = 16'000'000;
  const auto own = prefill.add(pattern(bytes, 1)), other = decode.add(pattern(bytes, 2));
  const auto put = prefill.begin(peer, true, {{own.region, 0, other.region, 0, bytes}});
  CHECK(decode->remove_region(other.region, fake::kHangMs).ok());
  const auto then = decode.read(other);
  const Status status = prefill.wait(*put);
  CHECK((status.ok() || says(status, "is not registered, or not any more")));
  CHECK(decode.read(other) == then);
  CHECK(prefill->remove_region(own.region, fake::kHangMs).ok());
}

TEST_CASE("where notifications are not taken nothing more is read, and nothing is lost") {
  End prefill("prefill", {false, "a"}), decode("decode", {false, "a"});
  const uint64_t peer = connect(prefill, decode);
  const size_t n = Mailbox::kMost + 3000;
  const TimePoint end = soon();
  for (size_t i = 0; i < n; ++i) {
    const Bytes number = {static_cast<uint8_t>(i), static_cast<uint8_t>(i >> 8U)};
    while (!prefill->notify(peer, number).ok()) {  // too many wait to leave
      REQUIRE(steady_clock().now() < end);
      std::this_thread::yield();
    }
  }
  while (decode->peers().front().statistics.stalls == 0) {
    REQUIRE(steady_clock().now() < end);
    std::this_thread::yield();
  }
  for (size_t i = 0; i < n; ++i) {
    const auto letter = decode->take_notification(end).value();
    REQUIRE(letter.has_value());
    REQUIRE(letter->bytes == Bytes{static_cast<uint8_t>(i), static_cast<uint8_t>(i >> 8U)});
  }
}

TEST_CASE("who does not know an endpoint's secret does not get in") {
  End decode("decode", {false, "a"}), stranger("stranger", {false, "a"});
  Metadata metadata = metadata_from(decode->metadata()).value();
  bootstrap::Invitation guessed = bootstrap::decode(metadata.door).value();
  guessed.secret = net::random_secret();
  bootstrap::mark_host(guessed);  // by the secret
  metadata.door = bootstrap::encode(guessed);
  const Status refused = stranger->connect(encode(metadata), 500).status();
  CHECK_MESSAGE(says(refused, "secret"), refused.message());
  CHECK(decode->peers().empty());
}

}  // namespace hetccl::onesided
