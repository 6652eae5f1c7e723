#include "base/config.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>

#include "fake/captured_stderr.h"

namespace hetccl {
namespace {

Result<Config> parse(const std::vector<std::string>& environment) {
  return Config::parse(environment);
}

std::string refusal(const std::string& variable) {
  return parse({variable}).status().message();
}

TEST_CASE("the table's defaults are the struct's") {
  const auto values = Config().describe();
  CHECK(values.size() == config_entries().size());
  for (const ConfigEntry& entry : config_entries()) {
    CAPTURE(entry.name);
    REQUIRE(values.count(std::string(entry.name)) == 1);
    CHECK(values.at(std::string(entry.name)) == entry.default_value);
    CHECK_FALSE(entry.help.empty());
  }
}

TEST_CASE("values are parsed by type; other programs' variables are not looked at") {
  const auto config =
      parse({"PATH=/bin", "HETCCL_TCP_STREAMS=8", "HETCCL_SHM=0", "HETCCL_CLUSTER=left",
             "HETCCL_PORT_RANGE=4000-4010", "HETCCL_DEBUG=INFO", "HETCCL_SOCKET_IFNAME=^docker,lo",
             "NCCL_DEBUG=x", "HETCCL_DEPTH="});
  REQUIRE(config.ok());
  CHECK(config.value().tcp_streams == 8);
  CHECK_FALSE(config.value().transport_shm);
  CHECK(config.value().cluster == "left");
  CHECK(config.value().port_range == "4000-4010");
  CHECK(config.value().log_level == "INFO");
  CHECK(config.value().socket_ifname == "^docker,lo");
  CHECK(config.value().depth == 0);
  CHECK(config.value().is_given("HETCCL_SHM"));
  CHECK_FALSE(config.value().is_given("HETCCL_DEPTH"));
}

TEST_CASE("a driver whose launches wait for their kernels is known") {
  const auto waits = [](const char* name, const char* value) {
    ::setenv(name, value, 1);
    const Result<Config> config = Config::from_environment();
    ::unsetenv(name);
    return config.value().launches_wait;
  };
  CHECK(waits("CUDA_LAUNCH_BLOCKING", "1"));
  CHECK(waits("HIP_LAUNCH_BLOCKING", "1"));
  CHECK_FALSE(waits("CUDA_LAUNCH_BLOCKING", "0"));
  CHECK_FALSE(waits("HIP_LAUNCH_BLOCKING", ""));
}

TEST_CASE("a setting with the default's value is given, too") {
  CHECK(parse({"HETCCL_TIMEOUT_MS=600000"}).value().is_given("HETCCL_TIMEOUT_MS"));
  CHECK_FALSE(Config().is_given("HETCCL_TIMEOUT_MS"));
}

TEST_CASE("a bad value names the variable and what it takes") {
  CHECK(refusal("HETCCL_TCP_STREAMS=abc") ==
        "HETCCL_TCP_STREAMS=abc: takes an integer from 0 to 32");
  CHECK(refusal("HETCCL_TCP_STREAMS=-1") == "HETCCL_TCP_STREAMS=-1: takes an integer from 0 to 32");
  CHECK(refusal("HETCCL_TCP_STREAMS=2x").ends_with("takes an integer from 0 to 32"));
  CHECK(refusal("HETCCL_TCP_STREAMS=99999999999999999999").ends_with("from 0 to 32"));
  CHECK(refusal("HETCCL_SHM=yes") == "HETCCL_SHM=yes: takes 0 or 1");
  CHECK(refusal("HETCCL_DEBUG=loud") == "HETCCL_DEBUG=loud: takes one of error, warn, info, debug");
  CHECK(refusal("HETCCL_SOCKET_FAMILY=ipx") == "HETCCL_SOCKET_FAMILY=ipx: takes inet or inet6");
  for (const char* range : {"5", "9-3", "0-10", "1-70000", "a-b", "1-2-3", "-"}) {
    CAPTURE(range);
    CHECK(refusal(std::string("HETCCL_PORT_RANGE=") + range)
              .ends_with("takes first-last, both from 1 to 65535"));
  }
  CHECK(refusal("HETCCL_TRACE=/tmp/%d").ends_with("after % come r, p, c or %"));
  CHECK(refusal("HETCCL_SOCKET_IFNAME=^").ends_with("after ^ or = if wanted"));
  CHECK(parse({"HETCCL_CLUSTER=" + std::string(5000, 'x')}).status().message().size() < 200);
  CHECK(parse({"HETCCL_SHM=2"}).status().code() == ErrorCode::InvalidArgument);
}

TEST_CASE("an empty value counts as unset, but for settings of security it is an error") {
  for (const ConfigEntry& entry : config_entries()) {
    CAPTURE(entry.name);
    const bool protects = entry.name == "HETCCL_ENCRYPT" || entry.name == "HETCCL_SECRET_FILE";
    const auto config = parse({std::string(entry.name) + "="});
    CHECK(config.ok() == !protects);
    if (config.ok()) CHECK(config.value().describe() == Config().describe());
  }
  CHECK(refusal("HETCCL_ENCRYPT=") ==
        "HETCCL_ENCRYPT is set but empty: give it a value (docs/settings.md), or unset it to do "
        "without");
  CHECK(refusal("HETCCL_SECRET_FILE=").starts_with("HETCCL_SECRET_FILE is set but empty: "));
}

TEST_CASE("a misspelt name is reported with the nearest real one") {
  const auto config =
      parse({"HETCCL_TCP_STREAM=4", "HETCCL_SOKET_IFNAMES=eth0", "HETCCL_=1", "HETCCL_SHM=1"});
  REQUIRE(config.ok());
  const std::vector<std::string>& warnings = config.value().warnings();
  REQUIRE(warnings.size() == 3);
  CHECK(warnings[0] ==
        "HETCCL_TCP_STREAM is no setting of hetccl and is ignored; did you mean "
        "HETCCL_TCP_STREAMS?");
  CHECK(warnings[1].ends_with("did you mean HETCCL_SOCKET_IFNAME?"));
  const auto lengthy = parse({"HETCCL_" + std::string(100'000, 'X') + "=1"});
  REQUIRE(lengthy.ok());
  CHECK(lengthy.value().warnings().at(0).size() < 200);
}

TEST_CASE("a name in small letters is near to the same in capitals") {
  for (const char* name : {"HETCCL_wire", "HETCCL_Wire", "HETCCL_wirr"}) {
    const auto config = parse({std::string(name) + "=int8"});
    REQUIRE(config.ok());
    CHECK(config.value().warnings().at(0).ends_with("did you mean HETCCL_WIRE?"));
  }
}

TEST_CASE("the variables of hetccl's own tests are not taken for misspelt settings") {
  const auto config = parse({"HETCCL_TEST_GPU=1", "HETCCL_TEST_SEED=7", "HETCCL_TEST_VENDORS=hip",
                             "HETCCL_TEST_NVRTC=/x", "HETCCL_TEST_SCALE=2"});
  REQUIRE(config.ok());
  CHECK(config.value().warnings().empty());
  CHECK(parse({"HETCCL_TESTS=1"})->warnings().size() == 1);
}

TEST_CASE("rank 0 warns of misspelt settings; other ranks tell them with HETCCL_DEBUG=info") {
  const auto said = [](const char* level, int rank) {
    const auto config = parse({"HETCCL_wire=int8", std::string("HETCCL_DEBUG=") + level}).value();
    return fake::stderr_of([&] { config.warn(rank); });
  };
  CHECK(said("warn", 0).starts_with("hetccl [rank 0] warn: HETCCL_wire is no setting"));
  CHECK(said("warn", -1).starts_with("hetccl warn: HETCCL_wire is no setting"));
  CHECK(said("warn", 3).empty());
  CHECK(said("info", 3).starts_with("hetccl [rank 3] info: HETCCL_wire is no setting"));
}

TEST_CASE("a secret is neither shown nor told when it is mistyped") {
  const std::string id(256, 'a');
  CHECK(parse({"HETCCL_TUNER_ID=" + id}).value().describe().at("HETCCL_TUNER_ID") == "(set)");
  const std::string text = refusal("HETCCL_TUNER_ID=" + id.substr(1));
  CHECK(text.find("aaaa") == std::string::npos);
  CHECK(text ==
        "HETCCL_TUNER_ID=(255 characters, a secret that is not shown): takes 256 hexadecimal "
        "digits");
}

TEST_CASE("libraries and adaptors are named by full paths, or found by the loader") {
  CHECK(parse({"HETCCL_NCCL_LIBRARY=/opt/libnccl.so.2", "HETCCL_RCCL_LIBRARY=none",
               "HETCCL_ADAPTORS=/a/b.so:libc.so"})
            .ok());
  for (const char* bad : {"HETCCL_NCCL_LIBRARY=here/libnccl.so.2", "HETCCL_HIP_LIBRARY=./hip.so",
                          "HETCCL_ADAPTORS=/a/b.so:c/d.so", "HETCCL_ADAPTORS=../d.so"}) {
    CAPTURE(bad);
    CHECK(refusal(bad).find("takes") != std::string::npos);
    CHECK(refusal(bad).find("full path") != std::string::npos);
  }
}

TEST_CASE("a setuid program takes no code and no files from the environment of its user") {
  const std::vector<std::string> environment = {"HETCCL_ADAPTORS=/a.so",
                                                "HETCCL_NCCL_LIBRARY=/n.so",
                                                "HETCCL_DUMP=/d",
                                                "HETCCL_TRACE=/t",
                                                "HETCCL_TUNE_FILE=/f",
                                                "HETCCL_KERNEL_CACHE=/k",
                                                "HETCCL_HIP_LIBRARY=/h.so",
                                                "HETCCL_RCCL_LIBRARY=/r.so",
                                                "HETCCL_MPI_FILE=/m",
                                                "HETCCL_HIPRTC_LIBRARY=/i.so",
                                                "HETCCL_NVRTC_LIBRARY=/v.so"};
  const auto config = Config::parse(environment, Rights::Others);
  REQUIRE(config.ok());
  const std::vector<std::string>& warnings = config.value().warnings();
  CHECK(config.value().describe() == Config().describe());
  CHECK(warnings.size() == environment.size());
  CHECK(warnings.at(0) ==
        "HETCCL_ADAPTORS is ignored: this program runs with another user's rights (setuid)");
  CHECK(Config::parse(std::vector<std::string>{"HETCCL_SECRET_FILE=/s"}, Rights::Others)
            .value()
            .secret_file == "/s");
}

TEST_CASE("the agreed digest holds what plans depend on and nothing of one rank alone") {
  Config config;
  const std::string before = config.agreed();
  config.cluster = "left";
  config.liveness_ms = 1000;
  CHECK(config.agreed() == before);
  config.slice_bytes = 65'536;
  CHECK(config.agreed() != before);
  CHECK(config.agreed().find("HETCCL_SLICE_BYTES=65536\n") != std::string::npos);
}

}  // namespace
}  // namespace hetccl
