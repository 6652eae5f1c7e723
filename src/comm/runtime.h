// Everything that a process's communicators share: adaptors, control plane, progress engine.
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

/// Thread-safe, except `rest` and `wake`. Must outlive its communicators.
class Runtime {
 public:
  /// Tests replace rows of `adaptors`, e.g. the host by an asynchronous fake device.
  static Result<std::unique_ptr<Runtime>> create(Config config, Adaptors adaptors = all_adaptors());
  ~Runtime();

  /// Ends the threads and closes the descriptors that communicators share: engine, transports and
  /// control plane. Devices and libraries stay. Takes at most half a second. Requires that no
  /// communicator and no host stream exists and that nobody else calls; afterwards only `wake` may
  /// be called.
  void rest();
  /// Starts them again. Does nothing unless resting. After an error it is still resting.
  Status wake();
  [[nodiscard]] bool rests() const { return service_ == nullptr; }

  [[nodiscard]] const Config& config() const { return config_; }
  [[nodiscard]] const Log& log() const { return log_; }
  /// Logs misspelt settings, once a process. `rank` belongs to the process's first communicator,
  /// identified by `id`; later ones are ignored, because rank 0 of a sub-group is another rank of
  /// the job.
  void warn_of_settings(int rank, const bootstrap::UniqueId& id);
  [[nodiscard]] progress::Engine& engine() { return *engine_; }
  /// Calls Engine::set_idle_hook on this engine and on that of a later `wake`.
  void set_idle_hook(std::function<void()> hook);
  /// Returns the settler; the first call makes it.
  Result<exec::Settler*> settler();
  /// Sets the callback for the first GPU that the process opens. Call before others use the
  /// runtime.
  void when_first_gpu_opens(std::function<void()> then) { first_gpu_opened_ = std::move(then); }
  [[nodiscard]] bootstrap::Service& service() { return *service_; }
  [[nodiscard]] Introductions& introductions() { return introductions_; }
  /// Returns the device named "host", "cuda:1" ... ("" is the host), or Unsupported naming the
  /// devices there are.
  Result<device::Device*> device(std::string_view name);
  /// Resolves `name` for the calling thread: "cuda" to its current device, "" to its current GPU,
  /// or to the host if it has none.
  std::string resolve_device(std::string_view name);
  [[nodiscard]] std::string host_name() const { return device_->vendor(); }
  /// Returns the index of the GPU that `name` names; -1: none.
  [[nodiscard]] int gpu_number(std::string_view name) const;
  /// Returns the vendor of the calling thread's current GPU, else the first vendor whose runtime
  /// the process has loaded and that shows a GPU; "" if none.
  std::string gpu_vendor();
  [[nodiscard]] HostPointers& host_pointers() { return host_pointers_; }
  [[nodiscard]] UserMemory& memory() { return memory_; }
  /// Returns the registrations of `device`'s memory with transports; null: no transport registers.
  /// Valid until `rest`.
  [[nodiscard]] exec::RegisteredMemory* memory_of(device::Device& device);
  /// Returns the library for clusters of `device`, or Unsupported if it is missing. The first call
  /// to an adaptor may wait, within `limit`, for its other ranks.
  Result<ccl::Library*> library(const device::Device& device, const WaitLimit& limit);
  /// Returns the best transport between two ranks for which the peer has an address; null: none.
  /// Both ends choose the same one.
  [[nodiscard]] transport::Transport* transport(
      const transport::ChannelEnd& local, const transport::ChannelEnd& peer,
      const std::map<std::string, transport::Address>& peers) const;
  /// Returns whether some transport connects ranks of this host through shared memory.
  [[nodiscard]] bool shares_memory() const;
  /// A transport, and the address where it listens.
  struct Listening {
    transport::Transport* transport;
    transport::Address address;
  };
  [[nodiscard]] const std::vector<Listening>& listening() const { return listening_; }
  [[nodiscard]] WindowBudget& windows() { return windows_; }
  /// Divides what the process may use among the `all` ranks of the host, `bound` of which share its
  /// cores.
  void share_cores(int bound, int all);
  /// Returns how many threads of a host rank copy and reduce.
  [[nodiscard]] int host_threads() const { return crew_->threads(); }
  /// Counts the operators that users have made, over all communicators.
  std::atomic<uint32_t>& red_op_numbers() { return red_op_numbers_; }
  /// Makes a stream of the host device for the user. Collectives take the returned handle.
  Result<void*> create_host_stream();
  /// Returns the queue of such a handle, kept while the caller holds it.
  Result<std::shared_ptr<TaskQueue>> host_stream(void* handle);
  /// Waits for the stream's work. Returns InvalidArgument if create_host_stream did not return
  /// `handle`.
  Status destroy_host_stream(void* handle);
  /// Returns the budget of pairs, over all communicators.
  PairBudget& pairs() { return pairs_; }
  /// Numbers the communicators of this process: 0, 1, 2, ...
  uint64_t count_communicator() { return communicators_.fetch_add(1); }
  /// Returns how many were destroyed so far. Caches of streams are stale when this changes.
  [[nodiscard]] uint64_t destroyed_host_streams() const {
    return destroyed_host_streams_.load(std::memory_order_acquire);
  }
  /// Describes as JSON what this machine offers and what is missing.
  [[nodiscard]] std::string describe();

 private:
  Runtime(Config config, Adaptors adaptors);
  void open();
  Status open_connections();
  void warn_of_adaptors() const;
  void warn_of_settings(int rank);
  Status open_transports();
  /// Returns why that row's transport is absent; empty: it is present.
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
  std::list<Gpus> gpus_;  // one per vendor
  HostPointers host_pointers_{gpus_};
  UserMemory memory_{gpus_};
  std::vector<std::unique_ptr<transport::Transport>> transports_;
  std::vector<Listening> listening_;
  std::map<std::string, std::string> not_made_;  // optional transports, by name, with the reason
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
  std::once_flag warned_, followed_;             // each logs warnings once: warned_ for rank 0 or
                                                 // no rank, followed_ for other ranks
  std::atomic<uint64_t> destroyed_host_streams_{0}, communicators_{0};
  std::mutex streams_mutex_;
  std::map<void*, std::shared_ptr<device::Stream>> host_streams_;
};

}  // namespace hetccl::comm
