#include "comm/runtime.h"

#include <nlohmann/json.hpp>

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

Runtime::Runtime(Config config)
    : config_(std::move(config)),
      log_{parse_log_level(config_.log_level).value_or(LogLevel::Warn), -1} {}

// The engine's thread stops before what it drives goes away.
Runtime::~Runtime() {
  service_.reset();
  engine_.reset();
}

Result<std::unique_ptr<Runtime>> Runtime::create(Config config,
                                                 std::unique_ptr<device::Device> device) {
  std::unique_ptr<Runtime> runtime(new Runtime(std::move(config)));
  HETCCL_TRY(runtime->open(std::move(device)));
  return runtime;
}

Status Runtime::open(std::unique_ptr<device::Device> device) {
  device_ = device != nullptr ? std::move(device) : device::make_host_device();
  library_ = ccl::make_host_library();
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

Result<device::Device*> Runtime::device(std::string_view vendor) {
  if (vendor.empty() || vendor == device_->vendor()) return device_.get();
  return error(Code::Unsupported, "device \"%s\" is not available; this build has \"%s\"",
               std::string(vendor).c_str(), device_->vendor().c_str());
}

ccl::Library& Runtime::library(const device::Device& /*device*/) {
  return *library_;
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

std::string Runtime::describe() const {
  nlohmann::json json;
  json["host"] = host_identity();
  json["devices"].push_back({{"vendor", device_->vendor()},
                             {"model", device_->model()},
                             {"architecture", device_->architecture()},
                             {"available", true}});
  json["libraries"].push_back(
      {{"name", library_->name()}, {"version", library_->version()}, {"available", true}});
  for (const auto& transport : transports_) {
    json["transports"].push_back({{"name", transport->name()}, {"available", true}});
  }
  if (!config_.transport_shm) {
    json["transports"].push_back(
        {{"name", "shm"}, {"available", false}, {"reason", "switched off by HETCCL_SHM=0"}});
  }
  for (const char* vendor : {"cuda", "hip"}) {
    json["devices"].push_back({{"vendor", vendor},
                               {"available", false},
                               {"reason", "this version has no adaptor for it"}});
  }
  json["interfaces"] = nlohmann::json::array();
  if (const auto interfaces = net::interfaces(config_); interfaces.ok()) {
    for (const auto& interface : interfaces.value()) {
      json["interfaces"].push_back({{"name", interface.name},
                                    {"address", interface.address.text()},
                                    {"mbps", interface.mbps}});
    }
  }
  const auto values = config_.describe();
  for (const auto& entry : config_entries()) {
    const std::string name(entry.name);
    json["settings"].push_back({{"name", name},
                                {"type", entry.type},
                                {"default", entry.default_value},
                                {"value", values.at(name)},
                                {"help", entry.help}});
  }
  // Names come from the system and may be any bytes: what is not UTF-8 is replaced.
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace hetccl::comm
