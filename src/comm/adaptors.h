// The adaptors of this build, as rows. A Runtime makes its own devices, libraries and transports
// from them. adaptors.cc is the one file outside an adaptor's folder that names adaptors.
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

/// The host as a device, and the library of its clusters.
struct HostRow {
  std::string vendor;
  ccl::Reach reach;
  std::function<std::unique_ptr<device::Device>(std::shared_ptr<Crew>)> make_device;
  std::function<std::unique_ptr<ccl::Library>(std::shared_ptr<const Crew>)> make_library;
};

/// A vendor's collective library, loaded: for each of its devices one is made.
struct LoadedLibrary {
  std::string version, path;
  std::function<std::unique_ptr<ccl::Library>(const std::shared_ptr<device::GpuDevice>&)> make;
};

/// A vendor of GPUs: its runtime, its compiler of kernels and its collective library, each loaded
/// when first asked for. A device is "<vendor>" or "<vendor>:<index>".
struct GpuRow {
  template <typename Api>
  using Load = std::function<Result<std::shared_ptr<const Api>>(const Config&)>;

  std::string vendor;
  std::string runtime, compiler, library;  ///< what `hetccl info` calls them; empty: there is none
  ccl::Reach reach;                        ///< the library's
  /// By the library at most, on GPUs of an architecture, which may be unknown (empty).
  ReductionSet (*reduces)(std::string_view architecture) = nullptr;
  /// What the process does with this vendor's GPUs by itself; null: nobody can tell.
  std::shared_ptr<device::gpu::InProcess> in_process;
  Load<device::gpu::Api> load_runtime;
  Load<device::kernels::Compiler> load_compiler;  ///< empty: nothing compiles kernels
  /// `runtime` is the path of the runtime in use; empty: there is none.
  std::function<Result<LoadedLibrary>(const Config&, const std::string& runtime)> load_library;
};

/// The process's own, which its transports share.
struct Means {
  Waker& waker;  ///< what the engine sleeps on
  std::shared_ptr<Crew> crew;
};

struct TransportRow {
  std::string name;
  transport::Score score;
  /// Empty, or why the configuration leaves it out.
  std::function<std::string(const Config&)> left_out;
  std::function<Result<std::unique_ptr<transport::Transport>>(const Config&, const Log&,
                                                              const Means&)>
      make;
  /// An adaptor's, or for hardware that some hosts have: without it the process goes on.
  bool optional = false;
  bool found = false;  ///< an adaptor's
};

struct Adaptors {
  HostRow host;
  std::vector<GpuRow> gpus;
  std::vector<TransportRow> transports;
};

/// Those of this build.
Adaptors all_adaptors();

/// Those and the devices of `found`, each with the library that names it, or with none.
Adaptors with_devices(Adaptors adaptors, const std::vector<adaptor::Found>& found);

/// A part of an adaptor that serves nobody, and why.
struct Unused {
  std::string path, device, reason;
};
/// Devices of `found` whose name another has, and libraries of devices that they do not have.
std::vector<Unused> unused_devices(const std::vector<adaptor::Found>& found);

/// Those and the transports of `found`, by name, so that all ranks choose alike of equal scores.
Adaptors with_transports(Adaptors adaptors, const std::vector<adaptor::Found>& found);

/// The names that these have, which others may not take.
adaptor::Names names_of(const Adaptors& adaptors);

/// The part of them that the topology needs. Links are by transports that all ranks have, since
/// ranks must agree.
topology::AdaptorTraits traits_of(const Adaptors& adaptors);

/// The end of a channel that a rank is.
transport::ChannelEnd end_of(const topology::RankInfo& info);

/// The row of the best transport between two ranks among those with `usable(name)`: the first of
/// equals. Null where none can.
const TransportRow* choose_transport(const std::vector<TransportRow>& rows,
                                     const transport::ChannelEnd& local,
                                     const transport::ChannelEnd& peer,
                                     const std::function<bool(const std::string&)>& usable);

}  // namespace hetccl::comm
