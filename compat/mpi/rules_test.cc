#include "mpi/rules.h"

#include <doctest/doctest.h>

#include "mpi/default_rules.h"

namespace hetccl::mpi {
namespace {

Rules parse(std::string_view text) {
  auto rules = Rules::parse(text, "rules.json");
  REQUIRE_MESSAGE(rules.ok(), rules.status().message());
  return std::move(rules).value();
}

std::string refusal(std::string_view text) {
  const auto rules = Rules::parse(text, "rules.json");
  REQUIRE(!rules.ok());
  return rules.status().message();
}

Question of(Collective collective, int64_t bytes) {
  return {.collective = collective,
          .average_bytes = bytes,
          .total_bytes = 4 * bytes,
          .count = bytes / 4,
          .shape = {.size = 4, .nodes = 2}};
}

constexpr auto kMpichs = R"({
  "collective=allreduce": {
    "comm_type=intra": {
      "comm_size=node_comm_size": {"composition=MPIDI_Allreduce_intra_composition_gamma": {}},
      "comm_hierarchy=parent": {
        "avg_msg_size <= 8192": {"composition=MPIDI_Allreduce_intra_composition_alpha": {}},
        "avg_msg_size < 65536": {"algorithm=MPIR_Allreduce_intra_recursive_doubling": {}},
        "avg_msg_size=any": {"algorithm=MPIR_Allreduce_intra_ccl": {"ccl=auto": {}}}
      }
    }
  },
  "collective=scan": {"algorithm=MPIR_Scan_intra_smp": {}}
})";

TEST_CASE("a file of MPICH's form decides by shape and size") {
  const Rules rules = parse(kMpichs);
  Question question = of(Collective::Allreduce, 8192);
  CHECK(rules.decide(question).algorithm == Algorithm::Alpha);
  question.average_bytes = 8193;
  CHECK(rules.decide(question).algorithm == Algorithm::Beta);
  question.average_bytes = 65536;
  CHECK(rules.decide(question).algorithm == Algorithm::Device);
  question.shape.nodes = 1;
  CHECK(rules.decide(question).algorithm == Algorithm::Gamma);
  CHECK(rules.decide(of(Collective::Bcast, 8)).algorithm == Algorithm::None);
}

TEST_CASE("ranks of a node are limited by any number, the largest too") {
  const auto holds = [](const std::string& limit) {
    const Rules rules = parse(R"({"comm_avg_ppn<=)" + limit + R"(": {"algorithm=device": {}}})");
    return rules.decide(of(Collective::Allreduce, 8)).by_hetccl();  // 4 ranks on 2 nodes
  };
  CHECK(!holds("1"));
  CHECK(holds("2"));
  CHECK(holds("9223372036854775807"));
}

TEST_CASE("what no rank knows is within no limit") {
  const Rules rules = parse(kMpichs);
  Question question = of(Collective::Allreduce, -1);
  CHECK(rules.decide(question).algorithm == Algorithm::Device);
}

TEST_CASE("a nonblocking call has rules of its own, or those of its blocking form") {
  const Rules rules = parse(R"({
    "collective=allreduce": {"algorithm=device": {}},
    "collective=iallreduce": {"algorithm=mpi": {}},
    "collective=bcast": {"algorithm=device": {}}})");
  Question question = of(Collective::Allreduce, 8);
  CHECK(rules.decide(question).by_hetccl());
  question.nonblocking = true;
  CHECK(!rules.decide(question).by_hetccl());
  question.collective = Collective::Bcast;
  CHECK(rules.decide(question).by_hetccl());
}

TEST_CASE("an all-reduce may be cut into parts") {
  const Rules rules =
      parse(R"({"buffer=device": {"algorithm=device": {"streams=4": {}, "communicators=2": {}}},
                "any": {"algorithm=device": {"communicators=3": {}}}})");
  Question question = of(Collective::Allreduce, 8);
  CHECK(rules.decide(question) == Decision{Algorithm::Device, 3, 3});
  question.device = true;
  CHECK(rules.decide(question) == Decision{Algorithm::Device, 4, 2});
}

TEST_CASE("what is wrong is named with its place") {
  CHECK(refusal("{") != "");
  CHECK(refusal(R"({"collective=sum": {"algorithm=mpi": {}}})") ==
        "rules.json: collective=sum: is no collective");
  CHECK(refusal(R"({"collective=bcast": {"avg_msg_size<=x": {"algorithm=mpi": {}}}})") ==
        "rules.json: collective=bcast / avg_msg_size<=x: takes a number that is not negative");
  CHECK(refusal(R"({"collective=bcast": {"size=3": {"algorithm=mpi": {}}}})") ==
        "rules.json: collective=bcast / size=3: is no condition that hetccl or MPICH knows");
  CHECK(refusal(R"({"mpi=other": {"algorithm=mpi": {}}})") ==
        "rules.json: mpi=other: is no MPI: mpich, intel or openmpi");
  CHECK(refusal(R"({"any": {}})") == "rules.json: any: is not an object with members");
  CHECK(refusal("[]") == "rules.json: is not an object with members");
  CHECK(refusal(R"({"algorithm=device": {"stream=4": {}}})").find("stream=4 is no parameter") !=
        std::string::npos);
  CHECK(refusal(R"({"algorithm=fast": {}})").starts_with("rules.json: algorithm=fast: is no "));
  CHECK(refusal(R"({"algorithm=device": {"streams=99": {}}})") ==
        "rules.json: algorithm=device: streams=99: 1 to 16, of device");
  CHECK(refusal(R"({"algorithm=mpi": {"streams=2": {}}})") ==
        "rules.json: algorithm=mpi: streams=2: 1 to 16, of device");
}

TEST_CASE("hetccl's own rules are rules") {
  const Rules rules = parse(default_rules());
  Question question = of(Collective::Allreduce, 1024);
  question.shape.nodes = 1;
  question.maker = Maker::Mpich;
  CHECK(rules.decide(question).by_hetccl());
  question.maker = Maker::OpenMpi;
  CHECK(!rules.decide(question).by_hetccl());
  question.device = true;
  CHECK(rules.decide(question).by_hetccl());
  question.shape.nodes = 2;  // small messages go through the host
  CHECK(!rules.decide(question).by_hetccl());
  question.average_bytes = 1 << 20;
  CHECK(rules.decide(question).by_hetccl());
  question.collective = Collective::Alltoallv;  // not all ranks know its lengths
  question.average_bytes = question.total_bytes = -1;
  CHECK(rules.decide(question).by_hetccl());
  question.collective = Collective::Barrier;
  CHECK(!rules.decide(question).by_hetccl());
}

}  // namespace
}  // namespace hetccl::mpi
