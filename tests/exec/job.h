// N ranks of one communicator as threads, without comm: devices, fake network, cluster libraries
// and executors put together by hand, so that a seed decides every delay.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ccl/ccl.h"
#include "device/device.h"
#include "exec/executor.h"
#include "fake/cases.h"
#include "fake/fake_network.h"
#include "fake/late_abort.h"
#include "fake/patience.h"
#include "fake/thread.h"
#include "plan/call.h"
#include "plan/planner.h"
#include "progress/engine.h"

namespace hetccl::exec {

struct JobOptions {
  std::vector<std::string> labels;
  uint64_t seed = 0;
  bool fake_device = true;                ///< else the host device
  bool one_queue = false;                 ///< all streams of a fake device share it
  std::set<std::string> hosts;            ///< labels of clusters of the host beside them
  std::set<std::string> without_kernels;  ///< labels of clusters of fake devices
  uint64_t slice_bytes = 4096;            ///< small, so that many slices are in flight
  uint32_t depth = 3;
  std::set<std::string> without_exchange{};  ///< labels of clusters whose libraries have none
  bool late_abort = false;  ///< of clusters' libraries: they wait for `JobRank::enter_abort`
  /// Transports between ranks that are both even or both odd reach the memory of fake devices.
  bool reach_devices = false;
  size_t window = 0;            ///< that a fake device shares with others, and with hosts
  bool last_algorithm = false;  ///< calls go by the last algorithm that applies, not the first
  uint64_t timed_every = 0;     ///< each n-th call is timed; 0: none
  Duration deadline = fake::kHang;
};

/// A call that was timed.
struct TimedCall {
  uint64_t sequence = 0;
  Duration took{};
};

/// The device of a rank of such a job; null when there is none. A host beside fake devices counts
/// its copies in `copies`, if any.
std::unique_ptr<device::Device> make_device(const JobOptions& options, int rank,
                                            std::atomic<uint64_t>* copies = nullptr);
/// Copies to or from a device's memory at once.
void upload(device::Device& device, void* to, const std::vector<std::byte>& from);
void download(device::Device& device, std::vector<std::byte>& to, const void* from);

/// One rank. Its methods are called by one thread.
class JobRank {
 public:
  JobRank(int rank, const topology::Topology& topology, const JobOptions& options,
          fake::Network& network);
  ~JobRank();

  /// Collective over the cluster; then the channels. Call on all ranks at once.
  Status open(const ccl::UniqueId& cluster_id);
  /// Enqueues `test`, its buffers in device memory, on this rank's streams in turns.
  Status enqueue(const fake::Case& test);
  /// Waits for everything enqueued; the fault, if one came.
  Status wait();
  [[nodiscard]] Status fault() {
    std::lock_guard lock(fault_mutex_);
    return fault_;
  }
  /// The result of the `index`-th enqueued case.
  std::vector<std::byte> result(size_t index);
  void abort();
  /// Finds, among the programs that ran, a target that differs from the proven one; "" if there is
  /// none.
  [[nodiscard]] std::string find_unproven_target() const;
  /// Lets the delayed abort of a library begin.
  void enter_abort();
  /// Waits until nothing is in flight; false after `fake::kHang`.
  bool drained();
  [[nodiscard]] bool idle() const { return executor_->idle(); }
  /// See Executor.
  std::string describe_oldest();
  [[nodiscard]] uint64_t bytes_sent() const { return executor_->bytes_sent(); }
  /// So far, in the order in which they were told. Nobody drives meanwhile.
  [[nodiscard]] const std::vector<TimedCall>& timed() const { return timed_; }
  /// Copies by the host so far, if there are fake devices.
  [[nodiscard]] uint64_t copies() const { return copies_.load(); }

 private:
  struct Buffers {
    fake::Case test;
    void* send;
    void* recv;
    size_t send_bytes, recv_bytes, recv_at;
  };
  int rank_;
  const topology::Topology& topology_;
  const JobOptions& options_;
  std::atomic<uint64_t> copies_{0};
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<transport::Transport> transport_;
  std::unique_ptr<progress::Engine> engine_;
  std::unique_ptr<Settler> settler_ = std::move(Settler::create()).value();
  std::unique_ptr<ccl::Library> library_;
  std::unique_ptr<ccl::Communicator> ccl_;
  fake::LateAbort* late_ = nullptr;
  std::vector<std::unique_ptr<transport::Channel>> channels_;
  std::map<int, std::unique_ptr<Window>> windows_;  // by peer
  std::unique_ptr<Executor> executor_;
  std::array<std::unique_ptr<device::Stream>, 2> streams_;
  std::vector<std::unique_ptr<Program>> programs_;
  std::vector<Buffers> buffers_;
  Ticket last_;
  std::vector<TimedCall> timed_;
  std::mutex fault_mutex_;
  Status fault_;
};

using fake::on_all_ranks;

/// A whole job: opened on construction.
class Job {
 public:
  explicit Job(JobOptions options);
  ~Job();
  [[nodiscard]] const Status& opened() const { return opened_; }
  /// Enqueues all cases, then waits for them, and checks every rank's result. Returns "" or the
  /// error.
  std::string run(const std::vector<fake::Case>& tests);
  /// Sets the deadline of operations that are enqueued from now on.
  void set_deadline(Duration deadline) { options_.deadline = deadline; }
  [[nodiscard]] JobRank& rank(int r) { return *ranks_[static_cast<size_t>(r)]; }
  [[nodiscard]] int n_ranks() const { return static_cast<int>(ranks_.size()); }
  [[nodiscard]] const topology::Topology& topology() const { return topology_; }
  [[nodiscard]] fake::Network& network() { return network_; }

 private:
  JobOptions options_;
  topology::Topology topology_;
  fake::Network network_;
  std::vector<std::unique_ptr<JobRank>> ranks_;
  Status opened_;
};

}  // namespace hetccl::exec
