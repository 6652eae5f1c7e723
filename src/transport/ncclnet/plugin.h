// One of NCCL's net plug-ins that this process has loaded.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "net/hardware.h"
#include "transport/ncclnet/calls.h"

namespace hetccl::transport::ncclnet {

/// A device of the plug-in, for channels and for `hetccl info`.
struct Device {
  int index = 0;
  Properties properties;
  net::BusLocation place;
  /// "mlx5_0: 200 Gbit/s, port 1, latency 2.0 us, 1024 connections; memory: host, CUDA".
  [[nodiscard]] std::string describe() const;
};

/// Counts one pair of a device's connections, one each way, as taken while it lives. A channel or a
/// loopback needs one.
struct GiveBack {
  void operator()(std::atomic<int>* taken) const { --*taken; }
};
using ConnectionPair = std::unique_ptr<std::atomic<int>, GiveBack>;

/// Thread-safe, as NCCL expects plug-ins to be. Never unloaded or finalized, because a plug-in may
/// have threads, whose code must stay mapped.
class Plugin {
 public:
  Plugin(std::string path, std::unique_ptr<Calls> calls)
      : path_(std::move(path)), calls_(std::move(calls)), name_(calls_->name()) {}

  /// Returns the network's name, which must be equal at both ends of a channel. At most kMaxName
  /// bytes, printable.
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] Calls& calls() const { return *calls_; }
  /// Returns the devices, or SystemError if there are none.
  [[nodiscard]] Result<std::vector<Device>> devices() const;
  /// Takes one of the pairs of connections that the plug-in allows a process on this device.
  /// Returns SystemError if none is left.
  [[nodiscard]] Result<ConnectionPair> take_pair(const Device& device) const;
  /// "AWS Libfabric (/opt/libnccl-net.so, interface 10)".
  [[nodiscard]] std::string describe() const;

  static constexpr size_t kMaxName = 64;
  static constexpr int kMaxDevices = 16;

 private:
  const std::string path_;
  const std::unique_ptr<Calls> calls_;
  const std::string name_;
  mutable std::array<std::atomic<int>, kMaxDevices> pairs_{};  // number of pairs taken, by device
                                                               // index
};

/// Loads the plug-in that HETCCL_NET_PLUGIN names: a path, or "aws-ofi" for libnccl-net-aws-ofi.so.
/// The first call in a process loads and starts it; later calls return the same. A SystemError
/// quotes dlopen or the plug-in.
Result<std::shared_ptr<const Plugin>> load_plugin(const std::string& wanted, const Log& log);

}  // namespace hetccl::transport::ncclnet
