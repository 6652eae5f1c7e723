#include "transport/tcp/routes.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>

#include <map>

namespace hetccl::transport::tcp {
namespace {

using Names = std::vector<std::string>;

net::SocketAddress address(const std::string& text, uint16_t port = 0) {
  net::SocketAddress made;
  if (text.find(':') != text.npos) {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(made.storage);
    v6.sin6_family = AF_INET6;
    REQUIRE(::inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr) == 1);
  } else {
    auto& v4 = reinterpret_cast<sockaddr_in&>(made.storage);
    v4.sin_family = AF_INET;
    REQUIRE(::inet_pton(AF_INET, text.c_str(), &v4.sin_addr) == 1);
  }
  return made.with_port(port);
}

struct At {
  std::string text;
  int prefix_bits;
  std::string card;
  int64_t mbps = 1000;
};

Endpoint endpoint(const std::vector<At>& ats, uint32_t streams, uint16_t port = 4000) {
  Endpoint made;
  made.streams = streams;
  for (const At& at : ats) {
    made.addresses.push_back(address(at.text, port));
    made.cards.push_back({at.card, at.prefix_bits, at.mbps});
  }
  return made;
}

/// Returns the first route of each stream.
Names firsts(const Endpoint& own, const Endpoint& peer, const Names& own_cards = {},
             const Names& peer_cards = {}) {
  Names texts;
  for (const auto& routes : routes_between(own, peer, own_cards, peer_cards))
    texts.push_back(routes.front().text());
  return texts;
}

const std::vector<At> kOwn = {{"10.0.0.1", 24, "up0"}, {"10.0.1.1", 24, "up1"}};
const std::vector<At> kPeer = {{"10.0.0.2", 24, "up0"}, {"10.0.1.2", 24, "up1"}};
const std::string kFirst = "10.0.0.2:4000 from 10.0.0.1 (card up0)";
const std::string kSecond = "10.0.1.2:4000 from 10.0.1.1 (card up1)";

TEST_CASE("between hosts of one card the system's routing table decides, as ever") {
  const auto routes = routes_between(endpoint({kOwn[0]}, 2), endpoint({kPeer[0]}, 2), {}, {});
  REQUIRE(routes.size() == 2);
  CHECK(net::list_of(routes[0]) == "10.0.0.2:4000");
  CHECK_FALSE(routes[0].front().from);
}

TEST_CASE("cards meet by subnet, and each has a stream") {
  const auto routes = routes_between(endpoint(kOwn, 2), endpoint(kPeer, 2), {}, {});
  REQUIRE(routes.size() == 2);
  CHECK(routes[0].front().text() == kFirst);
  CHECK(routes[1].front().text() == kSecond);
  // If a NIC reaches nothing, its stream takes another NIC, and finally the system's routes.
  CHECK(net::list_of(routes[1]) == kSecond + ", " + kFirst + ", 10.0.0.2:4000, 10.0.1.2:4000");
}

TEST_CASE("faster cards have more of the streams, and slow ones one at least") {
  std::vector<At> own = kOwn, peer = kPeer;
  own[0].mbps = peer[0].mbps = 4000;
  std::map<std::string, int> count;
  for (const auto& text : firsts(endpoint(own, 5), endpoint(peer, 5))) ++count[text];
  CHECK(count[kFirst] == 4);
  CHECK(count[kSecond] == 1);
  own[0].mbps = 0;  // unknown: treated as equal
  count.clear();
  for (const auto& text : firsts(endpoint(own, 4), endpoint(peer, 4))) ++count[text];
  CHECK(count[kFirst] == 2);
  CHECK(count[kSecond] == 2);
}

TEST_CASE("the ranks' own cards carry their channel; the dialler's where they do not meet") {
  const Endpoint own = endpoint(kOwn, 2), peer = endpoint(kPeer, 2);
  CHECK(firsts(own, peer, {"up1"}, {"up1"}) == Names{kSecond, kSecond});
  CHECK(firsts(own, peer, {"up0"}, {"up1"}) == Names{kFirst, kFirst});
  CHECK(firsts(own, peer, {"up1"}, {"up0", "up1"}) == Names{kSecond, kSecond});
  CHECK(firsts(own, peer, {"other"}, {"up1"}) == Names{kSecond, kSecond});
}

TEST_CASE("a host of one card reaches both cards of another in its subnet") {
  const Endpoint own = endpoint({{"10.0.0.1", 16, "eth0"}}, 2);
  const Endpoint peer = endpoint({{"10.0.0.2", 16, "a"}, {"10.0.1.2", 16, "b"}}, 2);
  CHECK(firsts(own, peer) == Names{"10.0.0.2:4000 from 10.0.0.1", "10.0.1.2:4000 from 10.0.0.1"});
  CHECK(firsts(peer, own) ==
        Names{"10.0.0.1:4000 from 10.0.0.2 (card a)", "10.0.0.1:4000 from 10.0.1.2 (card b)"});
}

TEST_CASE("what only looks like the peer's subnet is no route of a card's") {
  const auto plain = [](const std::vector<At>& own, const std::vector<At>& peer) {
    for (const auto& routes : routes_between(endpoint(own, 2), endpoint(peer, 2), {}, {})) {
      for (const net::Route& route : routes) {
        if (route.from) return false;
      }
    }
    return true;
  };
  CHECK_FALSE(plain(kOwn, kPeer));
  CHECK(plain(kOwn, kOwn));  // this host
  const At bridge = {"192.168.122.1", 24, "virbr0"};
  CHECK(plain({{"10.0.0.1", 24, "a"}, bridge}, {{"10.0.9.1", 24, "a"}, bridge}));
  CHECK(plain({{"10.0.0.1", 32, "a"}, {"10.0.1.1", 32, "b"}}, {{"10.0.0.2", 32, "a"}}));
  CHECK(plain({{"10.0.0.1", 24, "a"}, {"10.0.1.1", 24, "b"}}, {{"10.0.0.2", 25, "a"}}));
  CHECK(plain({{"10.0.0.1", 0, "a"}, {"10.0.1.1", 0, "b"}}, {{"10.0.0.2", 0, "a"}}));
  CHECK(plain({{"10.0.0.1", 24, ""}, {"10.0.1.1", 24, "b"}}, {{"10.0.0.2", 24, "a"}}));
  CHECK(plain({{"127.0.0.1", 8, "lo"}, {"10.0.1.1", 24, "b"}}, {{"127.0.0.2", 8, "lo"}}));
  CHECK_FALSE(plain({{"fd00::1", 64, "a"}, {"fd00:0:0:1::1", 64, "b"}}, {{"fd00::2", 64, "a"}}));
  CHECK(plain({{"fd00::1", 63, "a"}, {"fd00:0:0:2::1", 63, "b"}}, {{"fd00:0:0:4::2", 63, "a"}}));
  CHECK_FALSE(
      plain({{"fd00::1", 63, "a"}, {"fd00:0:0:2::1", 63, "b"}}, {{"fd00:0:0:1::2", 63, "a"}}));
}

TEST_CASE("a card with two addresses is one card") {
  const std::vector<At> own = {{"10.0.0.1", 24, "a"}, {"fd00::1", 64, "a"}, {"10.0.1.1", 24, "b"}};
  const std::vector<At> peer = {{"10.0.0.2", 24, "a"}, {"fd00::2", 64, "a"}, {"10.0.1.2", 24, "b"}};
  CHECK(firsts(endpoint(own, 2), endpoint(peer, 2)) ==
        Names{"10.0.0.2:4000 from 10.0.0.1 (card a)", "10.0.1.2:4000 from 10.0.1.1 (card b)"});
  CHECK(count_cards(endpoint(own, 2)) == 2);
  CHECK(card_at(address("fd00::1"), endpoint(own, 2)).name == "a");
  CHECK(card_at(address("10.0.9.9"), endpoint(own, 2)).name.empty());
}

TEST_CASE("an endpoint keeps what it says of cards, and refuses what is none") {
  const Endpoint own =
      endpoint({{"10.0.0.1", 24, "a-very-long-nam", 400'000}, {"fd00::1", 64, "", 0}}, 3);
  const Address bytes = encode(own);
  auto read = decode(bytes);
  REQUIRE(read.ok());
  CHECK(read->cards[0].name == "a-very-long-nam");
  CHECK(read->cards[0].prefix_bits == 24);
  CHECK(read->cards[0].mbps == 400'000);
  CHECK(read->cards[1].name.empty());
  CHECK(encode(read.value()) == bytes);
  const auto with = [&](size_t place, uint8_t byte) {
    Address changed = bytes;
    changed[3 + place] = byte;
    return decode(changed).ok();
  };
  CHECK_FALSE(with(20, 129));   // bits of a prefix
  CHECK_FALSE(with(25, 16));    // a name longer than the field
  CHECK_FALSE(with(26, '\n'));  // not printable
  CHECK_FALSE(with(26, '/'));
  CHECK_FALSE(with(25, 3));  // bytes after the name
}

}  // namespace
}  // namespace hetccl::transport::tcp
