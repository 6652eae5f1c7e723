// Everything that the communicators of a process share: adaptors, control plane, progress engine.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.h"
#include "base/log.h"
#include "base/memory.h"
#include "bootstrap/bootstrap.h"
#include "ccl/ccl.h"
#include "comm/adaptors.h"
#include "comm/gpus.h"
#include "comm/host_libraries.h"
#include "comm/host_pointers.h"
#include "comm/introduction.h"
#include "comm/pair_budget.h"
#include "comm/user_memory.h"
#include "comm/window_budget.h"
#include "device/device.h"
#include "exec/end_marks.h"
#include "exec/registered_memory.h"
#include "host/crew.h"
#include "host/task_queue.h"
#include "progress/engine.h"
#include "transport/transport.h"

namespace hetccl::comm {

/// Thread-safe, but for `rest` and `wake`. Outlives its communicators.
class Runtime {
 public:
  /// Tests replace rows of the build's adaptors (e.g. the host by an asynchronous fake device).
  static Result<std::unique_ptr<Runtime>> create(Config config, Adaptors adaptors = all_adaptors());
  ~Runtime();

  /// Ends the threads and closes the descriptors that communicators share: the engine, transports
  /// and control plane. Devices and libraries stay. Takes at most half a second. Only if there is
  /// no communicator and no host stream, and nobody else calls; then only `wake` may be called.
  void rest();
  /// Opens them again. Does nothing unless it rests, and after an error it still does.
  Status wake();
  [[nodiscard]] bool rests() const { return service_ == nullptr; }

  [[nodiscard]] const Config& config() const { return config_; }
  [[nodiscard]] const Log& log() const { return log_; }
  /// Logs misspelt settings, once a process. `rank` is that of the process's first communicator,
  /// which `id` tells from later ones: rank 0 of a sub-group is another rank of the job.
  void warn_of_settings(int rank, const bootstrap::UniqueId& id);
  [[nodiscard]] progress::Engine& engine() { return *engine_; }
  /// Engine::set_idle_hook, also of the engine of a later `wake`.
  void set_idle_hook(std::function<void()> hook);
  /// Made by the first call.
  Result<exec::Settler*> settler();
  /// To be called once the process has opened its first GPU. Before others use the runtime.
  void when_first_gpu_opens(std::function<void()> then) { first_gpu_opened_ = std::move(then); }
  [[nodiscard]] bootstrap::Service& service() { return *service_; }
  [[nodiscard]] Introductions& introductions() { return introductions_; }
  /// The device of that name: "host", "cuda:1"; Unsupported naming what there is. "" is the host.
  Result<device::Device*> device(std::string_view name);
  /// What `name` means on the calling thread: "cuda" its current device, "" its current GPU, or the
  /// host where it has none.
  std::string resolve_device(std::string_view name);
  [[nodiscard]] std::string host_name() const { return device_->vendor(); }
  /// The number of the GPU that `name` names; -1: none.
  [[nodiscard]] int gpu_number(std::string_view name) const;
  /// The vendor whose GPUs the process uses: of the calling thread's current one, else the first
  /// whose runtime it has loaded and that shows one. "" where there is none.
  std::string gpu_vendor();
  [[nodiscard]] HostPointers& host_pointers() { return host_pointers_; }
  [[nodiscard]] UserMemory& memory() { return memory_; }
  /// Returns the memory of `device` that transports know; null where none registers. Until `rest`.
  [[nodiscard]] exec::RegisteredMemory* memory_of(device::Device& device);
  /// The library for clusters of `device`; Unsupported where it is missing. An adaptor may wait for
  /// others of its ranks when it is first asked, within `limit`.
  Result<ccl::Library*> library(const device::Device& device, const WaitLimit& limit);
  /// The best transport between two ranks for which the peer has an address; null where none can.
  /// Both ends choose the same one.
  [[nodiscard]] transport::Transport* transport(
      const transport::ChannelEnd& local, const transport::ChannelEnd& peer,
      const std::map<std::string, transport::Address>& peers) const;
  /// Whether ranks of this host can reach each other in memory, by some transport.
  [[nodiscard]] bool shares_memory() const;
  /// All transports, each with where it listens.
  struct Listening {
    transport::Transport* transport;
    transport::Address address;
  };
  [[nodiscard]] const std::vector<Listening>& listening() const { return listening_; }
  [[nodiscard]] WindowBudget& windows() { return windows_; }
  /// `all` ranks of the host have what the process may use to share, `bound` of them its cores.
  void share_cores(int bound, int all);
  /// How many threads of a rank of the host copy and reduce.
  [[nodiscard]] int host_threads() const { return crew_->threads(); }
  /// Counts the operators that users of all communicators have made.
  std::atomic<uint32_t>& red_op_numbers() { return red_op_numbers_; }
  /// A stream of the host device for the user; the handle is what collectives take.
  Result<void*> create_host_stream();
  /// The queue behind such a handle, kept while the caller holds it.
  Result<std::shared_ptr<TaskQueue>> host_stream(void* handle);
  /// Waits for its work. InvalidArgument when the handle is none of create_host_stream's.
  Status destroy_host_stream(void* handle);
  /// Pairs of ranks whose messages a vendor's library carries, of all communicators.
  PairBudget& pairs() { return pairs_; }
  /// 0, 1, 2, ...: a number for each communicator of this process.
  uint64_t count_communicator() { return communicators_.fetch_add(1); }
  /// How many were destroyed so far: who keeps something of a stream looks again when it changes.
  [[nodiscard]] uint64_t destroyed_host_streams() const {
    return destroyed_host_streams_.load(std::memory_order_acquire);
  }
  /// What this machine offers and what is missing, as JSON.
  [[nodiscard]] std::string describe();

 private:
  Runtime(Config config, Adaptors adaptors);
  void open();
  Status open_connections();
  void warn_of_adaptors() const;
  void warn_of_settings(int rank);
  Status open_transports();
  /// Why the transport of that row is not there; empty: it is.
  [[nodiscard]] std::string why_not(const TransportRow& row) const;
  [[nodiscard]] Status check_wanted_transport() const;
  [[nodiscard]] Status refuse_device(std::string_view name) const;

  const Config config_;
  const std::vector<adaptor::Found> found_;
  const Adaptors adaptors_;
  Log log_;
  std::shared_ptr<Crew> crew_;
  std::unique_ptr<device::Device> device_;
  HostLibraries host_libraries_{adaptors_.host, log_, found_};
  std::list<Gpus> gpus_;  // by vendor
  HostPointers host_pointers_{gpus_};
  UserMemory memory_{gpus_};
  std::vector<std::unique_ptr<transport::Transport>> transports_;
  std::vector<Listening> listening_;
  std::map<std::string, std::string> not_made_;  // optional transports, and why
  std::mutex registered_mutex_;
  std::map<device::Device*, std::unique_ptr<exec::RegisteredMemory>> registered_;
  std::unique_ptr<progress::Engine> engine_;
  std::mutex hook_mutex_;
  std::function<void()> idle_hook_;
  std::once_flag opens_gpu_;
  std::mutex settler_mutex_;
  std::function<void()> first_gpu_opened_;
  std::unique_ptr<exec::Settler> settler_;
  std::unique_ptr<bootstrap::Service> service_;
  Introductions introductions_{traits_of(adaptors_)};
  WindowBudget windows_{usable_memory()};
  std::atomic<uint32_t> red_op_numbers_{0};
  PairBudget pairs_;
  std::mutex warnings_mutex_;
  std::optional<bootstrap::UniqueId> first_id_;  // without its secret
  std::once_flag warned_, followed_;             // by rank 0 or none; by another rank
  std::atomic<uint64_t> destroyed_host_streams_{0}, communicators_{0};
  std::mutex streams_mutex_;
  std::map<void*, std::shared_ptr<device::Stream>> host_streams_;
};

}  // namespace hetccl::comm
