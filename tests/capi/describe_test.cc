// Topologies and plans are described without a communicator; bad input is an error that names it.
#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "fake/thread.h"
#include "hetccl/hetccl.h"

namespace {

const char* const kTwoHosts = R"({"ranks": [
  {"rank": 0, "host": "a", "vendor": "host", "nics": [{"name": "e", "mbps": 1000}]},
  {"rank": 1, "host": "b", "vendor": "host", "nics": [{"name": "e", "mbps": 2000}]}]})";

hetcclPlanQuery_t query_of(const char* collective) {
  hetcclPlanQuery_t query{};
  query.size = sizeof query;
  query.topology = kTwoHosts;
  query.collective = collective;
  query.count = 1000;
  query.datatype = hetcclFloat32;
  query.rank = -1;
  return query;
}

std::string refused(const hetcclPlanQuery_t& query) {
  const char* json = nullptr;
  CHECK(hetcclPlanDescribe(&query, &json) == hetcclInvalidArgument);
  CHECK(json == nullptr);
  return hetcclGetLastError(nullptr);
}

TEST_CASE("a topology's clusters and links follow from its ranks") {
  const char* json = nullptr;
  REQUIRE(hetcclTopologyDescribe(kTwoHosts, &json) == hetcclSuccess);
  const std::string text = json;
  CHECK(text.find("\"clusters\"") != std::string::npos);
  CHECK(text.find("\"mbps\": 1000\n") != std::string::npos);
  REQUIRE(hetcclTopologyDescribe(text.c_str(), &json) == hetcclSuccess);
  CHECK(text == json);
}

TEST_CASE("what a vendor's library cannot reduce is refused, whoever wrote the topology") {
  const char* json = nullptr;
  hetcclPlanQuery_t query = query_of("all_reduce");
  query.topology = R"({"ranks": [{"rank": 0, "host": "a", "vendor": "cuda", "library": "nccl"},
                                 {"rank": 1, "host": "b", "vendor": "cuda", "library": "nccl"}]})";
  CHECK(hetcclPlanDescribe(&query, &json) == hetcclSuccess);
  query.datatype = hetcclInt16;
  CHECK(hetcclPlanDescribe(&query, &json) == hetcclUnsupported);
  CHECK(std::string(hetcclGetLastError(nullptr)).find("rank 0 cannot reduce int16 by sum") !=
        std::string::npos);
}

TEST_CASE("a bad topology is an error that says what is wrong with it") {
  const char* json = nullptr;
  for (const auto& [bad, says] : std::vector<std::pair<const char*, const char*>>{
           {"", "not JSON"},
           {"[]", "\"ranks\""},
           {R"({"ranks": []})", "at least one rank"},
           {R"({"ranks": [{"rank": 0, "host": "a"}]})", "lacks \"vendor\""},
           {R"({"ranks": [{"rank": 1, "host": "a", "vendor": "host"}]})", "rank 1"}}) {
    CAPTURE(bad);
    CHECK(hetcclTopologyDescribe(bad, &json) == hetcclInvalidArgument);
    const std::string error = hetcclGetLastError(nullptr);
    CAPTURE(error);
    CHECK(error.find(says) != std::string::npos);
    hetcclPlanQuery_t query = query_of("all_reduce");
    query.topology = bad;
    CHECK(refused(query) == error);
  }
  CHECK(hetcclTopologyDescribe(nullptr, &json) == hetcclInvalidArgument);
  CHECK(hetcclTopologyDescribe(kTwoHosts, nullptr) == hetcclInvalidArgument);
}

TEST_CASE("a plan is described with the verifier's word") {
  const hetcclPlanQuery_t query = query_of("all_reduce");
  const char* json = nullptr;
  REQUIRE(hetcclPlanDescribe(&query, &json) == hetcclSuccess);
  const std::string text = json;
  for (const char* part : {"\"cross_bytes\":8000", "\"least_bytes\":8000",
                           "\"verdict\":\"correct\"", "\"kind\":\"send\""}) {
    CHECK(text.find(part) != std::string::npos);
  }
}

TEST_CASE("a query of a caller that knows fewer members, or more, is answered") {
  struct Newer {
    hetcclPlanQuery_t known;
    char more[64];
  } newer{query_of("all_reduce"), {}};
  newer.known.size = sizeof newer;
  hetcclPlanQuery_t older = query_of("all_reduce");
  older.size = offsetof(hetcclPlanQuery_t, code);
  older.code = 1;  // lies after the caller's part
  older.tuning = "no JSON";
  for (const hetcclPlanQuery_t* query : {&newer.known, &older}) {
    const char* json = nullptr;
    REQUIRE(hetcclPlanDescribe(query, &json) == hetcclSuccess);
    CHECK(std::string(json).find("\"code\":") == std::string::npos);
  }
  --older.size;
  CHECK(refused(older).find("query->size") != std::string::npos);
}

TEST_CASE("a bad query is an error that names what is wrong") {
  const char* json = nullptr;
  CHECK(hetcclPlanDescribe(nullptr, &json) == hetcclInvalidArgument);
  hetcclPlanQuery_t query = query_of("all_reduce");
  CHECK(hetcclPlanDescribe(&query, nullptr) == hetcclInvalidArgument);
  query.size = 3;
  CHECK(refused(query).find("query->size") != std::string::npos);
  query = query_of(nullptr);
  CHECK(refused(query) == "query->collective is null");
  query = query_of("all_reduse");
  CHECK(refused(query).find("\"all_reduse\" is none of all_reduce, ") != std::string::npos);
  query = query_of("all_reduce");
  query.topology = nullptr;
  CHECK(refused(query) == "query->topology is null");
  query = query_of("all_reduce");
  query.datatype = static_cast<hetcclDataType_t>(50);
  CHECK(refused(query).find("datatype") != std::string::npos);
  query = query_of("broadcast");
  query.root = 2;
  CHECK(refused(query).find("root is 2") != std::string::npos);
  query = query_of("broadcast");
  query.rank = 2;
  CHECK(refused(query).find("rank is 2") != std::string::npos);
}

TEST_CASE("threads describe at once, each with a text of its own") {
  std::vector<hetccl::fake::Thread> threads;
  std::vector<int> right(4, 0);
  for (size_t i = 0; i < right.size(); ++i) {
    threads.emplace_back([i, &right] {
      for (int repeat = 0; repeat < 20; ++repeat) {
        hetcclPlanQuery_t query = query_of("broadcast");
        query.count = 100 * (i + 1);
        const char* json = nullptr;
        if (hetcclPlanDescribe(&query, &json) != hetcclSuccess) return;
        const auto want = "\"count\":" + std::to_string(query.count) + ",";
        right[i] += std::string(json).find(want) != std::string::npos ? 1 : 0;
      }
    });
  }
  for (hetccl::fake::Thread& thread : threads) thread.join();
  CHECK(right == std::vector<int>(4, 20));
}

}  // namespace
