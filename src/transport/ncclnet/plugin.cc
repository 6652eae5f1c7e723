#include "transport/ncclnet/plugin.h"

#include <map>
#include <mutex>

#include "base/printable.h"
#include "transport/ncclnet/plugin_log.h"

namespace hetccl::transport::ncclnet {
namespace {

// Reads the setting as NCCL reads NCCL_NET_PLUGIN: a text that is neither a path nor a library's
// name is a suffix.
std::vector<std::string> names_of(const std::string& wanted) {
  std::vector<std::string> names = {wanted};
  const bool is_path = wanted.find('/') != std::string::npos;
  const bool is_library = wanted.starts_with("lib") && wanted.ends_with(".so");
  if (!is_path && !is_library) names.push_back("libnccl-net-" + wanted + ".so");
  return names;
}

Status refuse(const std::string& path, const Status& why) {
  return error(ErrorCode::SystemError, "%s: %s", path.c_str(), why.message().c_str());
}

// A plug-in is started once in a process, because its interface has no second instance.
struct Loaded {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<const Plugin>> by_path;
};
Loaded& loaded() {
  static auto* const all = new Loaded;  // outlives whatever may still use a plug-in at exit
  return *all;
}

Result<std::shared_ptr<const Plugin>> start(const std::string& path, std::unique_ptr<Calls> calls) {
  const int code = calls->init();
  if (code != abi::kSuccess)
    return error(ErrorCode::SystemError,
                 "%s did not start (%s): HETCCL_DEBUG=info shows what it says itself", path.c_str(),
                 name_of_code(code).c_str());
  if (!calls->is_complete())
    return error(ErrorCode::SystemError, "%s: its ncclNetPlugin_v%d lacks functions", path.c_str(),
                 calls->version());
  if (std::string_view(calls->name()).size() > Plugin::kMaxName ||
      printable(calls->name(), Plugin::kMaxName) != calls->name())
    return error(ErrorCode::SystemError, "%s: its name is longer than %zu bytes, or no text",
                 path.c_str(), Plugin::kMaxName);
  return std::shared_ptr<const Plugin>(std::make_shared<Plugin>(path, std::move(calls)));
}

}  // namespace

std::string Device::describe() const {
  constexpr int kMbpsOfGbps = 1000;
  const Properties& is = properties;
  std::string text = is.name + ": " +
                     (is.mbps % kMbpsOfGbps == 0 ? format("%d Gbit/s", is.mbps / kMbpsOfGbps)
                                                 : format("%d Mbit/s", is.mbps));
  text += format(", port %d, latency %.1f us, %d connections; memory:", is.port,
                 static_cast<double>(is.latency), is.max_comms);
  std::string kinds;
  const auto add = [&](int bit, const char* name) {
    if ((is.pointers & bit) != 0) kinds += (kinds.empty() ? " " : ", ") + std::string(name);
  };
  add(abi::kPointerHost, "host");
  add(abi::kPointerCuda, "CUDA");
  add(abi::kPointerDmaBuf, "DMA-BUF");
  return text + (kinds.empty() ? " none" : kinds);
}

Result<std::vector<Device>> Plugin::devices() const {
  int n = 0;
  int code = calls_->devices(&n);
  if (code != abi::kSuccess || n <= 0)
    return error(ErrorCode::SystemError, "%s shows no device (%s, %d devices)", path_.c_str(),
                 name_of_code(code).c_str(), n);
  std::vector<Device> devices;
  for (int i = 0; i < std::min(n, kMaxDevices); ++i) {
    Device device{i, {}, {}};
    code = calls_->properties(i, &device.properties);
    if (code != abi::kSuccess)
      return error(ErrorCode::SystemError, "%s does not tell of its device %d (%s)", path_.c_str(),
                   i, name_of_code(code).c_str());
    device.place = net::locate_folder(device.properties.pci_path);
    devices.push_back(std::move(device));
  }
  return devices;
}

Result<ConnectionPair> Plugin::take_pair(const Device& device) const {
  std::atomic<int>& taken = pairs_.at(static_cast<size_t>(device.index));
  const int n = ++taken;
  ConnectionPair pair(&taken);
  if (n <= device.properties.max_comms) return pair;
  return error(ErrorCode::SystemError,
               "%s of net plug-in %s takes no more than %d connections: use fewer communicators, "
               "or unset HETCCL_NET_PLUGIN",
               device.properties.name.c_str(), name_.c_str(), device.properties.max_comms);
}

std::string Plugin::describe() const {
  return format("%s (%s, interface %d)", name_.c_str(), path_.c_str(), calls_->version());
}

Result<std::shared_ptr<const Plugin>> load_plugin(const std::string& wanted, const Log& log) {
  set_plugin_log(log);
  auto library = DynLib::open(names_of(wanted));
  if (!library.ok())
    return error(ErrorCode::SystemError, "HETCCL_NET_PLUGIN=%s: %s", wanted.c_str(),
                 library.status().message().c_str());
  Loaded& all = loaded();
  const std::lock_guard lock(all.mutex);
  const auto known = all.by_path.find(library->path());
  if (known != all.by_path.end()) return known->second;
  auto calls = find_calls(*library);
  if (!calls.ok()) return refuse(library->path(), calls.status());
  library->stay_loaded();
  HETCCL_ASSIGN(auto plugin, start(library->path(), std::move(calls).value()));
  all.by_path[library->path()] = plugin;
  return plugin;
}

}  // namespace hetccl::transport::ncclnet
