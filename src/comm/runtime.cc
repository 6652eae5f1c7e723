#include "comm/runtime.h"

#include <algorithm>

#include "base/cores.h"
#include "base/host_identity.h"
#include "base/json.h"
#include "net/socket.h"

namespace hetccl::comm {
namespace {

Status no_host_stream() {
  return error(ErrorCode::InvalidArgument,
               "stream is none of hetcclHostStreamCreate's: it was destroyed or never made");
}

}  // namespace

Runtime::Runtime(Config config, Adaptors adaptors)
    : config_(std::move(config)),
      found_(adaptor::find(config_.adaptors, names_of(adaptors))),
      adaptors_(with_transports(with_devices(std::move(adaptors), found_), found_)),
      log_{parse_log_level(config_.log_level).value_or(LogLevel::Warn), -1} {
  for (const GpuRow& row : adaptors_.gpus) gpus_.emplace_back(row, config_, log_);
}

Runtime::~Runtime() {
  rest();
}

// Stops the engine's thread before anything that it drives is freed.
void Runtime::rest() {
  service_.reset();
  engine_.reset();
  listening_.clear();
  registered_.clear();
  transports_.clear();
  settler_.reset();
  crew_->rest();
}

Status Runtime::wake() {
  if (!rests()) return {};
  const Status status = open_connections();
  if (!status.ok()) rest();
  return status;
}

void Runtime::set_idle_hook(std::function<void()> hook) {
  const std::lock_guard lock(hook_mutex_);
  idle_hook_ = std::move(hook);
  engine_->set_idle_hook(idle_hook_);
}

// Leaves the rest to transports, other ranks' GPUs, and the user.
void Runtime::share_cores(int bound, int all) {
  if (config_.host_threads == 0) crew_->limit(part_of_cores(bound, all));
}

Result<std::unique_ptr<Runtime>> Runtime::create(Config config, Adaptors adaptors) {
  std::unique_ptr<Runtime> runtime(new Runtime(std::move(config), std::move(adaptors)));
  runtime->open();
  HETCCL_TRY(runtime->wake());
  return runtime;
}

// Only warns: communicators of hosts fail because of a refused adaptor, but devices work without.
void Runtime::warn_of_adaptors() const {
  for (const adaptor::Found& one : found_)
    if (!one.adaptor.ok()) log_.warn("%s", one.adaptor.status().message().c_str());
  for (const Unused& one : unused_devices(found_))
    log_.warn("the adaptor %s does not serve \"%s\": %s", one.path.c_str(), one.device.c_str(),
              one.reason.c_str());
}

void Runtime::warn_of_settings(int rank) {
  std::call_once(rank > 0 ? followed_ : warned_, [&] { config_.warn(rank); });
}

// Warns once: threads may be ranks of one communicator.
void Runtime::warn_of_settings(int rank, const bootstrap::UniqueId& id) {
  std::lock_guard lock(warnings_mutex_);
  const bootstrap::UniqueId concealed = bootstrap::conceal(id);
  if (!first_id_) first_id_ = concealed;
  if (*first_id_ == concealed) warn_of_settings(rank);
}

void Runtime::open() {
  warn_of_adaptors();
  crew_ = std::make_shared<Crew>(config_.host_threads > 0 ? static_cast<int>(config_.host_threads)
                                                          : Crew::kMaxThreads);
  share_cores(1, 1);
  device_ = adaptors_.host.make_device(crew_);
}

Status Runtime::open_connections() {
  HETCCL_ASSIGN(engine_, progress::Engine::create(steady_clock()));
  HETCCL_TRY(open_transports());
  for (auto& transport : transports_) {
    HETCCL_ASSIGN(auto address, transport->listen());
    listening_.push_back({transport.get(), std::move(address)});
    engine_->use(*transport);
  }
  engine_->use(*device_);
  engine_->set_idle_hook(idle_hook_);
  HETCCL_ASSIGN(service_, bootstrap::Service::create(config_, log_));
  return {};
}

Status Runtime::open_transports() {
  for (const TransportRow& row : adaptors_.transports) {
    if (!row.left_out(config_).empty()) continue;
    auto made = row.make(config_, log_, {engine_->waker(), crew_});
    // The user asked for this transport, so its absence is an error.
    const bool asked = made.status().code() == ErrorCode::InvalidArgument && !row.found;
    if (!made.ok() && row.optional && !asked) {
      // Most hosts lack this hardware.
      const bool usual = made.status().code() == ErrorCode::Unsupported && !row.found;
      if (!usual)
        log_.warn("transport %s is left out: %s", row.name.c_str(),
                  made.status().message().c_str());
      not_made_[row.name] = made.status().message();
      continue;
    }
    HETCCL_TRY(made.status());
    transports_.push_back(std::move(made).value());
  }
  return check_wanted_transport();
}

std::string Runtime::why_not(const TransportRow& row) const {
  const auto not_made = not_made_.find(row.name);
  return not_made != not_made_.end() ? not_made->second : row.left_out(config_);
}

// An impossible setting is an error, not a slow job.
Status Runtime::check_wanted_transport() const {
  const std::string& wanted = config_.transport;
  if (wanted.empty()) return {};
  std::string names;
  for (const TransportRow& row : adaptors_.transports) {
    const std::string reason = why_not(row);
    if (row.name == wanted && reason.empty()) return {};
    if (row.name == wanted)
      return error(ErrorCode::Unsupported, "HETCCL_TRANSPORT=%s cannot be used: %s", wanted.c_str(),
                   reason.c_str());
    names += (names.empty() ? "" : ", ") + row.name;
  }
  return error(ErrorCode::InvalidArgument, "HETCCL_TRANSPORT=%s names no transport: there are %s",
               wanted.c_str(), names.c_str());
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
  for (Gpus& gpus : gpus_) {
    if (!gpus.is_name(name)) continue;
    HETCCL_ASSIGN(auto* gpu, gpus.device(name));
    if (first_gpu_opened_) std::call_once(opens_gpu_, first_gpu_opened_);
    return gpu;
  }
  return refuse_device(name);
}

Status Runtime::refuse_device(std::string_view name) const {
  std::string others;
  for (const Gpus& gpus : gpus_) {
    const char* vendor = gpus.vendor().c_str();
    others += format(", and \"%s\" or \"%s:<index>\" for a GPU", vendor, vendor);
  }
  for (const adaptor::Found& one : found_)
    if (!one.adaptor.ok()) others += format("; %s", one.adaptor.status().message().c_str());
  return error(ErrorCode::Unsupported, "device \"%.80s\" is not available; there is \"%s\"%s",
               std::string(name).c_str(), device_->vendor().c_str(), others.c_str());
}

std::string Runtime::resolve_device(std::string_view name) {
  for (const Gpus& gpus : gpus_) {
    const int current = name.empty() ? gpus.current_device() : -1;
    if (current >= 0) return gpus.vendor() + ":" + std::to_string(current);
  }
  if (name.empty()) return host_name();
  for (Gpus& gpus : gpus_) {
    if (gpus.is_name(name)) return gpus.resolve(name);
  }
  return std::string(name);
}

int Runtime::gpu_number(std::string_view name) const {
  for (const Gpus& gpus : gpus_) {
    if (const auto index = gpus.index_of(name)) return *index;
  }
  return -1;
}

std::string Runtime::gpu_vendor() {
  for (const Gpus& gpus : gpus_)
    if (gpus.current_device() >= 0) return gpus.vendor();
  for (Gpus& gpus : gpus_)
    if (gpus.in_use()) return gpus.vendor();
  return "";
}

exec::RegisteredMemory* Runtime::memory_of(device::Device& device) {
  const std::lock_guard lock(registered_mutex_);
  const auto [known, is_new] = registered_.try_emplace(&device);
  if (!is_new) return known->second.get();
  std::vector<transport::Transport*> registering;
  for (const auto& transport : transports_)
    if (transport->registers()) registering.push_back(transport.get());
  if (!registering.empty())
    known->second = std::make_unique<exec::RegisteredMemory>(device, std::move(registering));
  return known->second.get();
}

Result<ccl::Library*> Runtime::library(const device::Device& device, const WaitLimit& limit) {
  if (&device == device_.get()) return host_libraries_.library(crew_, limit);
  for (Gpus& gpus : gpus_) {
    if (gpus.vendor() == device.vendor()) return gpus.library(device);
  }
  return error(ErrorCode::InternalError, "a device of no vendor");
}

transport::Transport* Runtime::transport(
    const transport::ChannelEnd& local, const transport::ChannelEnd& peer,
    const std::map<std::string, transport::Address>& peers) const {
  const auto own = [&](const std::string& name) {
    return std::find_if(transports_.begin(), transports_.end(),
                        [&](const auto& one) { return one->name() == name; });
  };
  const TransportRow* row =
      choose_transport(adaptors_.transports, local, peer, [&](const std::string& name) {
        if (!config_.transport.empty() && local.host != peer.host && name != config_.transport)
          return false;
        const auto found = peers.find(name);
        return found != peers.end() && own(name) != transports_.end() &&
               (*own(name))->can_reach(found->second);
      });
  return row != nullptr ? own(row->name)->get() : nullptr;
}

bool Runtime::shares_memory() const {
  return std::any_of(transports_.begin(), transports_.end(),
                     [](const auto& transport) { return transport->shm_source() != nullptr; });
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
  std::unique_lock lock(streams_mutex_);
  auto stream = host_streams_.extract(handle);
  lock.unlock();
  if (stream.empty()) return no_host_stream();
  const auto* queue = static_cast<TaskQueue*>(handle);
  engine_->wait([&] { return queue->empty(); }, TimePoint::max());
  engine_->exclusively([&] { stream.mapped().reset(); });
  destroyed_host_streams_.fetch_add(1, std::memory_order_release);
  return {};
}

std::string Runtime::describe() {
  warn_of_settings(-1);
  std::vector<Json> devices = {Json{{"architecture", device_->architecture()},
                                    {"available", true},
                                    {"model", device_->model()},
                                    {"vendor", device_->vendor()}}};
  for (Gpus& gpus : gpus_) {
    for (Json& gpu : gpus.describe_devices()) devices.push_back(std::move(gpu));
  }
  for (const Unused& one : unused_devices(found_)) {
    devices.push_back(
        {{"available", false}, {"reason", one.path + ": " + one.reason}, {"vendor", one.device}});
  }
  std::vector<Json> transports;
  for (const auto& transport : transports_) {
    std::vector<Json::Member> row = {{"available", true}, {"name", transport->name()}};
    if (const auto lines = transport->describe(); !lines.empty()) row.push_back({"ports", lines});
    transports.emplace_back(std::move(row));
  }
  for (const TransportRow& row : adaptors_.transports) {
    const std::string reason = why_not(row);
    if (reason.empty()) continue;
    transports.push_back({{"available", false}, {"name", row.name}, {"reason", reason}});
  }
  std::vector<Json> libraries = host_libraries_.describe(crew_);
  for (Gpus& gpus : gpus_) {
    for (Json& library : gpus.describe_libraries()) libraries.push_back(std::move(library));
  }
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
