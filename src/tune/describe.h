// A collective or a message explained: what `hetccl plan` shows of a call that nobody makes.
#pragma once

#include <string>
#include <string_view>

#include "plan/algorithms.h"
#include "tune/conductor.h"

namespace hetccl::tune {

/// The name of a message, where collectives have theirs.
inline constexpr std::string_view kMessageName = "send_recv";

/// The call to explain.
struct Query {
  Signature call;
  int to = -1;                   ///< PointToPoint: the rank that receives; `call.root` sends
  int rank = -1;                 ///< whose steps are listed; -1: every rank's
  uint64_t slice_bytes = 0;      ///< as the setting HETCCL_SLICE_BYTES; 0: what Chooser says
  uint32_t depth = 0;            ///< as the setting HETCCL_DEPTH; 0: what Chooser says
  bool code = false;             ///< lists the instructions, too
  uint64_t mutants = 0;          ///< that the verifier is to reject
  uint64_t seed = 0;             ///< chooses them
  std::vector<Learnt> learnt{};  ///< of such a job: corrects what is predicted
};

/// All ranks' plans, the payload between each pair of clusters against the least possible, and what
/// the verifier says of it, as JSON with one line per step:
///
///   {collective, type, op, root, count, bytes, plan, stages, clusters,
///    candidates: [{plan, hops, slice_bytes, depth, predicted_us: between clusters, chosen}],
///    slices: {number, bytes, depth, slots, lag: per stage},
///    traffic: [{from, to, bytes, messages: per slice}], cross_bytes, least_bytes,
///    verifier: {verdict: "correct" | "wrong" | "too large", reason, steps, messages},
///    mutants: {made, rejected, survivors: [text]}, where some are asked for,
///    ranks: [{rank, cluster, plan, code: where asked for}]}
///
/// A message, whose collective is kMessageName, has `to`, too, and no candidates.
/// InvalidArgument names what is wrong with the query; Unsupported where a plan or the answer would
/// be too large.
Result<std::string> describe(const Query& query, const topology::Topology& topology,
                             plan::Algorithms table = plan::algorithms());

}  // namespace hetccl::tune
