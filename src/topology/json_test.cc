#include <doctest/doctest.h>

#include "topology/topology.h"

namespace hetccl::topology {
namespace {

RankInfo sample(int rank) {
  RankInfo info;
  info.rank = rank;
  info.host = "boot:\"net\"";
  info.host_name = "höst";
  info.pid = 4711;
  info.vendor = "host";
  info.model = "EPYC";
  info.architecture = "x86_64";
  info.bus_id = "0000:01:00.0";
  info.library = "host";
  info.library_version = "1";
  info.reach = {.hosts = false, .architectures = true};
  info.label = rank % 2 == 0 ? "even" : "odd";
  info.nics = {{"eth0", "10.0.0.1", 25'000, 1}, {"eth1", "fe80::1", 0, 0}};
  return info;
}

TEST_CASE("a rank's description survives its wire form") {
  const Result<RankInfo> read = rank_info_from_json(to_json(sample(3)));
  REQUIRE(read.ok());
  CHECK(read.value() == sample(3));
}

TEST_CASE("a topology survives JSON") {
  const Result<Topology> built = Topology::build({sample(0), sample(1), sample(2)});
  REQUIRE(built.ok());
  const Result<Topology> read = Topology::from_json(built.value().to_json());
  REQUIRE(read.ok());
  CHECK(read.value() == built.value());
  CHECK(read.value().clusters().size() == 2);
}

TEST_CASE("what a library joins follows from its vendor where a description does not say it") {
  const std::string head = R"({"ranks":[{"rank":0,"host":"a","vendor":"v"},)";
  const std::string tail = R"({"rank":1,"host":"b","vendor":"v","architecture":"x"}]})";
  const auto clusters_with = [&](const LibraryReach& reach, const std::string& text) {
    AdaptorTraits traits;
    traits.libraries["v"].reach = reach;
    return Topology::from_json(text, traits).value().clusters().size();
  };
  CHECK(clusters_with({true, true}, head + tail) == 1);
  CHECK(clusters_with({true, false}, head + tail) == 2);
  CHECK(clusters_with({false, true}, head + tail) == 2);
  CHECK(Topology::from_json(head + tail).value().clusters().size() == 2);
  const std::string says = R"({"rank":1,"host":"a","vendor":"v","library_joins_hosts":false}]})";
  CHECK(clusters_with({true, true}, head + says) == 2);
}

TEST_CASE("measurements survive JSON, alone and with their topology") {
  const std::vector<Measurement> measured = {{0, 1, 41'000, 940}, {1, 1, 12'000, 0}};
  const Topology topology = Topology::build({sample(0), sample(1), sample(2)}).value();
  CHECK(measurements_from_json(to_json(measured), topology).value() == measured);
  const Topology with = topology.with(measured).value();
  CHECK(with.measured() == measured);
  CHECK(Topology::from_json(with.to_json()).value() == with);
  CHECK(topology.with({{0, 2, 1, 1}}).status().message().find("clusters 0 to 1") !=
        std::string::npos);
  CHECK_FALSE(topology.with({{1, 0, 1, 1}}).ok());
  for (const char* text : {"7", "[7]", R"([{"a":-1}])", R"([{"latency_ns":1e30}])",
                           R"([{"mbps":"x"}])", R"([{"a":0,"b":2}])"}) {
    const Status status = measurements_from_json(text, topology).status();
    CHECK_MESSAGE(status.code() == ErrorCode::InvalidArgument, text);
  }
}

TEST_CASE("a device without kernels, whose memory is its own, survives JSON") {
  RankInfo info = sample(0);
  info.kernels = info.host_access = false;
  info.window_bytes = 1 << 20;
  CHECK(rank_info_from_json(to_json(info)).value() == info);
  CHECK_FALSE(Topology::build({info}).value().kernels_everywhere());
  const std::string text = R"({"rank":0,"host":"a","vendor":"host","kernels":1})";
  CHECK(rank_info_from_json(text).status().message().find("\"kernels\"") != std::string::npos);
}

TEST_CASE("what a rank can do survives JSON; masks that stand for no reductions are refused") {
  RankInfo info = sample(0);
  info.library_reduces = ReductionSet::where([](DataType, RedOp op) { return !is_bitwise(op); });
  info.library_sends = info.library_exchanges = false;
  CHECK(rank_info_from_json(to_json(info)).value() == info);
  const std::string head = R"({"rank":0,"host":"a","vendor":"host",)";
  CHECK(rank_info_from_json(head + R"("library_reduces":[4095,0,0,0,0,0,0,0,0]})").ok());
  for (const char* wrong :
       {"7", "null", "[]", "[1,2,3]", "[0,0,0,0,0,0,0,0,0,0]", "[0,0,0,0,0,0,0,0,\"1\"]",
        "[-1,0,0,0,0,0,0,0,0]", "[16384,0,0,0,0,0,0,0,0]", "[0,0,0,0,0,0,128,0,0]",
        "[0,0,0,0,0,0,0,0,1.5]", "[4294967296,0,0,0,0,0,0,0,0]"}) {
    const auto read = rank_info_from_json(head + "\"library_reduces\":" + wrong + "}");
    CHECK_MESSAGE(read.status().code() == ErrorCode::InvalidArgument, wrong);
    CHECK(read.status().message().find("library_reduces") != std::string::npos);
  }
}

TEST_CASE("what a description says of a library, no vendor's row overrides") {
  AdaptorTraits traits;
  traits.libraries["host"].reach = {true, true};
  RankInfo info = sample(0);
  info.reach = {false, false};
  info.library_reduces = ReductionSet::where([](DataType, RedOp op) { return !is_bitwise(op); });
  info.library_exchanges = false;
  const Topology topology = Topology::build({info}).value();
  CHECK(Topology::from_json(topology.to_json(), traits).value().infos()[0] == info);
}

TEST_CASE("bytes that are no UTF-8 do not break the wire form") {
  RankInfo info = sample(0);
  info.label = "\xff\xfe";
  CHECK(rank_info_from_json(to_json(info)).ok());
}

TEST_CASE("hostile descriptions are refused with a reason") {
  const std::string head = R"({"rank":0,"host":"a","vendor":"host")";
  REQUIRE(rank_info_from_json(head + "}").ok());
  const std::pair<std::string, std::string> cases[] = {
      {"", "not JSON"},
      {"\0\xff", "not JSON"},
      {"[1,2", "not JSON"},
      {"[]", "must be a JSON object"},
      {R"({"rank":0,"host":"a"})", "lacks \"vendor\""},
      {R"({"rank":-1,"host":"a","vendor":"host"})", "\"rank\" must be an integer"},
      {R"({"rank":65536,"host":"a","vendor":"host"})", "\"rank\" must be an integer"},
      {R"({"rank":18446744073709551615,"host":"a","vendor":"host"})", "\"rank\""},
      {R"({"rank":0.5,"host":"a","vendor":"host"})", "\"rank\""},
      {R"({"rank":1e400,"host":"a","vendor":"host"})", ""},
      {R"({"rank":0,"host":7,"vendor":"host"})", "\"host\" must be a string"},
      {head + R"(,"label":")" + std::string(5000, 'x') + "\"}", "at most 4096"},
      {head + R"(,"nics":{}})", "\"nics\" must be an array"},
      {head + R"(,"nics":[1]})", "a NIC must be an object"},
      {head + R"(,"nics":[{"mbps":-1}]})", "\"mbps\""},
      {head + R"(,"nics":[{"distance":"near"}]})", "\"distance\""},
      {std::string(1'000'000, '['), "nested more than 64 deep"},
      {std::string(2'000'000, ' '), "at most"},
  };
  for (const auto& [text, reason] : cases) {
    const Result<RankInfo> read = rank_info_from_json(text);
    CHECK_FALSE(read.ok());
    CHECK(read.status().code() == ErrorCode::InvalidArgument);
    CHECK_MESSAGE(read.status().message().find(reason) != std::string::npos,
                  read.status().message());
  }
  std::string nics = head + R"(,"nics":[{})";
  for (int i = 0; i < 256; ++i) nics += ",{}";
  CHECK_FALSE(rank_info_from_json(nics + "]}").ok());
}

TEST_CASE("hostile topologies are refused with a reason") {
  for (const char* text : {"", "[]", "{}", R"({"ranks":1})", R"({"ranks":[]})", R"({"ranks":[1]})",
                           R"({"ranks":[{"rank":1,"host":"a","vendor":"host"}]})"}) {
    CHECK_FALSE(Topology::from_json(text).ok());
  }
  const std::string bad = R"({"ranks":[{"rank":0,"host":"a","vendor":"host"},{"rank":1}]})";
  CHECK(Topology::from_json(bad).status().message().find("place 1") != std::string::npos);
}

TEST_CASE("names of a peer or a file are fit for a terminal") {
  const std::string json =
      R"({"ranks":[{"rank":0,"host":"a","host_name":"b\u001b[2J\nZürich","vendor":"host"}]})";
  const auto topology = Topology::from_json(json);
  REQUIRE(topology.ok());
  CHECK(topology.value().infos()[0].host_name == "b\\x1b[2J\\nZürich");
}

TEST_CASE("every truncation of a valid topology is refused without harm") {
  const std::string text = Topology::build({sample(0)}).value().to_json();
  for (size_t length = 0; length < text.size(); ++length) {
    CHECK_FALSE(Topology::from_json(std::string_view(text).substr(0, length)).ok());
  }
}

}  // namespace
}  // namespace hetccl::topology
