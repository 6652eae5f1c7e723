// Topologies from files, and one rank's description of itself.
#include "fake/cases.h"
#include "fuzz/fuzz.h"
#include "topology/topology.h"

namespace hetccl {

using namespace topology;

std::vector<fuzz::Bytes> fuzz::seeds() {
  std::vector<Bytes> seeds;
  auto infos = fake::infos_of({"A", "B", "A"});
  infos[1].nics = {{"eth0", "10.0.0.1", 100'000, 2}, {"eth1", "fd00::1", 0, 0}};
  seeds.push_back(bytes_of(to_json(infos[1])));
  seeds.push_back(bytes_of(Topology::build(infos).value().to_json()));
  return seeds;
}

}  // namespace hetccl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hetccl;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto info = rank_info_from_json(text);
  if (info.ok()) {
    const auto again = rank_info_from_json(to_json(info.value()));
    fuzz::require(again.ok() && again.value() == info.value(), "a description survives the trip");
  }
  const auto read = Topology::from_json(text);
  if (!read.ok()) {
    fuzz::require(!read.status().message().empty(), "a refusal says why");
    return 0;
  }
  const auto again = Topology::from_json(read.value().to_json());
  fuzz::require(again.ok() && again.value() == read.value(), "a topology survives the trip");
  for (const Cluster& cluster : read.value().clusters())
    fuzz::require(!cluster.ranks.empty() && !cluster.border.empty(), "clusters have a border");
  return 0;
}
