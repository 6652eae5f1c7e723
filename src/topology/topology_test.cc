#include "topology/topology.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "topology/border.h"

namespace hetccl::topology {
namespace {

using Ints = std::vector<int>;
using Shares = std::vector<uint32_t>;

RankInfo info(int rank, const std::string& host, const std::string& label = "") {
  RankInfo result;
  result.rank = rank;
  result.host = host;
  result.vendor = "host";
  result.architecture = "x86_64";
  result.library = "host";
  result.reach.hosts = false;
  result.library_version = "1";
  result.label = label;
  result.nics = {{"eth0", "10.0.0.1", 1000, 0}};
  return result;
}

Topology built(std::vector<RankInfo> infos) {
  Result<Topology> topology = Topology::build(std::move(infos));
  REQUIRE_MESSAGE(topology.ok(), topology.status().message());
  return std::move(topology).value();
}

TEST_CASE("clusters are ordered by their lowest rank, whatever the rank order") {
  const Topology topology = built({info(0, "b"), info(1, "a"), info(2, "b"), info(3, "a")});
  REQUIRE(topology.clusters().size() == 2);
  CHECK(topology.clusters()[0].ranks == Ints{0, 2});
  CHECK(topology.clusters()[1].ranks == Ints{1, 3});
  CHECK(topology.cluster_of(3) == 1);
  CHECK(topology.local_rank(2) == 1);
  CHECK(topology.same_host(0, 2));
  CHECK_FALSE(topology.same_host(0, 1));
}

TEST_CASE("what one vendor library cannot join is split") {
  std::vector<RankInfo> infos;
  for (int r = 0; r < 6; ++r) infos.push_back(info(r, "a"));
  infos[1].label = "x";
  infos[2].library_version = "2";
  infos[3].architecture = "aarch64";
  infos[4].vendor = infos[4].library = "cuda";
  CHECK(built(infos).clusters().size() == 5);
  CHECK(built(infos).clusters()[0].ranks == Ints{0, 5});
}

TEST_CASE("a cuda cluster spans hosts and generations, a hip cluster one architecture") {
  std::vector<RankInfo> infos = {info(0, "a"), info(1, "b"), info(2, "a"), info(3, "b")};
  for (int r = 0; r < 4; ++r) {
    const size_t i = static_cast<size_t>(r);
    infos[i].vendor = r < 2 ? "cuda" : "hip";
    infos[i].library = r < 2 ? "nccl" : "rccl";
    infos[i].architecture = r % 2 == 0 ? "one" : "two";
    infos[i].reach = {.hosts = true, .architectures = r < 2};
  }
  const Topology topology = built(infos);
  REQUIRE(topology.clusters().size() == 3);
  CHECK(topology.clusters()[0].ranks == Ints{0, 1});
}

// Tests the rules of docs/concepts.md, one after the other.
RankInfo gpu(int rank, const std::string& vendor, const std::string& architecture,
             const std::string& version = "2.22.3") {
  RankInfo result = info(rank, "a");
  result.vendor = vendor;
  result.architecture = architecture;
  result.library = vendor == "cuda" ? "nccl" : "rccl";
  result.library_version = version;
  result.reach = {.hosts = true, .architectures = vendor == "cuda"};
  return result;
}

size_t n_clusters(std::vector<RankInfo> infos) {
  return built(std::move(infos)).clusters().size();
}

TEST_CASE("AMD GPUs of one architecture share a cluster, whatever their ECC and page faults") {
  CHECK(n_clusters({gpu(0, "hip", "gfx1200"), gpu(1, "hip", "gfx1201")}) == 2);
  CHECK(n_clusters({gpu(0, "hip", "gfx90a"), gpu(1, "hip", "gfx90a")}) == 1);
  CHECK(n_clusters({gpu(0, "hip", "gfx90a:sramecc+:xnack-"),
                    gpu(1, "hip", "gfx90a:sramecc+:xnack+")}) == 1);
  CHECK(n_clusters({gpu(0, "hip", "gfx942:sramecc+:xnack-"), gpu(1, "hip", "gfx90a")}) == 2);
}

TEST_CASE("libraries of unlike versions share no cluster") {
  for (const char* vendor : {"cuda", "hip"}) {
    CHECK(n_clusters({gpu(0, vendor, "x", "2.21.5"), gpu(1, vendor, "x", "2.22.3")}) == 2);
  }
}

TEST_CASE("three vendors on one host are three clusters") {
  const Topology topology = built({gpu(0, "cuda", "sm_90"), gpu(1, "hip", "gfx942"), info(2, "a"),
                                   info(3, "a"), gpu(4, "hip", "gfx942"), gpu(5, "cuda", "sm_80")});
  REQUIRE(topology.clusters().size() == 3);
  CHECK(topology.clusters()[0].ranks == Ints{0, 5});
  CHECK(topology.clusters()[1].ranks == Ints{1, 4});
  CHECK(topology.clusters()[2].ranks == Ints{2, 3});
  for (const Link& link : topology.links()) CHECK(link.in_memory);
}

TEST_CASE("a label separates, and joins what a library may join when the user says so") {
  std::vector<RankInfo> infos = {gpu(0, "hip", "gfx1200"), gpu(1, "hip", "gfx1201", "2.27.7"),
                                 gpu(2, "hip", "gfx1200"), info(3, "a")};
  CHECK(n_clusters(infos) == 3);
  infos[2].label = "apart";
  CHECK(n_clusters(infos) == 4);
  for (auto& one : infos) one.label_joins = true;  // no effect without a label
  CHECK(n_clusters(infos) == 4);
  infos[0].label = infos[1].label = "r9700";
  const Topology joined = built(infos);
  REQUIRE(joined.clusters().size() == 3);
  CHECK(joined.clusters()[0].ranks == Ints{0, 1});
  const auto copy = Topology::from_json(joined.to_json());
  REQUIRE_MESSAGE(copy.ok(), copy.status().message());
  CHECK(copy.value() == joined);
}

TEST_CASE("no label joins vendors, or hosts that a library does not reach") {
  const auto refused = [](std::vector<RankInfo> infos) {
    for (auto& one : infos) one.label = "x", one.label_joins = true;
    const Status status = Topology::build(infos).status();
    CHECK(status.code() == ErrorCode::InvalidArgument);
    return status.message();
  };
  CHECK(refused({gpu(0, "hip", "gfx942"), gpu(1, "hip", "gfx942"), gpu(2, "cuda", "sm_90")}) ==
        "HETCCL_CLUSTER_JOIN=1 asks for one cluster of ranks 0 and 2, whose label is \"x\", but "
        "their vendors differ (hip, cuda): give them different labels (HETCCL_CLUSTER)");
  CHECK(refused({info(0, "a"), info(1, "b")}).find("ranks 0 and 1") != std::string::npos);
  CHECK(refused({info(0, "a"), info(1, "b")}).find("they are on two hosts") != std::string::npos);
  RankInfo other = gpu(1, "hip", "gfx942");
  other.library = "other";
  CHECK(refused({gpu(0, "hip", "gfx942"), other}).find("(rccl, other)") != std::string::npos);
}

TEST_CASE("border ranks are those nearest to a NIC; without NICs all are") {
  std::vector<RankInfo> infos = {info(0, "a"), info(1, "a"), info(2, "a")};
  infos[0].nics[0].distance = 2;
  infos[2].nics.clear();
  CHECK(built(infos).clusters()[0].border == Ints{1});
  for (RankInfo& rank : infos) rank.nics.clear();
  CHECK(built(infos).clusters()[0].border == Ints{0, 1, 2});
  CHECK(built(infos).clusters()[0].shares == Shares{1, 1, 1});
}

TEST_CASE("shares follow the bandwidth of each border rank's NIC") {
  std::vector<RankInfo> infos = {info(0, "a"), info(1, "a"), info(2, "a")};
  CHECK(built(infos).clusters()[0].shares == Shares{1, 1, 1});
  infos[2].nics = {{"eth1", "", 4000, 0}};  // ranks 0 and 1 share eth0
  CHECK(built(infos).clusters()[0].shares == Shares{1, 1, 8});
  infos[2].nics[0].mbps = 0;
  CHECK(built(infos).clusters()[0].shares == Shares{1, 1, 1});
  infos[2].nics[0].mbps = 400'000;  // the others' rates are too low to deserve a share
  CHECK(built(infos).clusters()[0].border == Ints{2});
  CHECK(built(infos).clusters()[0].shares == Shares{1});
}

using Names = std::vector<std::string>;

Names names_of_cards(const Topology& topology, int rank) {
  Names names;
  for (const Nic& nic : topology.cards(rank)) names.push_back(nic.name);
  return names;
}

/// `n` ranks of one host with these NICs.
Topology with_cards(int n, const std::vector<Nic>& nics) {
  std::vector<RankInfo> infos;
  for (int r = 0; r < n; ++r) {
    infos.push_back(info(r, "a"));
    infos.back().nics = nics;
  }
  return built(infos);
}

TEST_CASE("cards equally near are spread over the ranks of a host") {
  const std::vector<Nic> two = {{"eth0", "", 1000, 0}, {"eth1", "", 1000, 0}};
  const std::vector<Nic> four = {
      {"d", "", 500, 0}, {"a", "", 500, 0}, {"b", "", 200, 0}, {"c", "", 200, 0}};
  CHECK(names_of_cards(with_cards(1, two), 0) == Names{"eth0", "eth1"});
  CHECK(names_of_cards(with_cards(2, two), 0) == Names{"eth0"});
  CHECK(names_of_cards(with_cards(2, two), 1) == Names{"eth1"});
  CHECK(names_of_cards(with_cards(2, four), 0) == Names{"a", "b"});
  CHECK(names_of_cards(with_cards(2, four), 1) == Names{"d", "c"});
  CHECK(names_of_cards(with_cards(4, two), 2) == Names{"eth0"});
  CHECK(with_cards(4, two).clusters()[0].shares == Shares{1, 1, 1, 1});
  CHECK(with_cards(4, two).clusters()[0].border == Ints{0, 1, 2, 3});
}

TEST_CASE("ranks that would get unequal rates use all cards that are equally near") {
  const Topology odd = with_cards(3, {{"eth0", "", 1000, 0}, {"eth1", "", 1000, 0}});
  CHECK(names_of_cards(odd, 2) == Names{"eth0", "eth1"});
  CHECK(odd.clusters()[0].shares == Shares{1, 1, 1});
  const Topology unequal = with_cards(2, {{"eth0", "", 200, 0}, {"eth1", "", 500, 0}});
  CHECK(names_of_cards(unequal, 0) == Names{"eth1", "eth0"});
  CHECK(names_of_cards(unequal, 1) == Names{"eth1", "eth0"});
  CHECK(unequal.clusters()[0].shares == Shares{1, 1});
}

TEST_CASE("clusters of one host have all of its cards each, and hosts of a cluster their own") {
  const std::vector<Nic> two = {{"eth0", "", 1000, 0}, {"eth1", "", 1000, 0}};
  std::vector<RankInfo> infos = {info(0, "a", "x"), info(1, "a", "y"),   info(2, "a", "x"),
                                 info(3, "a", "y"), gpu(4, "cuda", "x"), gpu(5, "cuda", "x")};
  infos[5].host = "b";
  for (auto& one : infos) one.nics = two;
  const Topology topology = built(infos);
  CHECK(names_of_cards(topology, 0) == Names{"eth0"});
  CHECK(names_of_cards(topology, 1) == Names{"eth0"});
  CHECK(names_of_cards(topology, 2) == Names{"eth1"});
  CHECK(names_of_cards(topology, 3) == Names{"eth1"});
  CHECK(names_of_cards(topology, 4) == Names{"eth0", "eth1"});
  CHECK(names_of_cards(topology, 5) == Names{"eth0", "eth1"});
}

TEST_CASE("a rank uses its nearest card, once, and none much slower than its fastest") {
  CHECK(names_of_cards(with_cards(1, {{"far", "", 1000, 3}, {"near", "", 1000, 1}}), 0) ==
        Names{"near"});
  CHECK(names_of_cards(with_cards(1, {{"e", "10.0.0.1", 1000, 0}, {"e", "fd00::1", 1000, 0}}), 0) ==
        Names{"e"});
  CHECK(names_of_cards(with_cards(1, {{"slow", "", 1000, 0}, {"fast", "", 25'000, 5}}), 0) ==
        Names{"fast"});
  CHECK(names_of_cards(with_cards(1, {{"a", "", 250, 0}, {"b", "", 1000, 0}}), 0) ==
        Names{"b", "a"});
  CHECK(names_of_cards(with_cards(1, {{"a", "", 0, 0}, {"b", "", 10, 0}}), 0) == Names{"b"});
  CHECK(names_of_cards(with_cards(1, {{"a", "", 0, 0}, {"b", "", 0, 0}}), 0) == Names{"a", "b"});
  CHECK(names_of_cards(with_cards(1, {}), 0).empty());
}

TEST_CASE("each card's traffic is its nearest ranks', whatever other cards' are") {
  std::vector<RankInfo> infos = {info(0, "a"), info(1, "a"), info(2, "a")};
  infos[0].nics = {{"eth0", "", 1000, 1}, {"eth1", "", 3000, 4}};
  infos[1].nics = {{"eth0", "", 1000, 3}, {"eth1", "", 3000, 4}};
  infos[2].nics = {{"eth0", "", 1000, 4}, {"eth1", "", 3000, 2}};
  const Topology topology = built(infos);
  CHECK(topology.clusters()[0].border == Ints{0, 2});  // rank 1 is further from eth0 than rank 0
  CHECK(topology.clusters()[0].shares == Shares{1, 3});
}

TEST_CASE("a link is as fast as the cards of the slower side's border ranks together") {
  std::vector<RankInfo> infos = {info(0, "a"), info(1, "b"), info(2, "b")};
  infos[0].nics = {{"x", "", 500, 0}, {"y", "", 200, 0}, {"z", "", 400, 0}};
  infos[1].nics = infos[2].nics = {{"x", "", 500, 0}, {"y", "", 800, 0}};
  const Topology topology = built(infos);
  CHECK(topology.links()[0].mbps == 1100);
  CHECK(topology.clusters()[1].shares == Shares{1, 1});
  CHECK_FALSE(topology.clusters()[0].single_flow);
}

TEST_CASE("small shares stay small, have no common factor and keep proportions") {
  CHECK(small_shares({100, 100}) == Shares{1, 1});
  CHECK(small_shares({25'000, 100'000}) == Shares{1, 4});
  CHECK(small_shares({3, 5, 7}) == Shares{3, 5, 7});
  for (uint64_t w = 64; w < 2000; w += 7) {
    const Shares shares = small_shares({w, 1000});
    const double part = shares[0] / static_cast<double>(shares[0] + shares[1]);
    const double ideal = static_cast<double>(w) / static_cast<double>(w + 1000);
    CHECK(part == doctest::Approx(ideal).epsilon(0.04));
    CHECK(std::max(shares[0], shares[1]) <= 16);
  }
}

TEST_CASE("a cluster exchanges messages where all of its several ranks' libraries do") {
  std::vector<RankInfo> infos = {info(0, "a"), info(1, "a"), info(2, "b")};
  CHECK(built(infos).clusters()[0].exchanges);
  CHECK_FALSE(built(infos).clusters()[1].exchanges);
  infos[1].library_exchanges = false;
  CHECK_FALSE(built(infos).clusters()[0].exchanges);
}

TEST_CASE("links: shared memory within one host, else the slower side's NICs") {
  std::vector<RankInfo> infos = {info(0, "a"), info(1, "a", "x"), info(2, "b"), info(3, "b")};
  infos[3].nics = {{"eth1", "", 500, 0}};
  const Topology topology = built(infos);
  REQUIRE(topology.links().size() == 3);
  CHECK(topology.links()[0] == Link{0, 1, "memory", 0, true});
  CHECK(topology.links()[1] == Link{0, 2, "network", 1000});
  CHECK(topology.links()[2] == Link{1, 2, "network", 1000});
  AdaptorTraits traits;
  traits.in_memory = "x";
  traits.by_network = "y";
  const Topology named = Topology::build(infos, traits).value();
  CHECK(named.links()[0].kind == "x");
  CHECK(named.links()[2].kind == "y");
}

TEST_CASE("ranks of one host without shared memory have a network link") {
  std::vector<RankInfo> infos = {info(0, "a", "x"), info(1, "a", "y")};
  CHECK(built(infos).links()[0].in_memory);
  for (auto& one : infos) one.shared_memory = false;
  CHECK_FALSE(built(infos).links()[0].in_memory);
}

TEST_CASE("one flow fills one card of at most 10 Gbit/s") {
  std::vector<RankInfo> infos = {info(0, "a"), info(1, "a"), info(2, "b")};
  CHECK(built(infos).clusters()[0].single_flow);
  infos[1].nics = {{"eth1", "", 1000, 0}};  // two NICs
  CHECK_FALSE(built(infos).clusters()[0].single_flow);
  infos[0].nics = infos[1].nics = {{"eth0", "", 25'000, 0}};
  CHECK_FALSE(built(infos).clusters()[0].single_flow);
  infos[0].nics = infos[1].nics = {{"eth0", "", 0, 0}};  // unknown
  CHECK_FALSE(built(infos).clusters()[0].single_flow);
  infos[0].nics = infos[1].nics = {};
  CHECK_FALSE(built(infos).clusters()[0].single_flow);
  CHECK(built(infos).clusters()[1].single_flow);
}

TEST_CASE("ranks of one process on one device share it; processes, devices and hosts tell apart") {
  std::vector<RankInfo> infos = {info(0, "a"), info(1, "a"), info(2, "a"), info(3, "b")};
  for (auto& one : infos) {
    one.pid = 7;
    one.bus_id.clear();
  }
  CHECK(built(infos).shares_device(0) == -1);  // both have no device
  CHECK_FALSE(built(infos).has_device_alone(0));
  for (auto& one : infos) one.bus_id = "0000:01:00.0";
  CHECK(built(infos).shares_device(0) == 1);
  CHECK(built(infos).shares_device(2) == 0);
  CHECK(built(infos).shares_device(3) == -1);
  CHECK(built(infos).has_device_alone(0));
  infos[1].pid = 8;
  CHECK(!built(infos).has_device_alone(0));
  CHECK(!built(infos).has_device_alone(1));
  CHECK(built(infos).has_device_alone(3));
  infos[2].bus_id = "0000:02:00.0";
  CHECK(built(infos).shares_device(0) == -1);
}

TEST_CASE("ranks without a library are clusters alone, also by a label that joins") {
  std::vector<RankInfo> infos = {info(0, "a"), info(1, "a"), info(2, "a")};
  CHECK(built(infos).clusters().size() == 1);
  infos[0].library = infos[1].library = kNoLibrary;
  CHECK(built(infos).clusters().size() == 3);
  for (auto& one : infos) {
    one.library = kNoLibrary;
    one.label = "x";
    one.label_joins = true;
  }
  const auto refused = Topology::build(infos);
  CHECK(refused.status().message().find("their device has no library") != std::string::npos);
}

TEST_CASE("a library that may not carry data between hosts joins those of each host") {
  std::vector<RankInfo> infos = {info(0, "a"), info(1, "b"), info(2, "a"), info(3, "b")};
  for (auto& one : infos) one.reach.hosts = true;
  CHECK(built(infos).clusters().size() == 1);
  CHECK_FALSE(built(infos).split_by_host());
  for (auto& one : infos) one.library_crosses_hosts = false;
  const Topology split = built(infos);
  REQUIRE(split.clusters().size() == 2);
  CHECK(split.clusters()[0].ranks == std::vector<int>{0, 2});
  CHECK(split.clusters()[1].ranks == std::vector<int>{1, 3});
  CHECK(split.split_by_host());
  const auto copy = Topology::from_json(split.to_json());
  REQUIRE_MESSAGE(copy.ok(), copy.status().message());
  CHECK(copy.value() == split);
  for (auto& one : infos) one.host = "a";
  CHECK_FALSE(built(infos).split_by_host());
}

TEST_CASE("ranks of one host have equal parts of their windows for those of other clusters") {
  std::vector<RankInfo> infos = {info(0, "a", "x"), info(1, "a", "y"), info(2, "a", "y"),
                                 info(3, "b", "y"), info(4, "a", "x"), info(5, "a", "z")};
  for (auto& one : infos) {
    one.host_access = false;
    one.window_bytes = 10'000'000;
  }
  infos[1].window_bytes = 6'000'000;
  infos[5].window_bytes = 0;
  const Topology topology = built(infos);
  CHECK(topology.window(0, 1) == 2'998'272);  // whole pages
  CHECK(topology.window(1, 0) == 2'998'272);
  CHECK(topology.window(0, 2) == 4'997'120);
  CHECK(topology.window(0, 4) == 0);  // same cluster
  CHECK(topology.window(0, 3) == 0);  // different hosts
  CHECK(topology.window(0, 5) == 0);
  infos[1].window_bytes = 2'000'000;  // two halves, each too small to use
  CHECK(built(infos).window(0, 1) == 0);
}

TEST_CASE("ranks whose memory hosts reach have windows with devices alone") {
  std::vector<RankInfo> infos = {info(0, "a", "x"), info(1, "a", "y"), info(2, "a", "z"),
                                 info(3, "a", "z")};
  for (auto& one : infos) one.window_bytes = 12 * 4096 * 500;
  infos[0].host_access = infos[3].host_access = false;
  const Topology topology = built(infos);
  CHECK(topology.window(0, 1) == 3 * 4096 * 500);  // a quarter: rank 2 has as much
  CHECK(topology.window(0, 3) == 6 * 4096 * 500);  // a half
  CHECK(topology.window(1, 3) == 6 * 4096 * 500);  // rank 1's, shared by two devices
  CHECK(topology.window(1, 2) == 0);
}

TEST_CASE("windows are as large as makes them fast, and no larger") {
  for (int partners = 1; partners <= 4; ++partners) {
    std::vector<RankInfo> infos = {info(0, "a", "x")};
    for (int rank = 1; rank <= partners; ++rank) infos.push_back(info(rank, "a", "y"));
    for (auto& one : infos) {
      one.window_bytes = int64_t{64} << 20U;
      one.host_access = false;
    }
    CHECK(built(infos).window(0, 1) == (partners == 1 ? 26 : 13) * int64_t{1 << 20});
  }
}

TEST_CASE("ranks that are not their own place are named") {
  const Result<Topology> topology = Topology::build({info(0, "a"), info(0, "a")});
  REQUIRE_FALSE(topology.ok());
  CHECK(topology.status().code() == ErrorCode::InvalidArgument);
  CHECK(topology.status().message().find("place 1") != std::string::npos);
  CHECK_FALSE(Topology::build({}).ok());
}

TEST_CASE("more clusters than links can be kept for are refused") {
  std::vector<RankInfo> infos;
  for (int r = 0; r < 1025; ++r) infos.push_back(info(r, std::to_string(r)));
  CHECK(Topology::build(infos).status().message().find("1025 clusters") != std::string::npos);
}

}  // namespace
}  // namespace hetccl::topology
