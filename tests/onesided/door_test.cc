// Doors of the control plane: knocks, their contents, and refusals.
#include <doctest/doctest.h>

#include <atomic>

#include "bootstrap/bootstrap.h"
#include "bootstrap/unique_id.h"
#include "fake/patience.h"

namespace hetccl::bootstrap {

namespace {

std::unique_ptr<Service> service() {
  Config config;
  config.socket_ifname = "=lo";
  return Service::create(config, Log{LogLevel::Error}).value();
}

}  // namespace

TEST_CASE("a door hears who knocks, and answers") {
  const auto host = service(), visitor = service();
  std::vector<uint8_t> heard;
  const UniqueId door = host->open_door([&](std::span<const uint8_t> words) -> Status {
                              if (words.empty()) return error(ErrorCode::SystemError, "busy");
                              heard.assign(words.begin(), words.end());
                              return {};
                            })
                            .value();
  const std::vector<uint8_t> words = {1, 2, 3};
  CHECK(visitor->knock(door, words, fake::kHangMs).ok());
  CHECK(heard == words);
  const Status refused = visitor->knock(door, {}, fake::kHangMs);
  CHECK(refused.code() == ErrorCode::SystemError);
  CHECK(refused.message() == "busy");
  CHECK(visitor->knock(door, std::vector<uint8_t>(kMaxKnock + 1), fake::kHangMs).code() ==
        ErrorCode::InvalidArgument);
  host->close_door(door);
  const Status late = visitor->knock(door, words, fake::kHangMs);
  CHECK(late.code() == ErrorCode::RemoteError);
  CHECK_MESSAGE(late.message() == "whoever opened at this id has closed", late.message());
}

TEST_CASE("a door is forgotten once many others have closed") {
  const auto host = service(), visitor = service();
  const auto opens = [](auto) -> Status { return {}; };
  const UniqueId first = host->open_door(opens).value();
  host->close_door(first);
  for (int i = 0; i < 64; ++i) host->close_door(host->open_door(opens).value());
  const Status late = visitor->knock(first, {}, 300);
  CHECK_FALSE(late.ok());
  CHECK(late.message().find("has closed") == std::string::npos);
}

TEST_CASE("who does not know the door's secret is not heard") {
  const auto host = service(), stranger = service();
  std::atomic<int> heard{0};
  const UniqueId door = host->open_door([&](auto) -> Status {
                              ++heard;
                              return {};
                            })
                            .value();
  Invitation guessed = decode(door).value();
  guessed.secret = net::random_secret();
  mark_host(guessed);  // by the secret
  const Status refused = stranger->knock(encode(guessed), {}, 500);
  CHECK_MESSAGE(refused.message().find("secret") != std::string::npos, refused.message());
  CHECK(heard == 0);
  host->close_door(door);
}

TEST_CASE("an id for who knows a door travels without its secret") {
  const auto host = service(), visitor = service();
  const UniqueId door = host->open_door([](auto) -> Status { return {}; }).value();
  const UniqueId id = visitor->unique_id_for(door).value();
  CHECK(conceal(id) != id);
  CHECK(host->reveal_for(door, conceal(id)).value() == id);
  visitor->withdraw(id);
  host->close_door(door);
  CHECK(visitor->idle());
  CHECK(host->idle());
}

}  // namespace hetccl::bootstrap
