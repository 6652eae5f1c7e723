#include "comm/adaptors.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "ccl/adaptor/device_library.h"
#include "ccl/host/host_library.h"
#include "ccl/nccl/nccl_library.h"
#include "ccl/nccl/tuner_plugin.h"
#include "ccl/solo/solo_library.h"
#include "device/adaptor/adaptor_runtime.h"
#include "device/gpu/vendors.h"
#include "device/host/host_device.h"
#include "transport/adaptor/adaptor_transport.h"
#include "transport/ncclnet/ncclnet_transport.h"
#include "transport/shm/shm_transport.h"
#include "transport/tcp/tcp_transport.h"
#include "transport/verbs/verbs_transport.h"

namespace hetccl::comm {
namespace {

using device::gpu::kCuda, device::gpu::kHip;

HostRow host() {
  return {.vendor = "host",
          .reach = ccl::kHostReach,
          .make_device = device::make_host_device,
          .make_library = ccl::make_host_library};
}

// Makes a library that only copies on the device, for ranks without a vendor library.
std::unique_ptr<ccl::Library> make_solo(const std::shared_ptr<device::GpuDevice>& device) {
  return ccl::make_solo_library(
      [device](void* stream, void* to, const void* from, size_t bytes) -> Status {
        HETCCL_ASSIGN(const auto wrapped, device->wrap_stream(stream));
        return device->copy(*wrapped, to, from, bytes);
      });
}

LoadedLibrary no_library() {
  return {std::string(topology::kNoLibrary), std::string(topology::kNoLibrary), make_solo};
}

// Implements NCCL's use of a device by the device seam.
class DeviceWorkspace : public ccl::Workspace {
 public:
  explicit DeviceWorkspace(std::shared_ptr<device::GpuDevice> device)
      : device_(std::move(device)) {}

  void make_current() override { device_->make_current(); }
  Result<void*> allocate(size_t bytes) override { return device_->allocate(bytes); }
  void free(void* memory) override { device_->free(memory); }
  Result<void*> acquire_stream() override {
    HETCCL_ASSIGN(auto stream, device_->create_stream());
    void* native = stream->native();
    std::lock_guard lock(mutex_);
    streams_[native] = std::move(stream);
    return native;
  }
  void release_stream(void* stream) override {
    std::lock_guard lock(mutex_);
    streams_.erase(stream);
  }
  [[nodiscard]] std::string architecture() const override { return device_->architecture(); }
  bool drain(void* stream, const std::function<bool()>& give_up) override;

 private:
  const std::shared_ptr<device::GpuDevice> device_;
  std::mutex mutex_;
  std::map<void*, std::unique_ptr<device::Stream>> streams_;
};

// Only the vendor knows whether the stream can still be queried, so a flag in memory shows its end
// in any case. The flag outlives an abandoned wait, because the stream may still write to it.
bool DeviceWorkspace::drain(void* stream, const std::function<bool()>& give_up) {
  auto memory = device_->allocate_pinned(sizeof(device::Flag));
  auto wrapped = device_->wrap_stream(stream);
  if (!memory.ok() || !wrapped.ok()) return false;
  auto& flag = *static_cast<device::Flag*>(memory.value());
  bool drained = device_->write_flag(*wrapped.value(), flag, 1).ok();
  while (drained && !flag.reached(1)) {
    if (give_up()) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  device_->free_pinned(memory.value());
  return drained;
}

// Loads NCCL, or RCCL, which has the same table.
Result<LoadedLibrary> by_nccl(const Config& config,
                              const Result<std::shared_ptr<const ccl::nccl::Api>>& loaded,
                              ccl::Reach reach) {
  HETCCL_TRY(loaded.status());
  // Must precede the library's first call, on every rank.
  const bool tuned = config.tune != "off" && !config.deterministic;
  return LoadedLibrary{loaded.value()->version, loaded.value()->path,
                       [api = loaded.value(), reach, tuned](const auto& device) {
                         if (tuned) ccl::nccl::offer_tuner();
                         return ccl::make_nccl_library(
                             api, std::make_shared<DeviceWorkspace>(device), reach);
                       }};
}

GpuRow cuda() {
  return {.vendor = kCuda.name,
          .runtime = "cuda driver",
          .compiler = "nvrtc",
          .library = "nccl",
          .reach = ccl::kNcclReach,
          .reduces = ccl::nccl_reductions,
          .in_process = kCuda.in_process(Config()),
          .load_runtime = kCuda.load_runtime,
          .load_compiler = kCuda.load_compiler,
          .load_library = [](const Config& config, const std::string&) -> Result<LoadedLibrary> {
            if (config.nccl_library == topology::kNoLibrary) return no_library();
            return by_nccl(config, ccl::nccl::load_nccl(config.nccl_library), ccl::kNcclReach);
          }};
}

GpuRow hip() {
  return {.vendor = kHip.name,
          .runtime = "hip runtime",
          .compiler = "hiprtc",
          .library = "rccl",
          .reach = ccl::kRcclReach,
          .reduces = ccl::rccl_reductions,
          .in_process = kHip.in_process(Config()),
          .load_runtime = kHip.load_runtime,
          .load_compiler = kHip.load_compiler,
          .load_library = [](const Config& config,
                             const std::string& runtime) -> Result<LoadedLibrary> {
            if (config.rccl_library == topology::kNoLibrary) return no_library();
            return by_nccl(config, ccl::nccl::load_rccl(config.rccl_library, runtime),
                           ccl::kRcclReach);
          }};
}

static_assert(HETCCL_TCP_SCORE == transport::kTcpScore && HETCCL_SHM_SCORE == transport::kShmScore);

TransportRow tcp() {
  return {
      .name = "tcp",
      .score = transport::score_tcp,
      .left_out = [](const Config&) { return std::string(); },
      .make = [](const Config& config, const Log& log,
                 const TransportResources&) { return transport::make_tcp_transport(config, log); }};
}

TransportRow shm() {
  return {.name = "shm",
          .score = transport::score_shm,
          .left_out = [](const Config& config) -> std::string {
            return config.transport_shm ? "" : "switched off by HETCCL_SHM=0";
          },
          .make =
              [](const Config&, const Log& log, const TransportResources& resources) {
                return transport::make_shm_transport(&resources.waker, log, resources.crew);
              }};
}

// Returns why a transport that does not encrypt is excluded; `what` moves its data.
std::string why_left_out(const Config& config, const std::string& transport, const char* what) {
  if (!config.transport.empty() && config.transport != transport)
    return "switched off by HETCCL_TRANSPORT=" + config.transport;
  const bool admitted = config.vendor_cleartext && config.transport == transport;
  return config.encrypt && !admitted
             ? std::string(what) +
                   " does not encrypt: with HETCCL_ENCRYPT=1 it takes both HETCCL_TRANSPORT=" +
                   transport + " and HETCCL_ALLOW_VENDOR_CLEARTEXT=1"
             : "";
}

TransportRow verbs() {
  return {.name = "verbs",
          .score = transport::score_verbs,
          .left_out = [](const Config& config) { return why_left_out(config, "verbs", "RDMA"); },
          .make =
              [](const Config& config, const Log& log, const TransportResources&) {
                return transport::make_verbs_transport(config, log);
              },
          .optional = true};
}

TransportRow ncclnet() {
  return {.name = "ncclnet",
          .score = transport::score_ncclnet,
          .left_out = [](const Config& config) -> std::string {
            if (config.net_plugin.empty())
              return "HETCCL_NET_PLUGIN is not set: it names the plug-in, as NCCL_NET_PLUGIN does";
            return why_left_out(config, "ncclnet", "a net plug-in");
          },
          .make =
              [](const Config& config, const Log& log, const TransportResources&) {
                return transport::make_ncclnet_transport(config, log);
              },
          .optional = true};
}

using FoundAdaptor = std::shared_ptr<const adaptor::Adaptor>;

// Makes the row of an adaptor's device, with the library that names it, if any.
GpuRow row_of(const FoundAdaptor& of, const FoundAdaptor& library) {
  GpuRow row;
  row.vendor = of->device->name;
  row.runtime = of->device->name;
  row.load_runtime = [of](const Config&) { return device::load_adaptor_runtime(of); };
  if (library == nullptr) {
    row.load_library = [](const Config&, const std::string&) -> Result<LoadedLibrary> {
      return no_library();
    };
    return row;
  }
  const uint32_t can = library->library->calls.capabilities;
  row.library = library->library->name;
  row.reach = {(can & HETCCL_LIBRARY_JOINS_HOSTS) != 0,
               (can & HETCCL_LIBRARY_JOINS_ARCHITECTURES) != 0};
  row.load_library = [library](const Config&, const std::string&) -> Result<LoadedLibrary> {
    return LoadedLibrary{library->library->version, library->path, [library](const auto& device) {
                           return ccl::make_adaptor_device_library(
                               library, [device] { device->make_current(); });
                         }};
  };
  return row;
}

// Makes the row of an adaptor's transport.
TransportRow row_of(const FoundAdaptor& adaptor, bool named_twice) {
  return {.name = transport::name_of_transport(*adaptor),
          .score =
              [adaptor, named_twice](const transport::ChannelEnd& local,
                                     const transport::ChannelEnd& peer) {
                return named_twice ? 0 : transport::score_adaptor(*adaptor, local, peer);
              },
          .left_out = [adaptor, named_twice](const Config& config) -> std::string {
            if (named_twice) return "another adaptor's has the same name and version";
            return config.encrypt && !transport::encrypts(*adaptor)
                       ? "it does not encrypt, and HETCCL_ENCRYPT=1"
                       : "";
          },
          .make =
              [adaptor](const Config& config, const Log& log, const TransportResources&) {
                return transport::make_adaptor_transport(adaptor, config, log);
              },
          .optional = true,
          .found = true};
}

}  // namespace

Adaptors all_adaptors() {
  return {
      .host = host(), .gpus = {cuda(), hip()}, .transports = {tcp(), shm(), verbs(), ncclnet()}};
}

Adaptors with_devices(Adaptors adaptors, const std::vector<adaptor::Found>& found) {
  const auto library_of = [&](const std::string& device) -> FoundAdaptor {
    for (const adaptor::Found& one : found) {
      if (!one.adaptor.ok() || !one.adaptor.value()->library) continue;
      const char* named = one.adaptor.value()->library->calls.device;
      if (named != nullptr && device == named) return one.adaptor.value();
    }
    return nullptr;
  };
  for (const adaptor::Found& one : found) {
    if (!one.adaptor.ok() || !one.adaptor.value()->device) continue;
    const std::string& name = one.adaptor.value()->device->name;
    if (!names_of(adaptors).contains(name))  // else the first adaptor of that name keeps it
      adaptors.gpus.push_back(row_of(one.adaptor.value(), library_of(name)));
  }
  return adaptors;
}

std::vector<Unused> unused_devices(const std::vector<adaptor::Found>& found) {
  std::set<std::string> devices, served;
  std::vector<Unused> unused;
  for (const auto& [path, adaptor] : found) {
    if (!adaptor.ok() || !adaptor.value()->device) continue;
    const std::string& name = adaptor.value()->device->name;
    if (!devices.insert(name).second)
      unused.push_back({path, name, "an adaptor before it has a device of this name"});
  }
  for (const auto& [path, adaptor] : found) {
    if (!adaptor.ok() || !adaptor.value()->library || adaptor.value()->serves_hosts()) continue;
    const std::string device = adaptor.value()->library->calls.device;
    if (!devices.contains(device))
      unused.push_back({path, device, "its library is for this device, which no adaptor has"});
    else if (!served.insert(device).second)
      unused.push_back({path, device, "an adaptor before it has a library for this device"});
  }
  return unused;
}

Adaptors with_transports(Adaptors adaptors, const std::vector<adaptor::Found>& found) {
  auto& rows = adaptors.transports;
  const auto own = static_cast<std::ptrdiff_t>(rows.size());
  for (const adaptor::Found& one : found) {
    if (!one.adaptor.ok() || !one.adaptor.value()->transport) continue;
    const std::string name = transport::name_of_transport(*one.adaptor.value());
    const bool named_twice = std::any_of(rows.begin(), rows.end(),
                                         [&](const TransportRow& row) { return row.name == name; });
    rows.push_back(row_of(one.adaptor.value(), named_twice));
  }
  std::stable_sort(rows.begin() + own, rows.end(),
                   [](const auto& a, const auto& b) { return a.name < b.name; });
  return adaptors;
}

adaptor::Names names_of(const Adaptors& adaptors) {
  adaptor::Names names = {adaptors.host.vendor, std::string(topology::kNoLibrary)};
  for (const GpuRow& row : adaptors.gpus) names.insert({row.vendor, row.library});
  for (const TransportRow& row : adaptors.transports) names.insert(row.name);
  return names;
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
  auto own = adaptors.transports;
  std::erase_if(own, [](const TransportRow& row) { return row.optional; });
  const auto name_between = [&](const transport::ChannelEnd& peer, std::string& name) {
    const auto any = [](const std::string&) { return true; };
    const TransportRow* row = choose_transport(own, {"", true}, peer, any);
    if (row != nullptr) name = row->name;
  };
  name_between({"", true}, traits.in_memory);
  name_between({"elsewhere", true}, traits.by_network);
  return traits;
}

transport::ChannelEnd end_of(const topology::RankInfo& info) {
  return {info.host, info.shared_memory,
          info.host_access ? transport::MemoryKind::Host : transport::MemoryKind::Device};
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
