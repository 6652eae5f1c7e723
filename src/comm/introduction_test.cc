#include "comm/introduction.h"

#include <doctest/doctest.h>

#include <set>

#include "fake/thread.h"

namespace hetccl::comm {
namespace {

using Cards = std::vector<std::vector<uint8_t>>;

Cards cards(int n_ranks) {
  Cards encoded;
  for (int rank = 0; rank < n_ranks; ++rank) {
    Card card;
    card.version = 100;
    card.info.rank = rank;
    card.info.host = "h";
    card.info.vendor = "host";
    card.addresses["tcp"] = {static_cast<uint8_t>(rank)};
    encoded.push_back(encode(card));
  }
  return encoded;
}

TEST_CASE("cards become a topology and addresses, once for all ranks of a process") {
  Introductions introductions;
  const Cards encoded = cards(3);
  std::vector<std::shared_ptr<const Introduction>> made(8);
  std::vector<fake::Thread> threads;
  for (auto& one : made)
    threads.emplace_back([&] { one = introductions.read(7, encoded).value(); });
  for (fake::Thread& thread : threads) thread.join();
  CHECK(std::set(made.begin(), made.end()).size() == 1);
  CHECK(made[0]->topology.n_ranks() == 3);
  CHECK(made[0]->addresses[2].at("tcp") == transport::Address{2});
  CHECK(introductions.read(8, encoded).value() != made[0]);
}

TEST_CASE("cores are shared by ranks of a host that may use the same, on the host itself") {
  struct Rank {
    const char *host, *cores;
    bool host_access;
    int shared;
  };
  const Rank ranks[] = {{"a", "0-7", true, 3}, {"a", "8-15", true, 1}, {"a", "0-7", true, 3},
                        {"a", "0-7", true, 3}, {"b", "0-7", true, 1},  {"a", "0-7", false, 3}};
  Cards encoded;
  for (const Rank& rank : ranks) {
    Card card;
    card.version = 100;
    card.info.rank = static_cast<int>(encoded.size());
    card.info.host = rank.host;
    card.info.vendor = rank.host_access ? "host" : "cuda";
    card.info.host_access = rank.host_access;
    card.cores = rank.cores;
    encoded.push_back(encode(card));
  }
  Introductions introductions;
  const auto made = introductions.read(7, encoded).value();
  for (int r = 0; r < 6; ++r) {
    CHECK(made->sharers(r).bound == ranks[r].shared);
    CHECK(made->sharers(r).all == (r == 4 ? 1 : 4));
  }
}

TEST_CASE("what is gone is made anew, and what is wrong is told to each that asks") {
  Introductions introductions;
  CHECK(introductions.read(7, cards(3)).value()->topology.n_ranks() == 3);
  CHECK(introductions.read(7, cards(2)).value()->topology.n_ranks() == 2);
  Cards damaged = cards(3);
  damaged[1].pop_back();
  for (int i = 0; i < 2; ++i) {
    const auto refused = introductions.read(9, damaged);
    CHECK(refused.status().code() == ErrorCode::RemoteError);
    CHECK(refused.status().message().find("rank 1") != std::string::npos);
  }
  CHECK(introductions.read(9, cards(3)).ok());
}

}  // namespace
}  // namespace hetccl::comm
