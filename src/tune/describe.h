// Explains a collective or a message that is not called, for `hetccl plan`.
#pragma once

#include <string>
#include <string_view>

#include "plan/algorithms.h"
#include "tune/conductor.h"

namespace hetccl::tune {

/// The name of a message, used where collectives have theirs.
inline constexpr std::string_view kMessageName = "send_recv";

/// The call to explain.
struct Query {
  Signature call;
  int to = -1;                   ///< PointToPoint: the rank that receives; `call.root` sends
  int rank = -1;                 ///< lists this rank's steps; -1: every rank's
  uint64_t slice_bytes = 0;      ///< as HETCCL_SLICE_BYTES; 0: the Chooser's
  uint32_t depth = 0;            ///< as HETCCL_DEPTH; 0: the Chooser's
  bool code = false;             ///< lists the instructions, too
  uint64_t mutants = 0;          ///< number of mutants to test the verifier with
  uint64_t seed = 0;             ///< chooses the mutants
  std::vector<Learnt> learnt{};  ///< by such a job: corrects the predictions
};

/// Returns all ranks' plans, the payload between each pair of clusters, the least possible payload
/// and the verifier's verdict, as JSON with one line per step:
///
///   {collective, type, op, root, count, bytes, plan, stages, clusters,
///    candidates: [{plan, hops, slice_bytes, depth, predicted_us: between clusters, chosen}],
///    slices: {number, bytes, depth, slots, lag: per stage},
///    traffic: [{from, to, bytes, messages: per slice}], cross_bytes, least_bytes,
///    verifier: {verdict: "correct" | "wrong" | "too large", reason, steps, messages},
///    mutants: {made, rejected, survivors: [text]}, where some are asked for,
///    ranks: [{rank, cluster, plan, code: where asked for}]}
///
/// A message, whose collective is kMessageName, also has `to`, and no candidates.
/// Returns InvalidArgument naming the error in the query, or Unsupported if a plan or the answer
/// would be too large.
Result<std::string> describe(const Query& query, const topology::Topology& topology,
                             plan::Algorithms table = plan::algorithms());

}  // namespace hetccl::tune
