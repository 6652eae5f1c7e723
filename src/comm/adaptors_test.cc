#include "comm/adaptors.h"

#include <doctest/doctest.h>

#include <set>

namespace hetccl::comm {
namespace {

using transport::ChannelEnd;
using transport::Memory;

std::string chosen(const ChannelEnd& local, const ChannelEnd& peer,
                   const std::set<std::string>& usable = {"tcp", "shm"}) {
  const auto rows = all_adaptors().transports;
  const auto* row = choose_transport(
      rows, local, peer, [&](const std::string& name) { return usable.contains(name); });
  return row != nullptr ? row->name : "";
}

TEST_CASE("ranks of one host that share memory meet there, all others by the network") {
  for (const Memory memory : {Memory::Host, Memory::Device}) {
    CHECK(chosen({"a", true}, {"a", true, memory}) == "shm");
    CHECK(chosen({"a", true}, {"b", true, memory}) == "tcp");
    CHECK(chosen({"a", true}, {"a", false, memory}) == "tcp");
    CHECK(chosen({"a", false}, {"a", true, memory}) == "tcp");
  }
}

TEST_CASE("the best of those that both ends have is chosen") {
  CHECK(chosen({"a", true}, {"a", true}, {"tcp"}) == "tcp");
  CHECK(chosen({"a", true}, {"a", true}, {"shm"}) == "shm");
  CHECK(chosen({"a", true}, {"b", true}, {"shm"}) == "");
  CHECK(chosen({"a", true}, {"a", true}, {}) == "");
}

TEST_CASE("both ends choose alike") {
  const ChannelEnd ends[] = {{"a", true}, {"a", false}, {"b", true}, {"a", true, Memory::Device}};
  for (const TransportRow& row : all_adaptors().transports) {
    for (const ChannelEnd& one : ends) {
      for (const ChannelEnd& other : ends) CHECK(row.score(one, other) == row.score(other, one));
    }
  }
}

TEST_CASE("the topology learns from the rows what it does not know") {
  const topology::AdaptorTraits traits = traits_of(all_adaptors());
  CHECK(traits.in_memory == "shm");
  CHECK(traits.by_network == "tcp");
  CHECK(traits.libraries.at("host").reach == topology::LibraryReach{false, false});
  CHECK(traits.libraries.at("cuda").reach == topology::LibraryReach{true, true});
  CHECK(traits.libraries.at("hip").reach == topology::LibraryReach{true, false});
  CHECK(traits.libraries.at("host").reduces == ReductionSet::all());
  CHECK(traits.libraries.at("hip").reduces.has(DataType::Float8E5m2, RedOp::Avg));
  CHECK_FALSE(traits.libraries.at("cuda").reduces.has(DataType::Int32, RedOp::Band));
}

}  // namespace
}  // namespace hetccl::comm
