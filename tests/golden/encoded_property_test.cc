// The verifier over encoded plans of random topologies: equal bits on all ranks, one encoding a
// hop, and exactly the least bytes between clusters.
#include <doctest/doctest.h>

#include <algorithm>

#include "base/encoding.h"
#include "golden/random_call.h"

namespace hetccl::plan {
namespace {

using test::plan_all;
using verify::verify;
using VerifyOptions = verify::Options;
using verify::Verified;

// Sanitizers slow the verifier down tenfold, and see the same of it in a few cases.
constexpr uint64_t kCases = 3000;
#if defined(HETCCL_UNDER_ASAN)
constexpr uint64_t kOneIn = 60;
#else
constexpr uint64_t kOneIn = 6;
#endif

Spec random_encoded_spec(std::mt19937_64& random, const topology::Topology& topology) {
  constexpr Collective kCollectives[] = {Collective::AllReduce, Collective::ReduceScatter,
                                         Collective::AllGather};
  Spec spec{.collective = kCollectives[random() % 3]};
  const uint64_t how = reduces(spec.collective) ? random() % 4 : 3;
  spec.average = how == 0 || how == 2;
  spec.scale = how == 1 || how == 2;
  spec.encoding = {kFormats[random() % 4], static_cast<uint16_t>(32U << random() % 5)};
  const auto rows = find_algorithms(spec, topology);
  spec.algorithm = rows[random() % rows.size()]->id;
  return spec;
}

// Each contribution is rounded once a hop, all ranks get the same, and not a byte more crosses.
TEST_CASE("encoded collectives of random topologies pass the verifier") {
  constexpr DataType kTypes[] = {DataType::Float32, DataType::Float16, DataType::BFloat16};
  uint64_t n_checked = 0;
  for (const uint64_t seed : fake::sampled_seeds(kCases, kOneIn)) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const topology::Topology topology = test::random_topology(random);
    if (topology.clusters().size() == 1 && !topology.clusters()[0].exchanges) continue;
    const Spec spec = random_encoded_spec(random, topology);
    VerifyOptions options = test::random_options(random);
    options.type = kTypes[random() % 3];
    const std::vector<RankPlan> plans = plan_all(spec, topology);
    const Result<Verified> verified = verify(spec, topology, plans, options);
    REQUIRE_MESSAGE(verified.ok(), verified.status().message(), "\n", topology.to_json());
    const uint64_t n = topology.clusters().size(), ranks = topology.infos().size();
    const uint64_t blocks = spec.collective != Collective::AllReduce ? (n - 1) * ranks
                            : plans[0].name == "exchange"            ? n * (n - 1)
                                                                     : 2 * (n - 1);
    CHECK(verified.value().cross_bytes == blocks * encoded_bytes(spec.encoding, options.count));
    ++n_checked;
  }
  CHECK(n_checked > 0);
}

// A cluster must add its own part in the form that others see, encoded.
TEST_CASE("a rank that adds its own part as it is gets other bits, which the verifier sees") {
  const topology::Topology topology = test::layout_topology("AB");
  const Spec spec{
      .collective = Collective::AllReduce, .algorithm = "exchange", .encoding = {Format::Int8, 64}};
  std::vector<RankPlan> plans = plan_all(spec, topology);
  CHECK(verify(spec, topology, plans).ok());
  bool changed = false;
  for (Step& step : plans[0].steps) {
    if (step.kind != StepKind::Reduce || step.srcs.size() != 2) continue;
    step.srcs[0] = {.buffer = Buffer::Input, .begin = step.srcs[0].begin, .end = step.srcs[0].end};
    changed = true;
  }
  REQUIRE(changed);
  const Status status = verify(spec, topology, plans).status();
  CHECK(status.message().find("evaluate different expressions") != std::string::npos);
}

// Each encoding of an element has its part of the caller's residual.
TEST_CASE("a rank that encodes elements twice spoils their residual, which the verifier sees") {
  const topology::Topology topology = test::layout_topology("AB");
  const Spec spec{
      .collective = Collective::AllReduce, .algorithm = "exchange", .encoding = {Format::Int8, 64}};
  std::vector<RankPlan> plans = plan_all(spec, topology);
  RankPlan& plan = plans[0];
  const auto encodes = [](const Step& step) {
    return step.kind == StepKind::Reduce && step.dst.encoded;
  };
  const auto first = std::find_if(plan.steps.begin(), plan.steps.end(), encodes);
  REQUIRE(first != plan.steps.end());
  Step again = *first;
  again.dst.block = plan.scratch_blocks++;
  plan.steps.push_back(again);
  const Status status = verify(spec, topology, plans).status();
  CHECK(status.message().find("encodes elements that the rank has encoded") != std::string::npos);
}

}  // namespace
}  // namespace hetccl::plan
