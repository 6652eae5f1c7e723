#include "comm/adaptors.h"

#include <sstream>

#include "ccl/host/host_library.h"
#include "device/host/host_device.h"
#include "transport/shm/shm_transport.h"
#include "transport/tcp/tcp_transport.h"

namespace hetccl::comm {
namespace {

HostRow host() {
  return {.vendor = "host",
          .reach = ccl::kHostReach,
          .make_device = device::make_host_device,
          .make_library = ccl::make_host_library};
}

GpuRow cuda() {
  return {
      .vendor = "cuda",
      .runtime = "cuda driver",
      .compiler = "nvrtc",
      .library = "nccl",
      .reach = ccl::kNcclReach,
      .reduces = ccl::nccl_reductions,
      .load_runtime = [](const Config&) { return device::gpu::load_cuda(); },
      .load_compiler =
          [](const Config& config) { return device::kernels::load_nvrtc(config.nvrtc_library); },
      .load_library =
          [](const Config& config) { return ccl::nccl::load_nccl(config.nccl_library); }};
}

GpuRow hip() {
  return {
      .vendor = "hip",
      .runtime = "hip runtime",
      .compiler = "hiprtc",
      .library = "rccl",
      .reach = ccl::kRcclReach,
      .reduces = ccl::rccl_reductions,
      .load_runtime =
          [](const Config& config) { return device::gpu::load_hip(config.hip_library); },
      .load_compiler =
          [](const Config& config) { return device::kernels::load_hiprtc(config.hiprtc_library); },
      .load_library =
          [](const Config& config) { return ccl::nccl::load_rccl(config.rccl_library); }};
}

TransportRow tcp() {
  return {.name = "tcp",
          .score = transport::score_tcp,
          .left_out = [](const Config&) { return std::string(); },
          .make = [](const Config& config, const Log& log,
                     Waker&) { return transport::make_tcp_transport(config, log); }};
}

TransportRow shm() {
  return {.name = "shm",
          .score = transport::score_shm,
          .left_out = [](const Config& config) -> std::string {
            return config.transport_shm ? "" : "switched off by HETCCL_SHM=0";
          },
          .make = [](const Config&, const Log& log,
                     Waker& waker) { return transport::make_shm_transport(&waker, log); }};
}

}  // namespace

std::vector<FoundLibrary> find_libraries(const std::string& paths) {
  std::vector<FoundLibrary> found;
  std::istringstream text(paths);
  for (std::string path; std::getline(text, path, ':');)
    if (!path.empty()) found.push_back({path, ccl::Adaptor::load(path)});
  return found;
}

Result<std::shared_ptr<const ccl::Adaptor>> choose_library(const std::vector<FoundLibrary>& found,
                                                           std::vector<std::string>& why,
                                                           const WaitLimit& limit) {
  std::shared_ptr<const ccl::Adaptor> best;
  int best_score = HETCCL_OWN_SCORE;
  why.assign(found.size(), "");
  Status refused;
  for (size_t i = 0; i < found.size(); ++i) {
    Status status = found[i].adaptor.status();
    int score = 0;
    if (status.ok()) {
      const auto answer = found[i].adaptor.value()->score(limit);
      status = answer.status().with(found[i].path);
      if (answer.ok()) score = answer.value();
    }
    if (!status.ok()) {
      why[i] = status.message();
      if (refused.ok()) refused = status;
    } else if (score == 0) {
      why[i] = "it cannot serve this process";
    } else if (score <= best_score) {
      why[i] = format("its score is %d, and another's is %d", score, best_score);
    } else {
      best = found[i].adaptor.value();
      best_score = score;
    }
  }
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i].adaptor.ok() && why[i].empty() && found[i].adaptor.value() != best)
      why[i] = format("another's score is higher: %d", best_score);
  }
  HETCCL_TRY(refused);
  return best;
}

Adaptors all_adaptors() {
  return {.host = host(), .gpus = {cuda(), hip()}, .transports = {tcp(), shm()}};
}

topology::AdaptorTraits traits_of(const Adaptors& adaptors) {
  topology::AdaptorTraits traits;
  const auto note = [&](const auto& row) -> topology::AdaptorTraits::Library& {
    auto& library = traits.libraries[row.vendor];
    library.reach = {row.reach.hosts, row.reach.architectures};
    return library;
  };
  note(adaptors.host);
  for (const GpuRow& row : adaptors.gpus) note(row).reduces = row.reduces;
  const auto name_between = [&](const transport::ChannelEnd& peer, std::string& name) {
    const auto any = [](const std::string&) { return true; };
    const TransportRow* row = choose_transport(adaptors.transports, {"", true}, peer, any);
    if (row != nullptr) name = row->name;
  };
  name_between({"", true}, traits.in_memory);
  name_between({"elsewhere", true}, traits.by_network);
  return traits;
}

transport::ChannelEnd end_of(const topology::RankInfo& info) {
  return {info.host, info.shared_memory,
          info.host_access ? transport::Memory::Host : transport::Memory::Device};
}

const TransportRow* choose_transport(const std::vector<TransportRow>& rows,
                                     const transport::ChannelEnd& local,
                                     const transport::ChannelEnd& peer,
                                     const std::function<bool(const std::string&)>& usable) {
  const TransportRow* best = nullptr;
  int best_score = 0;
  for (const TransportRow& row : rows) {
    const int score = row.score(local, peer);
    if (score <= best_score || !usable(row.name)) continue;
    best = &row;
    best_score = score;
  }
  return best;
}

}  // namespace hetccl::comm
