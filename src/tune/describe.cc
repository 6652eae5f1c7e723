#include "tune/describe.h"

#include <algorithm>

#include "base/json.h"
#include "plan/call.h"
#include "plan/message.h"
#include "plan/planner.h"
#include "plan/schedule.h"
#include "plan/traffic.h"
#include "tune/chooser.h"
#include "tune/correction.h"
#include "verify/mutate.h"
#include "verify/verify.h"

namespace hetccl::tune {
namespace {

using plan::Choice;
using plan::lag;
using plan::RankPlan;
using plan::Spec;
using topology::Topology;

constexpr int kMaxVerifiedRanks = 1024;      // more take minutes: time grows faster than the square
constexpr int kMaxRanks = 4096;              // all of their plans are in memory at once
constexpr size_t kMaxListedSteps = 500'000;  // about 100 MB of text
// The verifier's time and memory grow with the steps of all slices that it runs.
constexpr uint64_t kMaxVerifiedSteps = 16'384;
constexpr uint64_t kMaxSliceBytes = uint64_t{1} << 30U;
constexpr uint32_t kMaxDepth = 64;
constexpr uint64_t kMaxMutants = 100'000;

Status check_query(const Query& query, const Topology& topology) {
  const int n_ranks = topology.n_ranks();
  if (n_ranks > kMaxRanks) {
    return error(ErrorCode::Unsupported,
                 "a topology of %d ranks: plans are described for at most %d", n_ranks, kMaxRanks);
  }
  if (query.rank < -1 || query.rank >= n_ranks) {
    return error(ErrorCode::InvalidArgument, "rank is %d: it must be from 0 to %d, or -1 for all",
                 query.rank, n_ranks - 1);
  }
  if (query.slice_bytes % 64 != 0 || query.slice_bytes > kMaxSliceBytes) {
    return error(ErrorCode::InvalidArgument,
                 "slice_bytes is %llu: it must be a multiple of 64, at most %llu",
                 static_cast<unsigned long long>(query.slice_bytes),
                 static_cast<unsigned long long>(kMaxSliceBytes));
  }
  if (query.depth > kMaxDepth) {
    return error(ErrorCode::InvalidArgument, "depth is %u: it must be at most %u", query.depth,
                 kMaxDepth);
  }
  if (query.mutants > kMaxMutants || (query.mutants > 0 && n_ranks > kMaxVerifiedRanks)) {
    return error(ErrorCode::InvalidArgument,
                 "%llu mutants of the Code of %d ranks: at most %llu can be tried, of at most %d "
                 "ranks",
                 static_cast<unsigned long long>(query.mutants), n_ranks,
                 static_cast<unsigned long long>(kMaxMutants), kMaxVerifiedRanks);
  }
  HETCCL_TRY(plan::check(query.call, static_cast<uint32_t>(n_ranks)));
  HETCCL_TRY(plan::check_support(query.call, topology));
  // Keeps sums over all ranks and clusters within 64 bits.
  uint64_t all_ranks = 0;
  if (__builtin_mul_overflow(query.call.count * size_of(query.call.type),
                             uint64_t{2} * kMaxRanks * kMaxRanks, &all_ranks)) {
    return error(ErrorCode::InvalidArgument, "count %llu is too large to add up over all ranks",
                 static_cast<unsigned long long>(query.call.count));
  }
  return {};
}

Result<std::vector<RankPlan>> plan_all(const Spec& spec, const Topology& topology,
                                       plan::Algorithms table) {
  std::vector<RankPlan> plans;
  for (int rank = 0; rank < topology.n_ranks(); ++rank) {
    HETCCL_ASSIGN(RankPlan one, plan::plan(rank, spec, topology, table));
    plans.push_back(std::move(one));
  }
  return plans;
}

/// The call that is described: a collective or a message.
struct Subject {
  Spec spec;
  int to = -1;  ///< for a message: the rank that receives
  std::vector<RankPlan> plans{};
  verify::Options options{};

  [[nodiscard]] bool is_message() const { return spec.collective == Collective::PointToPoint; }
  /// Returns a rank that takes part.
  [[nodiscard]] int any_rank() const { return is_message() ? spec.root : 0; }
  void cut(const Choice& choice, uint64_t count, DataType type) {
    options.depth = choice.depth;
    options.slice_bytes = choice.slice_bytes;
    options.count = count;
    options.type = type;
  }
  [[nodiscard]] const RankPlan& plan_of(int rank) const { return plans[static_cast<size_t>(rank)]; }
  [[nodiscard]] lower::Target target_of(const Topology& topology, int rank) const {
    return is_message() ? verify::target_of_message(topology, rank, plan_of(rank))
                        : verify::target_of(topology, rank, plan_of(rank));
  }
  [[nodiscard]] Result<verify::Lowered> lower(const Topology& topology) const {
    return is_message() ? verify::lower_message(spec.root, to, topology, options)
                        : verify::lower_all(spec, topology, plans, options);
  }
};

Json slices_of(const Topology& topology, const Subject& subject) {
  const verify::Options& options = subject.options;
  const int rank = subject.any_rank();
  const RankPlan& plan = subject.plan_of(rank);
  const lower::Geometry geometry = lower::geometry_of(plan, subject.target_of(topology, rank),
                                                      verify::shape_of(topology, rank, options));
  std::vector<Json> lags;
  for (uint16_t stage = 0; stage < plan.stages; ++stage) {
    lags.push_back(lag(stage, plan.stages, options.depth));
  }
  return {{"number", geometry.n_slices},
          {"bytes", geometry.slice_elements * size_of(options.type)},
          {"depth", options.depth},
          {"slots", geometry.n_slots},
          {"lag", std::move(lags)}};
}

/// Verifies a call, as verify::verify does for a collective.
Result<verify::Verified> verify_subject(const Subject& subject, const Topology& topology) {
  if (!subject.is_message())
    return verify::verify(subject.spec, topology, subject.plans, subject.options);
  HETCCL_ASSIGN(const verify::Lowered lowered, subject.lower(topology));
  HETCCL_TRY(verify::check_code(lowered.problem, lowered.codes));
  verify::Verified verified;
  for (const RankPlan& plan : subject.plans) verified.steps += plan.steps.size();
  verified.messages = topology.cluster_of(subject.spec.root) != topology.cluster_of(subject.to);
  return verified;
}

Json verdict_of(const Subject& subject, const Topology& topology) {
  const auto& [spec, to, plans, options] = subject;
  if (topology.n_ranks() > kMaxVerifiedRanks) {
    return {{"verdict", "too large"},
            {"reason", format("%d ranks, more than %d", topology.n_ranks(), kMaxVerifiedRanks)}};
  }
  for (size_t rank = 0; rank < plans.size(); ++rank) {
    const uint64_t unrolled = plans[rank].steps.size() * (options.depth + 2);
    if (unrolled <= kMaxVerifiedSteps) continue;
    return {{"verdict", "too large"},
            {"reason", format("rank %zu's plan has %zu steps, over %u slices more than %llu", rank,
                              plans[rank].steps.size(), options.depth + 2,
                              static_cast<unsigned long long>(kMaxVerifiedSteps))}};
  }
  const Result<verify::Verified> verified = verify_subject(subject, topology);
  if (!verified.ok()) return {{"verdict", "wrong"}, {"reason", verified.status().message()}};
  return {{"verdict", "correct"},
          {"steps", verified.value().steps},
          {"messages", verified.value().messages}};
}

Json candidates_of(const std::vector<Candidate>& candidates, std::string_view chosen,
                   double factor) {
  std::vector<Json> all;
  for (const Candidate& one : candidates) {
    all.push_back({{"plan", one.algorithm},
                   {"hops", one.hops},
                   {"slice_bytes", one.choice.slice_bytes},
                   {"depth", one.choice.depth},
                   {"predicted_us", one.seconds * 1e6 * factor},
                   {"chosen", one.algorithm == chosen}});
  }
  return all;
}

Result<Json> mutants_of(const Query& query, const Subject& subject, const Topology& topology) {
  HETCCL_ASSIGN(const auto lowered, subject.lower(topology));
  HETCCL_TRY(verify::check_code(lowered.problem, lowered.codes));
  auto report = verify::try_mutants(lowered.problem, lowered.codes, query.mutants, query.seed);
  return Json{{"made", report.made},
              {"rejected", report.rejected},
              {"survivors", std::move(report.survivors)}};
}

Result<std::string> code_of(int rank, const Topology& topology, const Subject& subject) {
  const RankPlan& plan = subject.plan_of(rank);
  const lower::Target target = subject.target_of(topology, rank);
  const lower::Geometry geometry =
      lower::geometry_of(plan, target, verify::shape_of(topology, rank, subject.options));
  HETCCL_ASSIGN(const lower::Code code, lower::lower(plan, target, geometry));
  return lower::to_json(code);
}

Result<std::string> list_steps(const Query& query, const Topology& topology,
                               const Subject& subject) {
  const std::vector<RankPlan>& plans = subject.plans;
  std::string text;
  size_t n_steps = 0;
  for (size_t rank = 0; rank < plans.size(); ++rank) {
    if (query.rank >= 0 && static_cast<size_t>(query.rank) != rank) continue;
    n_steps += plans[rank].steps.size();
    if (n_steps > kMaxListedSteps) {
      return error(ErrorCode::Unsupported, "all ranks have more than %zu steps: ask for one rank's",
                   kMaxListedSteps);
    }
    text += format("%s{\"rank\": %zu, \"cluster\": %d, \"plan\": ", text.empty() ? "\n" : ",\n",
                   rank, topology.cluster_of(static_cast<int>(rank)));
    text += plan::to_json(plans[rank]);
    if (query.code) {
      HETCCL_ASSIGN(const std::string code, code_of(static_cast<int>(rank), topology, subject));
      text += ", \"code\": " + code;
    }
    text += "}";
  }
  return text;
}

/// Lists the bytes that a call sends from each cluster to each other one.
Json traffic_of(const Topology& topology, const Subject& subject, uint64_t& cross_bytes) {
  const verify::Options& options = subject.options;
  std::vector<Json> pairs;
  for (const plan::Traffic& pair :
       plan::traffic(topology, subject.plans, options.count, options.type, options.slice_bytes)) {
    cross_bytes += pair.bytes;
    pairs.push_back(
        {{"from", pair.from}, {"to", pair.to}, {"bytes", pair.bytes}, {"messages", pair.messages}});
  }
  return pairs;
}

/// Lists the bytes that each NIC of a host sends.
Json cards_of(const Topology& topology, const Subject& subject) {
  const verify::Options& options = subject.options;
  std::vector<Json> cards;
  for (const plan::CardLoad& load : plan::card_loads(topology, subject.plans, options.count,
                                                     options.type, options.slice_bytes)) {
    cards.push_back(
        {{"host", load.host}, {"card", load.card}, {"mbps", load.mbps}, {"bytes", load.bytes}});
  }
  return cards;
}

/// Returns the part of the answer that collectives and messages share.
Result<Json> head_of(const Query& query, const Topology& topology, const Subject& subject) {
  const Signature& call = query.call;
  const RankPlan& plan = subject.plan_of(subject.any_rank());
  const uint64_t bytes = subject.options.count * size_of(call.type);
  uint64_t cross_bytes = 0;
  Json traffic = traffic_of(topology, subject, cross_bytes);
  const uint64_t least_bytes =
      subject.is_message()
          ? cross_bytes
          : plan::least_bytes(subject.spec, topology, subject.options.count, call.type);
  Json head = {{"collective", subject.is_message() ? kMessageName : name_of(call.collective)},
               {"type", name_of(call.type)},
               {"op", reduces(call.collective) ? Json(name_of(call.op)) : Json()},
               {"root", subject.spec.root},
               {"count", subject.options.count},
               {"bytes", bytes},
               {"plan", plan.name},
               {"stages", plan.stages},
               {"clusters", topology.clusters().size()},
               {"slices", slices_of(topology, subject)},
               {"traffic", std::move(traffic)},
               {"cards", cards_of(topology, subject)},
               {"cross_bytes", cross_bytes},
               {"least_bytes", least_bytes},
               {"verifier", verdict_of(subject, topology)}};
  if (query.mutants > 0) {
    HETCCL_ASSIGN(Json mutants, mutants_of(query, subject, topology));
    head.set("mutants", std::move(mutants));
  }
  return head;
}

Result<std::string> finish(const Json& head, const Query& query, const Topology& topology,
                           const Subject& subject) {
  HETCCL_ASSIGN(const std::string steps, list_steps(query, topology, subject));
  std::string text = head.dump();
  text.back() = ',';
  return text + " \"ranks\": [" + steps + "]}";
}

Result<std::string> describe_message(const Query& query, const Topology& topology) {
  if (query.to < 0 || query.to >= topology.n_ranks()) {
    return error(ErrorCode::InvalidArgument, "to is %d: it must be from 0 to %d", query.to,
                 topology.n_ranks() - 1);
  }
  if (query.slice_bytes > 0 || query.depth > 0) {
    return error(ErrorCode::InvalidArgument,
                 "a message has slices and a depth of its own: leave slice_bytes and depth 0");
  }
  Subject subject{{Collective::PointToPoint, query.call.root}, query.to};
  for (int rank = 0; rank < topology.n_ranks(); ++rank) {
    subject.plans.push_back(plan::plan_message(rank, query.call.root, query.to, topology));
  }
  Choice choice = lower::kMessageChoice;
  for (const lower::Reach& lane : subject.target_of(topology, query.call.root).lanes)
    choice = lower::message_choice(choice, lane.ring_bytes);
  subject.cut(choice, query.call.count, query.call.type);
  HETCCL_ASSIGN(Json head, head_of(query, topology, subject));
  head.set("to", query.to);
  head.set("candidates", std::vector<Json>());
  return finish(head, query, topology, subject);
}

}  // namespace

Result<std::string> describe(const Query& query, const Topology& topology, plan::Algorithms table) {
  HETCCL_TRY(check_query(query, topology));
  if (query.call.collective == Collective::PointToPoint) return describe_message(query, topology);
  Signature call = query.call;
  if (call.collective == Collective::Barrier) call.count = 0;
  Subject subject{plan::spec_of(call, topology)};
  Chooser chooser(topology, topology.measured(), /*deterministic=*/false, table);
  const Candidate chosen = chooser.choose(subject.spec, call.count, call.type);
  subject.spec.algorithm = chosen.algorithm;
  Choice choice = chosen.choice;
  HETCCL_ASSIGN(subject.plans, plan_all(subject.spec, topology, table));
  if (query.slice_bytes > 0) choice.slice_bytes = query.slice_bytes;
  if (query.depth > 0) choice.depth = query.depth;
  subject.cut(choice, call.count, call.type);

  const auto candidates = chooser.candidates(subject.spec, call.count, call.type);
  const double factor =
      Correction(chooser, topology, query.learnt)
          .factor(key_of(call, call.count, topology), call.count * size_of(call.type));
  HETCCL_ASSIGN(Json head, head_of(query, topology, subject));
  head.set("candidates", candidates_of(candidates, chosen.algorithm, factor));
  return finish(head, query, topology, subject);
}

}  // namespace hetccl::tune
