#include "comm/adaptors.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "fake/host_adaptor.h"
#include "fake/transport_adaptor.h"

namespace hetccl::comm {
namespace {

using transport::ChannelEnd;
using transport::MemoryKind;

std::string chosen(const ChannelEnd& local, const ChannelEnd& peer,
                   const std::set<std::string>& usable = {"tcp", "shm"}) {
  const auto rows = all_adaptors().transports;
  const auto* row = choose_transport(
      rows, local, peer, [&](const std::string& name) { return usable.contains(name); });
  return row != nullptr ? row->name : "";
}

TEST_CASE("ranks of one host that share memory meet there, all others by the network") {
  for (const MemoryKind memory : {MemoryKind::Host, MemoryKind::Device}) {
    CHECK(chosen({"a", true}, {"a", true, memory}) == "shm");
    CHECK(chosen({"a", true}, {"b", true, memory}) == "tcp");
    CHECK(chosen({"a", true}, {"a", false, memory}) == "tcp");
    CHECK(chosen({"a", false}, {"a", true, memory}) == "tcp");
  }
}

TEST_CASE("the best of those that both ends have is chosen") {
  CHECK(chosen({"a", true}, {"a", true}, {"tcp"}) == "tcp");
  CHECK(chosen({"a", true}, {"a", true}, {"shm"}) == "shm");
  CHECK(chosen({"a", true}, {"b", true}, {"shm"}) == "");
  CHECK(chosen({"a", true}, {"a", true}, {}) == "");
}

TEST_CASE("RDMA comes before TCP between hosts, and stays out of a host") {
  const std::set<std::string> all = {"tcp", "shm", "verbs"};
  CHECK(chosen({"a", true}, {"b", true}, all) == "verbs");
  CHECK(chosen({"a", true}, {"a", true}, all) == "shm");
  CHECK(chosen({"a", false}, {"a", true}, all) == "tcp");
  Config config;
  config.encrypt = true;
  const auto rows = all_adaptors().transports;
  const auto& verbs = *std::find_if(rows.begin(), rows.end(),
                                    [](const TransportRow& row) { return row.name == "verbs"; });
  CHECK(verbs.left_out(config).find("HETCCL_ENCRYPT=1") != std::string::npos);
  config.vendor_cleartext = true;  // allows vendors' libraries only
  CHECK(verbs.left_out(config).find("HETCCL_TRANSPORT=verbs") != std::string::npos);
  config.transport = "verbs";
  CHECK(verbs.left_out(config).empty());
  config.vendor_cleartext = false;
  CHECK_FALSE(verbs.left_out(config).empty());
}

TEST_CASE("a net plug-in comes first between hosts, where the user names one") {
  const std::set<std::string> all = {"tcp", "shm", "verbs", "ncclnet"};
  CHECK(chosen({"a", true}, {"b", true}, all) == "ncclnet");
  CHECK(chosen({"a", true}, {"a", true}, all) == "shm");
  CHECK(chosen({"a", false}, {"a", true}, all) == "tcp");
  Config config;
  const auto rows = all_adaptors().transports;
  const auto& ncclnet = *std::find_if(
      rows.begin(), rows.end(), [](const TransportRow& row) { return row.name == "ncclnet"; });
  CHECK(ncclnet.left_out(config).find("HETCCL_NET_PLUGIN is not set") != std::string::npos);
  config.net_plugin = "aws-ofi";
  CHECK(ncclnet.left_out(config).empty());
  config.encrypt = true;
  CHECK(ncclnet.left_out(config).find("HETCCL_ENCRYPT=1") != std::string::npos);
  config.encrypt = false;
  config.transport = "tcp";
  CHECK(ncclnet.left_out(config) == "switched off by HETCCL_TRANSPORT=tcp");
}

TEST_CASE("both ends choose alike") {
  const ChannelEnd ends[] = {
      {"a", true}, {"a", false}, {"b", true}, {"a", true, MemoryKind::Device}};
  for (const TransportRow& row : all_adaptors().transports) {
    for (const ChannelEnd& one : ends) {
      for (const ChannelEnd& other : ends) CHECK(row.score(one, other) == row.score(other, one));
    }
  }
}

TEST_CASE("the topology learns from the rows what it does not know") {
  const topology::AdaptorTraits traits = traits_of(all_adaptors());
  CHECK(traits.in_memory == "shm");
  CHECK(traits.by_network == "tcp");
  CHECK(traits.libraries.at("host").reach == topology::LibraryReach{false, false});
  CHECK(traits.libraries.at("cuda").reach == topology::LibraryReach{true, true});
  CHECK(traits.libraries.at("hip").reach == topology::LibraryReach{true, false});
  CHECK(traits.libraries.at("host").reduces("") == ReductionSet::all());
  CHECK_FALSE(traits.libraries.at("cuda").reduces("").has(DataType::Int32, RedOp::Band));
}

TEST_CASE("adaptors' transports are chosen by score, and change nothing that ranks agree on") {
  const adaptor::Found fake = {"a.so", adaptor::check(&fake::transport_adaptor(), "a.so", {})};
  const adaptor::Found refused = {"b.so", adaptor::check(nullptr, "b.so", {})};
  const Adaptors all = with_transports(all_adaptors(), {refused, fake, fake});
  REQUIRE(all.transports.size() == 6);
  const TransportRow& row = all.transports[4];
  CHECK(row.name == "fake-1");
  CHECK(row.optional);
  Config config;
  CHECK(row.left_out(config).empty());
  CHECK(all.transports[5].left_out(config) == "another adaptor's has the same name and version");
  config.encrypt = true;
  CHECK(row.left_out(config) == "it does not encrypt, and HETCCL_ENCRYPT=1");
  const auto between = [&](const char* host, const std::set<std::string>& usable) {
    return choose_transport(all.transports, {"a", true}, {host, true},
                            [&](const std::string& name) { return usable.contains(name); })
        ->name;
  };
  CHECK(between("b", {"tcp", "shm", "fake-1"}) == "fake-1");
  CHECK(between("a", {"tcp", "shm", "fake-1"}) == "fake-1");  // its score there is above shm's
  CHECK(between("a", {"tcp", "shm"}) == "shm");
  CHECK(traits_of(all).in_memory == "shm");
  CHECK(traits_of(all).by_network == "tcp");
}

TEST_CASE("what a library reduces is known for each architecture") {
  const topology::AdaptorTraits traits = traits_of(all_adaptors());
  const auto reduces = [&](const char* vendor, const char* architecture, DataType type) {
    return traits.libraries.at(vendor).reduces(architecture).has(type, RedOp::Sum);
  };
  for (const DataType type : {DataType::Float8E4m3, DataType::Float8E5m2}) {
    CHECK(reduces("cuda", "sm_90", type));
    CHECK(reduces("cuda", "sm_100", type));
    CHECK(reduces("cuda", "", type));
    CHECK_FALSE(reduces("cuda", "sm_80", type));
    for (const char* gfx : {"gfx1100", "gfx1151", "gfx942:sramecc+:xnack-", ""})
      CHECK_FALSE(reduces("hip", gfx, type));
  }
  CHECK(reduces("cuda", "sm_80", DataType::BFloat16));
  CHECK(reduces("hip", "gfx1100", DataType::BFloat16));
}

// Two GPUs in one cluster reduce by their library alone; in two clusters, by hetccl's kernels.
TEST_CASE("8-bit floats are not asked of RCCL on gfx11, and a label each has kernels reduce them") {
  const auto reduces = [](const std::string& label) {
    const std::string text =
        R"({"ranks":[{"rank":0,"host":"a","vendor":"hip","architecture":"gfx1100"},)"
        R"({"rank":1,"host":"a","vendor":"hip","architecture":"gfx1100","label":")" +
        label + R"("}]})";
    const auto built = topology::Topology::from_json(text, traits_of(all_adaptors()));
    REQUIRE_MESSAGE(built.ok(), built.status().message());
    return built.value().reductions().has(DataType::Float8E4m3, RedOp::Sum);
  };
  CHECK_FALSE(reduces(""));
  CHECK(reduces("alone"));
}

TEST_CASE("an adaptor's device has the library that names it, whichever adaptor brings that") {
  const hetcclDeviceAdaptor toy = fake::device_of_stubs("toy"),
                            lone = fake::device_of_stubs("lone");
  hetcclLibraryAdaptor library = *fake::host_adaptor().library;
  library.name = "toy_ccl";
  library.capabilities = HETCCL_LIBRARY_JOINS_HOSTS;
  library.device = "toy";
  library.abort = [](void*) {};
  hetcclAdaptorTable tables[4] = {fake::table_of(nullptr), fake::table_of(&library),
                                  fake::table_of(nullptr), fake::table_of(nullptr)};
  tables[0].device = tables[3].device = &toy;  // the first of that name keeps it
  tables[2].device = &lone;
  std::vector<adaptor::Found> found;
  for (const auto& table : tables) found.push_back({"it.so", adaptor::check(&table, "it.so", {})});
  const Adaptors adaptors = with_devices(all_adaptors(), found);
  REQUIRE(adaptors.gpus.size() == 4);  // CUDA, HIP, and two
  CHECK(adaptors.gpus[2].vendor == "toy");
  CHECK(adaptors.gpus[2].library == "toy_ccl");
  CHECK(adaptors.gpus[2].reach.hosts);
  CHECK_FALSE(adaptors.gpus[2].reach.architectures);
  CHECK_FALSE(adaptors.gpus[2].load_compiler);
  CHECK(adaptors.gpus[3].vendor == "lone");
  CHECK(adaptors.gpus[3].library.empty());
  CHECK(names_of(adaptors).contains("toy_ccl"));
  CHECK(traits_of(adaptors).libraries.at("toy").reach.hosts);
}

TEST_CASE("what serves nobody is told, with the reason") {
  const hetcclDeviceAdaptor toy = fake::device_of_stubs("toy");
  hetcclLibraryAdaptor library = *fake::host_adaptor().library, other = library;
  library.device = "toy";
  other.device = "absent";
  library.abort = other.abort = [](void*) {};
  hetcclAdaptorTable first = fake::table_of(&library), second = fake::table_of(&other);
  first.device = second.device = &toy;
  std::vector<adaptor::Found> found;
  const std::pair<const char*, const hetcclAdaptorTable*> files[] = {
      {"a.so", &first}, {"b.so", &second}, {"c.so", &first}};
  for (const auto& [path, table] : files) found.push_back({path, adaptor::check(table, path, {})});
  std::string told;
  for (const Unused& one : unused_devices(found))
    told += one.path + ", " + one.device + ": " + one.reason + "\n";
  CHECK(told ==
        "b.so, toy: an adaptor before it has a device of this name\n"
        "c.so, toy: an adaptor before it has a device of this name\n"
        "b.so, absent: its library is for this device, which no adaptor has\n"
        "c.so, toy: an adaptor before it has a library for this device\n");
}

TEST_CASE("a device that makes no memory, or has too many of itself, is an error") {
  hetcclDeviceAdaptor toy = fake::device_of_stubs("toy");
  static int devices = 1;
  toy.count = [](int* count) { return *count = devices, 0; };
  toy.allocate = [](void**, size_t) { return 0; };
  hetcclAdaptorTable table = fake::table_of(nullptr);
  table.device = &toy;
  const auto load = [&] {
    const std::vector<adaptor::Found> found = {{"it.so", adaptor::check(&table, "it.so", {})}};
    return with_devices(all_adaptors(), found).gpus.back().load_runtime({});
  };
  const auto runtime = load();
  REQUIRE(runtime.ok());
  void* memory = nullptr;
  const int code = runtime.value()->allocate(&memory, 8);
  CHECK(code != 0);
  CHECK(std::string(runtime.value()->error_text(code)).find("has made none") != std::string::npos);
  devices = 1'000'000;
  CHECK(load().status().message() ==
        "the adaptor it.so finds 1000000 devices: at most 1024 can be");
}

TEST_CASE("GPUs go without their vendor's library where that is said") {
  Config config;
  config.nccl_library = config.rccl_library = "none";
  for (const GpuRow& row : all_adaptors().gpus) {
    const auto loaded = row.load_library(config, "");
    REQUIRE_MESSAGE(loaded.ok(), loaded.status().message());
    const auto library = loaded.value().make(nullptr);
    CHECK(library->name() == "none");
    CHECK(library->supports(DataType::Int16, RedOp::Bxor));  // NCCL lacks Bxor
  }
}

}  // namespace
}  // namespace hetccl::comm
