// Plans of small layouts against files in the tree, so that a change of any plan is seen in review.
// HETCCL_GOLDEN_UPDATE=1 writes them anew.
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "golden/random_topology.h"
#include "plan/planner.h"

namespace hetccl::plan {
namespace {

constexpr const char* kLayouts[] = {"A", "AA", "AB", "AAB", "AABB", "ABAB", "ABC", "AABBC"};

/// All ranks' plans of `specs`.
std::string plans_as_json(const topology::Topology& topology, const std::vector<Spec>& specs) {
  std::string text = "[";
  for (const Spec& spec : specs) {
    for (int rank = 0; rank < topology.n_ranks(); ++rank) {
      const Result<RankPlan> made = plan(rank, spec, topology);
      REQUIRE_MESSAGE(made.ok(), made.status().message());
      text += text.size() > 1 ? ",\n" : "\n";
      text +=
          "{\"collective\": \"" + std::string(name_of(spec.collective)) +
          "\", \"root\": " + std::to_string(spec.root) +
          ", \"average\": " + (spec.average ? "true" : "false") +
          (spec.scale ? ", \"scale\": true" : "") +
          (spec.algorithm.empty() ? ""
                                  : ", \"algorithm\": \"" + std::string(spec.algorithm) + "\"") +
          ", \"rank\": " + std::to_string(rank) + ",\n\"plan\": " + to_json(made.value()) + "}";
    }
  }
  return text + "\n]\n";
}

std::string plans_as_json(const topology::Topology& topology) {
  return plans_as_json(topology, {{Collective::AllReduce},
                                  {Collective::AllReduce, 0, true},
                                  {Collective::ReduceScatter},
                                  {Collective::AllGather},
                                  {Collective::Broadcast, topology.n_ranks() - 1},
                                  {Collective::Barrier}});
}

void check_file(const std::string& name, const std::string& text) {
  const std::string path = HETCCL_GOLDEN_DIR "/" + name + ".json";
  if (std::getenv("HETCCL_GOLDEN_UPDATE") != nullptr) {
    std::ofstream(path, std::ios::binary) << text;
  }
  std::ifstream file(path, std::ios::binary);
  std::stringstream golden;
  golden << file.rdbuf();
  CHECK_MESSAGE(golden.str() == text, path,
                " differs: look at the change, then run with HETCCL_GOLDEN_UPDATE=1");
}

TEST_CASE("plans of gather, scatter and all-to-all equal the golden files") {
  for (const char* layout : {"AA", "AAB"}) {
    check_file(
        std::string(layout) + "_pairwise",
        plans_as_json(test::layout_topology(layout),
                      {{Collective::Gather, 1}, {Collective::Scatter, 1}, {Collective::AllToAll}}));
  }
}

TEST_CASE("plans equal the golden files") {
  for (const char* layout : kLayouts)
    check_file(layout, plans_as_json(test::layout_topology(layout)));
}

TEST_CASE("plans in one hop equal the golden file") {
  const std::vector<Spec> specs = {
      {.collective = Collective::AllReduce, .algorithm = "exchange"},
      {.collective = Collective::ReduceScatter, .algorithm = "direct"},
      {.collective = Collective::AllGather, .algorithm = "direct"},
      {.collective = Collective::Broadcast, .root = 1, .algorithm = "star"},
      {.collective = Collective::Reduce, .root = 1, .algorithm = "star"}};
  check_file("ABCB_one_hop", plans_as_json(test::layout_topology("ABCB"), specs));
}

TEST_CASE("the plan of a gathered all-to-all equals the golden file") {
  check_file("AAABB_gathered",
             plans_as_json(test::layout_topology("AAABB"),
                           {{.collective = Collective::AllToAll, .algorithm = "gathered"}}));
}

TEST_CASE("plans with border ranks of unequal bandwidth equal the golden file") {
  std::vector<topology::RankInfo> infos = test::layout_topology("AAABB").infos();
  infos[1].nics = {{"eth1", "", 3000, 0}};
  infos[2].nics = {{"eth1", "", 3000, 1}};
  check_file("AAABB_unequal", plans_as_json(topology::Topology::build(infos).value()));
}

TEST_CASE("plans over clusters without kernels equal the golden file") {
  std::vector<topology::RankInfo> infos = test::layout_topology("AAABBC").infos();
  for (topology::RankInfo& info : infos) info.kernels = info.host == "B";
  std::vector<Spec> specs = {{Collective::AllReduce, 0, true},
                             {Collective::ReduceScatter},
                             {Collective::ReduceScatter},
                             {Collective::Reduce, 2}};
  specs[2].algorithm = "direct";
  check_file("AAABBC_without_kernels",
             plans_as_json(topology::Topology::build(infos).value(), specs));
}

TEST_CASE("the plan of an all-reduce of hosts beside devices equals the golden file") {
  std::vector<topology::RankInfo> infos = test::layout_topology("AABBB").infos();
  for (topology::RankInfo& info : infos) info.host_access = info.host == "B";
  check_file("AABBB_beside_hosts", plans_as_json(topology::Topology::build(infos).value(),
                                                 {{Collective::AllReduce, 0, true}}));
}

TEST_CASE("plans of rooted reductions and of pre-multiplied sums equal the golden files") {
  for (const std::string layout : {"AA", "AB", "AAB", "AABB", "ABC"}) {
    const topology::Topology topology = test::layout_topology(layout);
    const int last = topology.n_ranks() - 1;
    check_file(layout + "_reduce",
               plans_as_json(topology, {{Collective::Reduce, 0},
                                        {Collective::Reduce, last, true},
                                        {Collective::Reduce, last, false, true},
                                        {Collective::AllReduce, 0, false, true},
                                        {Collective::ReduceScatter, 0, false, true}}));
  }
}

}  // namespace
}  // namespace hetccl::plan
