#include "comm/runtime.h"

#include <algorithm>

#include "base/cores.h"
#include "base/json.h"
#include "ccl/host/host_library.h"
#include "comm/probe.h"
#include "device/host/host_device.h"
#include "net/socket.h"
#include "transport/shm/shm_transport.h"
#include "transport/tcp/tcp_transport.h"

namespace hetccl::comm {
namespace {

Status no_host_stream() {
  return error(Code::InvalidArgument,
               "stream is none of hetcclHostStreamCreate's: it was destroyed or never made");
}

}  // namespace

Runtime::Runtime(Config config, std::shared_ptr<const device::gpu::Api> gpus)
    : config_(std::move(config)),
      log_{parse_log_level(config_.log_level).value_or(LogLevel::Warn), -1},
      gpus_(config_, log_, std::move(gpus)) {}

// The engine's thread stops before what it drives goes away.
Runtime::~Runtime() {
  service_.reset();
  engine_.reset();
}

// The rest is for transports, other ranks' GPUs, and the user.
void Runtime::share_cores(int bound, int all) {
  if (config_.host_threads == 0) crew_->limit(part_of_cores(bound, all));
}

Result<std::unique_ptr<Runtime>> Runtime::create(Config config,
                                                 std::unique_ptr<device::Device> device,
                                                 std::shared_ptr<const device::gpu::Api> gpus) {
  std::unique_ptr<Runtime> runtime(new Runtime(std::move(config), std::move(gpus)));
  HETCCL_TRY(runtime->open(std::move(device)));
  return runtime;
}

Status Runtime::open(std::unique_ptr<device::Device> device) {
  crew_ = std::make_shared<Crew>(config_.host_threads > 0 ? static_cast<int>(config_.host_threads)
                                                          : Crew::kMaxThreads);
  share_cores(1, 1);
  device_ = device != nullptr ? std::move(device) : device::make_host_device(crew_);
  library_ = ccl::make_host_library(crew_);
  HETCCL_ASSIGN(engine_, exec::Engine::create(steady_clock()));
  HETCCL_ASSIGN(auto tcp, transport::make_tcp_transport(config_, log_));
  transports_.push_back(std::move(tcp));
  if (config_.transport_shm) {
    HETCCL_ASSIGN(auto shm, transport::make_shm_transport(&engine_->waker(), log_));
    transports_.push_back(std::move(shm));
  }
  for (auto& transport : transports_) {
    HETCCL_ASSIGN(auto address, transport->listen());
    listening_.push_back({transport.get(), std::move(address)});
    engine_->use(*transport);
  }
  engine_->use(*device_);
  HETCCL_ASSIGN(service_, bootstrap::Service::create(config_, log_));
  return {};
}

Result<exec::Settler*> Runtime::settler() {
  std::lock_guard lock(settler_mutex_);
  if (settler_ == nullptr) {
    HETCCL_ASSIGN(settler_, exec::Settler::create());
  }
  return settler_.get();
}

Result<device::Device*> Runtime::device(std::string_view name) {
  if (name.empty() || name == device_->vendor()) return device_.get();
  if (Gpus::names_one(name)) {
    HETCCL_ASSIGN(auto* gpu, gpus_.device(name));
    if (first_gpu_opened_) std::call_once(opens_gpu_, first_gpu_opened_);
    return gpu;
  }
  return error(
      Code::Unsupported,
      "device \"%.80s\" is not available; there is \"%s\", and \"cuda\" or \"cuda:<index>\" "
      "for a GPU",
      std::string(name).c_str(), device_->vendor().c_str());
}

std::string Runtime::resolve_device(std::string_view name) {
  return gpus_.resolve(name);
}

Result<ccl::Library*> Runtime::library(const device::Device& device) {
  if (&device == device_.get()) return library_.get();
  return gpus_.library(device);
}

transport::Transport* Runtime::transport(std::string_view name) {
  for (auto& transport : transports_) {
    if (transport->name() == name) return transport.get();
  }
  return nullptr;
}

Result<void*> Runtime::create_host_stream() {
  HETCCL_ASSIGN(auto stream, device_->create_stream());
  void* handle = stream->native();
  std::lock_guard lock(streams_mutex_);
  host_streams_[handle] = std::move(stream);
  return handle;
}

Result<std::shared_ptr<TaskQueue>> Runtime::host_stream(void* handle) {
  std::lock_guard lock(streams_mutex_);
  const auto found = host_streams_.find(handle);
  if (found == host_streams_.end()) return no_host_stream();
  return std::shared_ptr<TaskQueue>(found->second, static_cast<TaskQueue*>(handle));
}

Status Runtime::destroy_host_stream(void* handle) {
  std::shared_ptr<device::Stream> stream;
  {
    std::lock_guard lock(streams_mutex_);
    const auto found = host_streams_.find(handle);
    if (found == host_streams_.end()) return no_host_stream();
    stream = std::move(found->second);
    host_streams_.erase(found);
  }
  const auto* queue = static_cast<TaskQueue*>(handle);
  engine_->wait([&] { return queue->empty(); }, TimePoint::max());
  engine_->exclusively([&] { stream.reset(); });
  destroyed_host_streams_.fetch_add(1, std::memory_order_release);
  return {};
}

std::string Runtime::describe() {
  std::vector<Json> devices = {Json{{"architecture", device_->architecture()},
                                    {"available", true},
                                    {"model", device_->model()},
                                    {"vendor", device_->vendor()}}};
  for (Json& gpu : gpus_.describe_devices()) devices.push_back(std::move(gpu));
  devices.push_back(
      {{"available", false}, {"reason", "this version has no adaptor for it"}, {"vendor", "hip"}});
  std::vector<Json> transports;
  for (const auto& transport : transports_) {
    transports.push_back({{"available", true}, {"name", transport->name()}});
  }
  if (!config_.transport_shm) {
    transports.push_back(
        {{"available", false}, {"name", "shm"}, {"reason", "switched off by HETCCL_SHM=0"}});
  }
  std::vector<Json> libraries = {
      {{"available", true}, {"name", library_->name()}, {"version", library_->version()}}};
  for (Json& library : gpus_.describe_libraries()) libraries.push_back(std::move(library));
  std::vector<Json> interfaces;
  if (const auto found = net::interfaces(config_); found.ok()) {
    for (const auto& interface : found.value()) {
      interfaces.push_back({{"address", interface.address.text()},
                            {"mbps", interface.mbps},
                            {"name", interface.name}});
    }
  }
  std::vector<Json> settings;
  const auto values = config_.describe();
  for (const auto& entry : config_entries()) {
    const std::string name(entry.name);
    settings.push_back({{"default", entry.default_value},
                        {"help", entry.help},
                        {"name", name},
                        {"type", entry.type},
                        {"value", values.at(name)}});
  }
  const Json json = {
      {"devices", std::move(devices)},       {"host", host_identity()},
      {"interfaces", std::move(interfaces)}, {"libraries", std::move(libraries)},
      {"settings", std::move(settings)},     {"transports", std::move(transports)},
  };
  return json.dump();
}

}  // namespace hetccl::comm
