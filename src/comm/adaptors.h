// Lists the adaptors of this build as rows. A Runtime makes its devices, libraries and transports
// from them. Outside an adaptor's own folder, only adaptors.cc names adaptors.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "adaptor/adaptor.h"
#include "base/config.h"
#include "base/log.h"
#include "base/reduction_set.h"
#include "ccl/ccl.h"
#include "device/gpu/gpu_device.h"
#include "device/gpu/in_process.h"
#include "host/crew.h"
#include "topology/topology.h"
#include "transport/transport.h"

namespace hetccl::comm {

/// The host as a device, and the library that serves its clusters.
struct HostRow {
  std::string vendor;
  ccl::Reach reach;
  std::function<std::unique_ptr<device::Device>(std::shared_ptr<Crew>)> make_device;
  std::function<std::unique_ptr<ccl::Library>(std::shared_ptr<const Crew>)> make_library;
};

/// A vendor's collective library, loaded. `make` gives one ccl::Library for each device.
struct LoadedLibrary {
  std::string version, path;
  std::function<std::unique_ptr<ccl::Library>(const std::shared_ptr<device::GpuDevice>&)> make;
};

/// A vendor of GPUs: its runtime, its kernel compiler and its collective library, each loaded on
/// first use. A device is named "<vendor>" or "<vendor>:<index>".
struct GpuRow {
  template <typename Api>
  using Load = std::function<Result<std::shared_ptr<const Api>>(const Config&)>;

  std::string vendor;
  std::string runtime, compiler, library;  ///< the names that `hetccl info` shows; empty: absent
  ccl::Reach reach;                        ///< of the library
  /// Returns the reductions that the library can do, at most, on GPUs of `architecture` (empty:
  /// unknown).
  ReductionSet (*reduces)(std::string_view architecture) = nullptr;
  /// Tells how the process itself uses this vendor's GPUs, without hetccl. Null: unknown.
  std::shared_ptr<device::gpu::InProcess> in_process;
  Load<device::gpu::Api> load_runtime;
  Load<device::kernels::Compiler> load_compiler;  ///< empty: no kernels are compiled
  /// `runtime` is the path of the runtime in use; empty: none is loaded.
  std::function<Result<LoadedLibrary>(const Config&, const std::string& runtime)> load_library;
};

/// Resources of the process that its transports share.
struct TransportResources {
  Waker& waker;  ///< wakes the engine
  std::shared_ptr<Crew> crew;
};

struct TransportRow {
  std::string name;
  transport::Score score;
  /// Returns why the configuration excludes this row; empty: it is allowed.
  std::function<std::string(const Config&)> left_out;
  std::function<Result<std::unique_ptr<transport::Transport>>(const Config&, const Log&,
                                                              const TransportResources&)>
      make;
  /// True for adaptors and for hardware that some hosts lack: the process continues without it.
  bool optional = false;
  bool found = false;  ///< true: from an adaptor
};

struct Adaptors {
  HostRow host;
  std::vector<GpuRow> gpus;
  std::vector<TransportRow> transports;
};

/// Returns the adaptors of this build.
Adaptors all_adaptors();

/// Adds the devices of `found`, each with the library that names it, or with no library.
Adaptors with_devices(Adaptors adaptors, const std::vector<adaptor::Found>& found);

/// A part of an adaptor that is not used, and the reason.
struct Unused {
  std::string path, device, reason;
};
/// Lists devices of `found` whose name is taken, and libraries for devices that do not exist.
std::vector<Unused> unused_devices(const std::vector<adaptor::Found>& found);

/// Adds the transports of `found` in order of their names, so that all ranks break ties between
/// equal scores alike.
Adaptors with_transports(Adaptors adaptors, const std::vector<adaptor::Found>& found);

/// Returns the names in use, which adaptors may not take.
adaptor::Names names_of(const Adaptors& adaptors);

/// Returns the traits that the topology needs. Only transports that all ranks have make links,
/// because ranks must agree.
topology::AdaptorTraits traits_of(const Adaptors& adaptors);

/// Returns `info` as the end of a channel.
transport::ChannelEnd end_of(const topology::RankInfo& info);

/// Returns the row with the best score between two ranks among those with `usable(name)`, the first
/// one if scores are equal; null if no transport connects them.
const TransportRow* choose_transport(const std::vector<TransportRow>& rows,
                                     const transport::ChannelEnd& local,
                                     const transport::ChannelEnd& peer,
                                     const std::function<bool(const std::string&)>& usable);

}  // namespace hetccl::comm
