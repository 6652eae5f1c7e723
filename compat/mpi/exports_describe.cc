// Functions that `hetccl mpi-info` and `hetccl tune --mpi` call. They need no MPI.
#include <algorithm>
#include <cstdint>
#include <string>

#include "base/json.h"
#include "mpi/answer.h"
#include "mpi/default_rules.h"
#include "mpi/rule_source.h"
#include "mpi/rules.h"

namespace hetccl::mpi {
namespace {

constexpr int64_t kLongest = int64_t{1} << 30;

Json describe(const Decision& decision) {
  if (decision.algorithm == Algorithm::None) return Json(name_of(Algorithm::Beta));
  std::string text(name_of(decision.algorithm));
  if (decision.streams > 1) {
    text += format(", %d streams, %d communicators", decision.streams, decision.communicators);
  }
  return Json(text);
}

// Lists the block sizes (powers of two) at which the algorithm changes, each with its algorithm.
Json decisions_of(const Rules& rules, Question question) {
  std::vector<Json> list;
  Decision last;
  for (int64_t bytes = 1; bytes <= kLongest; bytes *= 2) {
    question.average_bytes = bytes;
    question.total_bytes = bytes * question.shape.size;
    question.count = bytes;
    const Decision decision = rules.decide(question);
    if (bytes > 1 && decision == last) continue;
    last = decision;
    list.push_back(Json{{"from_bytes", bytes}, {"algorithm", describe(decision)}});
  }
  return Json(std::move(list));
}

Result<Json> describe_rules(const char* maker, int size, int nodes) {
  HETCCL_ASSIGN(const Config config, Config::from_environment());
  config.warn(-1);
  HETCCL_ASSIGN(const RuleSource source, find_rules(config));
  HETCCL_ASSIGN(const Rules rules, Rules::parse(source.text, source.name));
  const auto known = std::find(kMakers.begin(), kMakers.end(), std::string_view(maker));
  std::vector<Json> rows;
  for (size_t i = 0; i < kCollectives; ++i) {
    Question question;
    question.collective = static_cast<Collective>(i);
    question.shape = {.size = size, .nodes = nodes};
    question.maker = static_cast<Maker>(known - kMakers.begin());
    Json row{{"collective", name_of(question.collective)}};
    row.set("host", decisions_of(rules, question));
    question.device = true;
    row.set("device", decisions_of(rules, question));
    rows.push_back(std::move(row));
  }
  return Json{{"source", source.name}, {"collectives", Json(std::move(rows))}};
}

}  // namespace

/// Returns hetccl's own rules, as JSON.
extern "C" __attribute__((visibility("default"))) const char* hetcclMpiDefaultRules() {
  try {
    static const std::string text = default_rules();
    return text.c_str();
  } catch (const std::exception&) {
    return "";  // out of memory
  }
}

// Applies this environment's rules to `size` ranks on `nodes` nodes, under the MPI of `maker`
// (kMakers). Answers in JSON: {"source", "collectives": [{"collective", "host": [{"from_bytes",
// "algorithm"}], "device"}]}. Returns 0, or 1 with the error in `*answer`, which is valid until
// this thread's next call.
extern "C" __attribute__((visibility("default"))) int hetcclMpiDescribeRules(const char* maker,
                                                                             int size, int nodes,
                                                                             const char** answer) {
  return answer_with([&] { return describe_rules(maker, size, nodes); }, answer);
}

}  // namespace hetccl::mpi
