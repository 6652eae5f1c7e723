#include "tune/chooser.h"

#include <doctest/doctest.h>

#include "golden/random_topology.h"

namespace hetccl::tune {
namespace {

using plan::Choice;
using plan::Spec;

TEST_CASE("slices: one where it is small or nothing crosses, at most 64, 64 bytes apart") {
  const Spec all_reduce{Collective::AllReduce}, all_gather{Collective::AllGather};
  const topology::Topology one = test::layout_topology("AA"), two = test::layout_topology("AABB");
  const uint64_t mib = uint64_t{1} << 20U;
  CHECK(Chooser(one, {}).choose(all_reduce, 16 * mib, DataType::Float32).choice.slice_bytes ==
        64 * mib);
  CHECK(Chooser(two, {}).choose(all_reduce, 0, DataType::Float32).choice.slice_bytes == 64);
  CHECK(Chooser(two, {}).choose(all_reduce, 1000, DataType::Float32).choice.slice_bytes == 4032);
  CHECK(Chooser(two, {}).choose(all_reduce, 16 * mib, DataType::Float32).choice.slice_bytes == mib);
  // 2 ms at 1 Gbit/s are 250,000 bytes; 4 MiB are cut evenly into slices of at most that.
  CHECK(Chooser(two, {}).choose(all_reduce, mib, DataType::Float32).choice.slice_bytes == 246'784);
  CHECK(Chooser(two, {}).choose(all_gather, mib, DataType::Float32).choice.slice_bytes == 123'392);
  for (uint64_t count = 1; count < uint64_t{1} << 40U; count = count * 3 + 1) {
    for (const Spec& spec : {all_reduce, all_gather}) {
      const Choice choice = Chooser(two, {}).choose(spec, count, DataType::Int16).choice;
      CHECK(choice.slice_bytes % 64 == 0);
      CHECK((2 * count + choice.slice_bytes - 1) / choice.slice_bytes <= 64);
    }
  }
}

TEST_CASE("hosts that add in shared memory have slices that fit a core's own cache") {
  std::vector<topology::RankInfo> infos = test::layout_topology("AB").infos();
  for (auto& info : infos) {
    info.host = "one";
    info.label = std::to_string(info.rank);
  }
  const topology::Topology topology = topology::Topology::build(infos).value();
  const auto slice = [&](Collective collective) {
    return Chooser(topology, {}).choose({collective}, 4 << 20, DataType::Int8).choice.slice_bytes;
  };
  CHECK(slice(Collective::AllReduce) == 256 << 10);
  CHECK(slice(Collective::Reduce) == 256 << 10);
  CHECK(slice(Collective::Broadcast) == 1 << 20);
}

TEST_CASE("between clusters of one host small all-reduces wait for one call of the library") {
  std::vector<topology::RankInfo> infos = test::layout_topology("AABB").infos();
  const auto algorithm = [&](uint64_t bytes, DataType type = DataType::Float32) {
    const topology::Topology topology = topology::Topology::build(infos).value();
    return Chooser(topology, {})
        .choose({Collective::AllReduce}, bytes / size_of(type), type)
        .algorithm;
  };
  CHECK(algorithm(4 << 10) == "exchange");  // two hosts
  for (auto& info : infos) {
    info.label = info.rank < 2 ? "A" : "B";
    info.host = "one";
    info.host_access = false;
    info.shared_memory = true;
    info.window_bytes = int64_t{32} << 20U;
  }
  CHECK(algorithm(4 << 10) == "mirror");
  CHECK(algorithm(256 << 10) == "mirror");
  CHECK(algorithm(1 << 20) == "exchange");
  for (auto& info : infos) info.label = std::to_string(info.rank);  // four clusters of one rank
  CHECK(algorithm(4 << 10) != "mirror");
}

TEST_CASE("devices of one host: what is enqueued for a slice weighs against a pipeline's filling") {
  std::vector<topology::RankInfo> infos = test::layout_topology("AB").infos();
  for (auto& info : infos) {
    info.host = "one";
    info.label = std::to_string(info.rank);
    info.host_access = false;
    info.window_bytes = int64_t{32} << 20U;
  }
  topology::Topology topology = topology::Topology::build(infos).value();
  REQUIRE(topology.links().size() == 1);
  const std::vector<topology::Measurement> probed = {{0, 1, 4000, 8000}};  // of copies by hosts
  const auto slices = [&](uint64_t bytes) {
    const Spec all_reduce{Collective::AllReduce};
    const Choice choice =
        Chooser(topology, probed).choose(all_reduce, bytes, DataType::Int8).choice;
    return (bytes + choice.slice_bytes - 1) / choice.slice_bytes;
  };
  const uint64_t mib = uint64_t{1} << 20U;
  CHECK(slices(4096) == 1);
  CHECK(slices(mib) == 1);
  CHECK(slices(16 * mib) == 7);
  CHECK(slices(64 * mib) == 16);
  CHECK(slices(256 * mib) == 64);
  const auto fixed_slice = [&] {
    const Spec all_to_all{Collective::AllToAll};
    return Chooser(topology, probed).choose(all_to_all, mib, DataType::Int8).choice.slice_bytes;
  };
  CHECK(fixed_slice() == 4 * mib);
  Chooser deterministic(topology, {}, true);
  const auto fixed = [&] {
    return deterministic.choose({Collective::AllReduce}, 16 * mib, DataType::Int8).choice;
  };
  CHECK(fixed().slice_bytes == mib);  // as for hosts that add nothing
  // Messages fit into a quarter of the window.
  for (auto& info : infos) info.window_bytes = 5 * static_cast<int64_t>(mib);
  topology = topology::Topology::build(infos).value();
  CHECK(slices(16 * mib) == 16);
  CHECK(fixed_slice() == mib);
}

TEST_CASE(
    "devices of two hosts: a slice costs more than enqueueing it, on a slow link it is short") {
  std::vector<topology::RankInfo> infos = test::layout_topology("AB").infos();
  for (auto& info : infos) {
    info.host_access = false;
    info.nics.clear();
  }
  const topology::Topology topology = topology::Topology::build(infos).value();
  const auto slices = [&](uint64_t bytes, int64_t mbps) {
    const std::vector<topology::Measurement> probed = {{0, 1, 10'000, mbps}};
    const Choice choice =
        Chooser(topology, probed).choose({Collective::AllReduce}, bytes, DataType::Int8).choice;
    return (bytes + choice.slice_bytes - 1) / choice.slice_bytes;
  };
  const uint64_t mib = uint64_t{1} << 20U;
  CHECK(slices(4096, 40'000) == 1);
  CHECK(slices(mib, 40'000) == 2);
  CHECK(slices(32 * mib, 40'000) == 14);
  CHECK(slices(256 * mib, 40'000) == 64);
  CHECK(slices(32 * mib, 1000) == 64);
  const Candidate all_to_all =
      Chooser(topology, {}).choose({Collective::AllToAll}, 32 * mib, DataType::Int8);
  CHECK(all_to_all.choice.slice_bytes == mib);
}

TEST_CASE("over three clusters small messages take one hop, large ones the least of each link") {
  const topology::Topology topology = test::layout_topology("AABC");
  Chooser chooser(topology, {});
  for (const Collective collective :
       {Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter,
        Collective::Broadcast, Collective::Reduce}) {
    CAPTURE(name_of(collective));
    const auto chosen = [&](uint64_t bytes) {
      return chooser.choose({collective}, bytes, DataType::Int8).algorithm;
    };
    const auto rows = plan::find_algorithms({collective}, topology);
    REQUIRE(rows.size() == 2);
    CHECK(chosen(8) == rows[1]->id);
    CHECK(chosen(64 << 20) == rows[0]->id);
    // An algorithm chosen at some size stays chosen at larger sizes, up to the next change.
    std::string_view before = rows[1]->id;
    for (uint64_t bytes = 1; bytes < uint64_t{1} << 32U; bytes *= 2) {
      const std::string_view now = chosen(bytes);
      CHECK((now == before || now == rows[0]->id));
      before = now;
    }
  }
}

TEST_CASE("hosts beside devices add up small messages themselves, and let devices add large ones") {
  std::vector<topology::RankInfo> infos = test::layout_topology("AABB").infos();
  for (auto& info : infos) {
    info.host_access = info.host == "B";
    info.nics.clear();
  }
  const auto chosen = [&](Collective collective, uint64_t bytes) {
    const topology::Topology topology = topology::Topology::build(infos).value();
    const std::vector<topology::Measurement> probed = {{0, 1, 10'000, 80'000}};
    return Chooser(topology, probed).choose({collective}, bytes, DataType::Int8);
  };
  CHECK(chosen(Collective::AllReduce, 4096).algorithm == "exchange");
  CHECK(chosen(Collective::AllReduce, 4096).hops == 1);
  CHECK(chosen(Collective::AllReduce, 64 << 20).algorithm == "owner");
  CHECK(chosen(Collective::AllReduce, 64 << 20).hops == 2);
  CHECK(chosen(Collective::AllReduce, 64 << 20).choice.depth == 4);
  CHECK(chosen(Collective::ReduceScatter, 64 << 20).hops == 1);
  infos[0].kernels = false;  // only two hops are possible
  CHECK(chosen(Collective::AllReduce, 4096).hops == 2);
  infos[0].kernels = true;
  infos[2].host_access = infos[3].host_access = false;
  CHECK(chosen(Collective::AllReduce, 64 << 20).hops == 1);
}

TEST_CASE("hosts beside devices have time to read a slice where it arrived") {
  const int64_t mib = int64_t{1} << 20U;
  for (const char* layout : {"AB", "AABB", "ABBB"}) {
    for (const int64_t window : {5 * mib, 32 * mib}) {
      std::vector<topology::RankInfo> infos = test::layout_topology(layout).infos();
      for (auto& info : infos) {
        info.label = info.host;
        info.host = "one";
        info.host_access = info.label == "B";
        info.window_bytes = window;
      }
      const topology::Topology topology = topology::Topology::build(infos).value();
      const auto b = topology.clusters()[1].ranks.front();
      const auto shared = static_cast<uint64_t>(topology.window(0, b));
      const Candidate all_reduce =
          Chooser(topology, {{0, 1, 10'000, 80'000}})
              .choose({Collective::AllReduce}, 128 * static_cast<uint64_t>(mib), DataType::Int8);
      CAPTURE(layout);
      CAPTURE(shared);
      CHECK(all_reduce.hops == 2);
      CHECK(all_reduce.choice.depth == 3);
      // A third of a ring, which is half of the window.
      const bool most = all_reduce.choice.slice_bytes == 2 * static_cast<uint64_t>(mib);
      CHECK((most || all_reduce.choice.slice_bytes < shared / 6));
    }
  }
}

TEST_CASE("as many slices are on the way as there are hops") {
  const auto depth = [](const char* layout) {
    const topology::Topology topology = test::layout_topology(layout);
    return Chooser(topology, {})
        .choose({Collective::Broadcast}, uint64_t{1} << 30U, DataType::Int8)
        .choice.depth;
  };
  CHECK(depth("AB") == 3);
  CHECK(depth("ABC") == 4);
  CHECK(depth("ABCDEFGH") == 9);
  CHECK(depth("ABCDEFGHIJKLMNOPQRSTUVW") == 16);
}

TEST_CASE("where clusters are alike a ring of all-gathers gains nothing") {
  const topology::Topology topology = test::layout_topology("ABC");
  Chooser chooser(topology, {});
  CHECK(chooser.choose({Collective::AllGather}, 1 << 30, DataType::Int8).algorithm == "direct");
}

TEST_CASE("over two clusters there is one plan, whose time the link gives") {
  const topology::Topology topology = test::layout_topology("AABB");
  Chooser chooser(topology, {});
  const auto all = chooser.candidates({Collective::AllReduce}, 125'000'000, DataType::Int8);
  REQUIRE(all.size() == 1);
  CHECK(all[0].hops == 1);
  CHECK(all[0].seconds == doctest::Approx(1).epsilon(0.001));  // 1 Gbit/s
  CHECK(chooser.candidates({Collective::AllGather}, 125'000'000, DataType::Int8)[0].seconds ==
        doctest::Approx(2).epsilon(0.001));
}

TEST_CASE(
    "an all-to-all between large clusters gathers small blocks, and sends large ones straight") {
  const std::string layout = std::string(16, 'A') + std::string(16, 'B');
  const topology::Topology large = test::layout_topology(layout);
  const topology::Topology small = test::layout_topology("AABB");
  const auto chosen = [](const topology::Topology& topology, uint64_t bytes, bool uneven = false) {
    return Chooser(topology, {})
        .choose({.collective = Collective::AllToAll, .uneven = uneven}, bytes, DataType::Int8);
  };
  CHECK(chosen(large, 4 << 10).algorithm == "gathered");
  CHECK(chosen(large, 4 << 10).hops == 1);
  CHECK(chosen(large, 16 << 20).algorithm == "direct");
  CHECK(chosen(large, 0, /*uneven=*/true).algorithm == "direct");
  // 15 more messages of 5 us, or a call of 10 us and 32 blocks at 5 GB/s.
  CHECK(chosen(large, 10'100).algorithm == "gathered");
  CHECK(chosen(large, 10'200).algorithm == "direct");
  for (const uint64_t bytes : {0, 1, 4 << 10, 16 << 20})
    CHECK(chosen(small, bytes).algorithm == "direct");
  // Slices of a gathered call are agreed: at most as long as the block.
  CHECK(chosen(large, 4 << 10).choice.slice_bytes == 4 << 10);
}

TEST_CASE("what was measured counts more than what cards are said to do") {
  // NICs of 1 Gbit/s, of which a flow got a quarter; 300 us of latency, 350 us for an empty call.
  const topology::Topology topology = test::layout_topology("AABBC");
  const std::vector<topology::Measurement> measured = {
      {0, 1, 300'000, 250}, {0, 0, 350'000, 0}, {1, 1, 340'000, 0}};
  const Spec all_gather{Collective::AllGather};
  const uint64_t bytes = 1'000'000;
  const Candidate guess = Chooser(topology, {}).candidates(all_gather, bytes, DataType::Int8)[1];
  const Candidate known =
      Chooser(topology, measured).candidates(all_gather, bytes, DataType::Int8)[1];
  CHECK(guess.algorithm == "direct");
  // Two ranks' blocks go to both other clusters.
  CHECK(guess.seconds == doctest::Approx(60e-6 + 4 * 8e-3).epsilon(0.001));
  CHECK(known.seconds == doctest::Approx(350e-6 + 4 * 32e-3).epsilon(0.001));
}

TEST_CASE("a measured flow is one card's: several carry more, and none more than is published") {
  std::vector<topology::RankInfo> infos = test::layout_topology("AABB").infos();
  for (auto& info : infos) info.nics = {{"eth" + std::to_string(info.rank), "", 1000, 0}};
  const topology::Topology topology = topology::Topology::build(infos).value();
  REQUIRE(topology.links()[0].mbps == 2000);
  const auto seconds = [&](int64_t flow_mbps) {
    const std::vector<topology::Measurement> measured = {{0, 1, 1000, flow_mbps}};
    return Chooser(topology, measured)
        .choose({Collective::AllReduce}, 250'000'000, DataType::Int8)
        .seconds;
  };
  CHECK(seconds(1000) == doctest::Approx(1).epsilon(0.001));
  CHECK(seconds(500) == doctest::Approx(2).epsilon(0.001));
  CHECK(seconds(9000) == doctest::Approx(1).epsilon(0.001));
}

}  // namespace
}  // namespace hetccl::tune
