#include "transport/tcp/routes.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

#include "net/prefix.h"

namespace hetccl::transport::tcp {

namespace {

// An address as SocketAddress::encode writes it, without its port.
using Bytes = std::array<uint8_t, net::SocketAddress::kEncodedBytes>;

Bytes bytes_of(const net::SocketAddress& address) {
  Bytes bytes;
  address.with_port(0).encode(bytes.data());
  return bytes;
}

bool are_in_one_subnet(const net::SocketAddress& a, const CardOf& card_a,
                       const net::SocketAddress& b, const CardOf& card_b) {
  constexpr size_t kAddressAt = 4;
  const int length = a.storage.ss_family == AF_INET6 ? 128 : 32;
  const int bits = card_a.prefix_bits;
  if (a.storage.ss_family != b.storage.ss_family || bits != card_b.prefix_bits || bits <= 0 ||
      bits >= length || a.is_loopback())
    return false;
  const Bytes left = bytes_of(a), right = bytes_of(b);
  return net::share_prefix(left.data() + kAddressAt, right.data() + kAddressAt,
                           static_cast<size_t>(bits));
}

// A NIC of each end in the same subnet, as indices in their lists of addresses.
struct Pair {
  size_t own = 0, peer = 0;
  int strangers = 0;  // ends whose NIC is not among their rank's
};

bool has(const std::vector<std::string>& names, const std::string& name) {
  return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

// Returns pairs of NICs, those of both ranks first. For NICs with several addresses, takes the
// first pair.
std::vector<Pair> pairs_between(const Endpoint& own, const Endpoint& peer,
                                const std::vector<std::string>& own_cards,
                                const std::vector<std::string>& peer_cards) {
  std::set<Bytes> here;
  for (const net::SocketAddress& address : own.addresses) here.insert(bytes_of(address));
  std::set<std::pair<std::string, std::string>> seen;
  std::vector<Pair> pairs;
  for (size_t i = 0; i < own.cards.size(); ++i) {
    for (size_t j = 0; j < peer.cards.size(); ++j) {
      const CardOf &mine = own.cards[i], &theirs = peer.cards[j];
      // If this host has that address too, it is the peer's own host, or both hosts have it.
      if (mine.name.empty() || theirs.name.empty() || here.contains(bytes_of(peer.addresses[j])) ||
          !are_in_one_subnet(own.addresses[i], mine, peer.addresses[j], theirs) ||
          !seen.emplace(mine.name, theirs.name).second)
        continue;
      // The dialler's NIC weighs more: with its own one, data does not cross the host.
      const int strangers =
          (has(own_cards, mine.name) ? 0 : 2) + (has(peer_cards, theirs.name) ? 0 : 1);
      pairs.push_back({i, j, strangers});
    }
  }
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const Pair& a, const Pair& b) { return a.strangers < b.strangers; });
  return pairs;
}

// Distributes streams over NICs.
class Loads {
 public:
  Loads(const Endpoint& own, const Endpoint& peer, const std::vector<Pair>& pairs)
      : own_(own), peer_(peer) {
    known_ = std::all_of(pairs.begin(), pairs.end(), [&](const Pair& pair) {
      return own.cards[pair.own].mbps > 0 && peer.cards[pair.peer].mbps > 0;
    });
  }
  /// Returns a pair whose NICs have no stream yet; else the pair that is fastest with one more
  /// stream.
  [[nodiscard]] const Pair& next(const std::vector<Pair>& pairs) {
    const auto worse = [&](const Pair& a, const Pair& b) { return value(a) < value(b); };
    const Pair& best = *std::max_element(pairs.begin(), pairs.end(), worse);
    ++streams_[{0, best.own}];
    ++streams_[{1, best.peer}];
    return best;
  }

 private:
  using Value = std::tuple<int, double>;
  [[nodiscard]] double rate(const CardOf& card, size_t streams) const {
    return (known_ ? static_cast<double>(card.mbps) : 1.0) / static_cast<double>(streams + 1);
  }
  Value value(const Pair& pair) {
    const size_t own = streams_[{0, pair.own}], peer = streams_[{1, pair.peer}];
    return {(own == 0 ? 1 : 0) + (peer == 0 ? 1 : 0),
            std::min(rate(own_.cards[pair.own], own), rate(peer_.cards[pair.peer], peer))};
  }

  const Endpoint &own_, &peer_;
  bool known_ = false;
  std::map<std::pair<int, size_t>, size_t> streams_;  // by end and index
};

}  // namespace

std::vector<std::vector<net::Route>> routes_between(const Endpoint& own, const Endpoint& peer,
                                                    const std::vector<std::string>& own_cards,
                                                    const std::vector<std::string>& peer_cards) {
  std::vector<std::vector<net::Route>> routes(peer.streams);
  const bool one_card = count_cards(own) < 2 && count_cards(peer) < 2;
  const auto pairs =
      one_card ? std::vector<Pair>{} : pairs_between(own, peer, own_cards, peer_cards);
  const auto route_of = [&](const Pair& pair) {
    const std::string card = count_cards(own) < 2 ? "" : own.cards[pair.own].name;
    return net::Route{peer.addresses[pair.peer], own.addresses[pair.own].with_port(0), card, false};
  };
  std::vector<Pair> best;
  std::copy_if(pairs.begin(), pairs.end(), std::back_inserter(best),
               [&](const Pair& pair) { return pair.strangers == pairs.front().strangers; });
  Loads loads(own, peer, best);
  for (auto& of_stream : routes) {
    if (!pairs.empty()) {
      const Pair& chosen = loads.next(best);
      of_stream.push_back(route_of(chosen));
      of_stream.front().patient = true;  // the next route would overload another NIC for good
      for (const Pair& pair : pairs) {
        if (pair.own != chosen.own || pair.peer != chosen.peer) of_stream.push_back(route_of(pair));
      }
    }
    for (net::Route& route : net::routes_to(peer.addresses)) of_stream.push_back(std::move(route));
  }
  return routes;
}

CardOf card_at(const net::SocketAddress& address, const Endpoint& own) {
  const Bytes wanted = bytes_of(address);
  for (size_t i = 0; i < own.cards.size(); ++i) {
    if (bytes_of(own.addresses[i]) == wanted) return own.cards[i];
  }
  return {};
}

size_t count_cards(const Endpoint& endpoint) {
  std::set<std::string> names;
  for (const CardOf& card : endpoint.cards) {
    if (!card.name.empty()) names.insert(card.name);
  }
  return names.size();
}

}  // namespace hetccl::transport::tcp
