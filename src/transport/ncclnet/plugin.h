// A net plug-in of NCCL's that this process has loaded.
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

/// A device as `hetccl info` shows it, and as channels use it.
struct Device {
  int index = 0;
  Properties properties;
  net::BusLocation place;
  /// "mlx5_0: 200 Gbit/s, port 1, latency 2.0 us, 1024 connections; memory: host, CUDA".
  [[nodiscard]] std::string describe() const;
};

/// A pair of a device's connections, one each way, as a channel or a loopback makes them: counted
/// while this lives.
struct GiveBack {
  void operator()(std::atomic<int>* taken) const { --*taken; }
};
using ConnectionPair = std::unique_ptr<std::atomic<int>, GiveBack>;

/// Thread-safe, as NCCL expects plug-ins to be. Never unloaded, and never finalized: plug-ins may
/// have threads, whose code must stay mapped.
class Plugin {
 public:
  Plugin(std::string path, std::unique_ptr<Calls> calls)
      : path_(std::move(path)), calls_(std::move(calls)), name_(calls_->name()) {}

  /// Returns the network's name: both ends of a channel have the same. At most kMaxName bytes,
  /// printable.
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] Calls& calls() const { return *calls_; }
  /// SystemError where there are none.
  [[nodiscard]] Result<std::vector<Device>> devices() const;
  /// Takes one of the pairs of connections that the plug-in allows a process with the device.
  /// SystemError where none is left.
  [[nodiscard]] Result<ConnectionPair> take_pair(const Device& device) const;
  /// "AWS Libfabric (/opt/libnccl-net.so, interface 10)".
  [[nodiscard]] std::string describe() const;

  static constexpr size_t kMaxName = 64;
  static constexpr int kMaxDevices = 16;

 private:
  const std::string path_;
  const std::unique_ptr<Calls> calls_;
  const std::string name_;
  mutable std::array<std::atomic<int>, kMaxDevices> pairs_{};  // taken, by the device's index
};

/// The plug-in that HETCCL_NET_PLUGIN names: a path, or "aws-ofi" for libnccl-net-aws-ofi.so. The
/// process loads and starts it once, whoever asks. SystemError says what dlopen or the plug-in
/// said.
Result<std::shared_ptr<const Plugin>> load_plugin(const std::string& wanted, const Log& log);

}  // namespace hetccl::transport::ncclnet
