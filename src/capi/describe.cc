// The explaining part of the C API: pure functions of their arguments. They need no Runtime, so
// they work where hetccl cannot run: on a laptop, for another machine, in a forked child.
#include "tune/describe.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/json.h"
#include "capi/process.h"
#include "comm/adaptors.h"
#include "hetccl/hetccl.h"
#include "topology/topology.h"
#include "tune/trial.h"

using hetccl::error;
using hetccl::ErrorCode;
using hetccl::Result;
using hetccl::Status;
using hetccl::capi::finished;
using hetccl::capi::narrow;
using hetccl::capi::null;
using hetccl::topology::Topology;

namespace {

Result<Topology> read_topology(const char* text) {
  return Topology::from_json(text, hetccl::comm::traits_of(hetccl::comm::all_adaptors()));
}

// Size of the first release's struct: callers compiled against it pass no more.
constexpr size_t kFirstQueryBytes = offsetof(hetcclPlanQuery_t, code);

Result<hetccl::tune::Query> to_query(const hetcclPlanQuery_t& caller) {
  if (caller.size < kFirstQueryBytes) {
    return error(ErrorCode::InvalidArgument, "query->size is not sizeof(hetcclPlanQuery_t)");
  }
  hetcclPlanQuery_t given{};
  std::memcpy(&given, &caller, std::min(caller.size, sizeof given));
  if (given.topology == nullptr) return null("query->topology");
  if (given.collective == nullptr) return null("query->collective");
  auto collective = hetccl::parse_collective(given.collective);
  if (given.collective == hetccl::tune::kMessageName) collective = hetccl::Collective::PointToPoint;
  if (!collective) {
    return error(ErrorCode::InvalidArgument, "collective \"%.80s\" is none of %s, %s",
                 given.collective, hetccl::collective_names().c_str(),
                 hetccl::tune::kMessageName.data());
  }
  hetccl::tune::Query query;
  query.call = {*collective, narrow<hetccl::DataType>(given.datatype),
                narrow<hetccl::RedOp>(given.op), given.root, given.count};
  query.to = given.to;
  query.rank = given.rank;
  query.slice_bytes = given.slice_bytes;
  query.depth = given.depth;
  query.code = given.code != 0;
  query.mutants = given.mutants;
  query.seed = given.seed;
  if (given.tuning != nullptr) {
    constexpr size_t kMostBytes = size_t{16} << 20U;
    HETCCL_ASSIGN(const auto json, hetccl::Json::parse(given.tuning, "query->tuning", kMostBytes));
    query.learnt = hetccl::tune::learnt_from_json(json["learnt"]);
  }
  return query;
}

}  // namespace

hetcclResult_t hetcclTopologyDescribe(const char* topology, const char** json) {
  return finished([&]() -> Status {
    if (topology == nullptr) return null("topology");
    if (json == nullptr) return null("json");
    HETCCL_ASSIGN(const Topology graph, read_topology(topology));
    thread_local std::string text;
    text = graph.to_json();
    *json = text.c_str();
    return {};
  });
}

hetcclResult_t hetcclPlanDescribe(const hetcclPlanQuery_t* query, const char** json) {
  return finished([&]() -> Status {
    if (query == nullptr) return null("query");
    if (json == nullptr) return null("json");
    HETCCL_ASSIGN(const auto asked, to_query(*query));
    HETCCL_ASSIGN(const Topology graph, read_topology(query->topology));
    thread_local std::string text;
    HETCCL_ASSIGN(text, hetccl::tune::describe(asked, graph));
    *json = text.c_str();
    return {};
  });
}

hetcclResult_t hetcclCompareTimes(const double* tried, const double* beside, size_t n,
                                  double* ratio, double* error_of) {
  return finished([&]() -> Status {
    constexpr size_t kMost = size_t{1} << 24U;
    const std::pair<const char*, const void*> pointers[] = {
        {"tried", tried}, {"beside", beside}, {"ratio", ratio}, {"error", error_of}};
    for (const auto& [name, pointer] : pointers) {
      if (pointer == nullptr) return null(name);
    }
    if (n == 0 || n > kMost) {
      return error(ErrorCode::InvalidArgument, "n is %zu: it must be from 1 to %zu", n, kMost);
    }
    for (size_t i = 0; i < n; ++i) {
      const bool valid =
          std::isfinite(tried[i]) && std::isfinite(beside[i]) && tried[i] >= 0 && beside[i] >= 0;
      if (valid) continue;
      return error(ErrorCode::InvalidArgument, "pair %zu: times must be finite, and none below 0",
                   i);
    }
    const auto compared = hetccl::tune::compare({tried, n}, {beside, n});
    *ratio = compared.ratio;
    *error_of = compared.error;
    return {};
  });
}
