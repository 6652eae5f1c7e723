// Ranks as threads of this process, each with a Runtime of its own as processes have, or one for
// all.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "fake/cases.h"
#include "fake/fake_device.h"
#include "fake/patience.h"
#include "fake/thread.h"

namespace hetccl::comm {

using fake::on_all_ranks;

/// The build's, but for `device` in the host's place, and a library that joins such devices of
/// several hosts.
Adaptors adaptors_with(std::unique_ptr<device::Device> device);

/// A job; a failure to form it fails the test.
class Ranks {
 public:
  /// One rank for each label, which says in which cluster. `share`: one Runtime for all.
  Ranks(std::vector<std::string> labels, const Config& config, bool share);
  /// Each rank with a configuration of its own.
  Ranks(std::vector<std::string> labels, std::vector<Config> configs);

  /// All ranks form a (new) communicator.
  void join();

  [[nodiscard]] int n() const { return static_cast<int>(labels_.size()); }
  Runtime& runtime(int rank) { return *runtimes_[static_cast<size_t>(rank) % runtimes_.size()]; }
  std::shared_ptr<Communicator>& operator[](int rank) {
    return communicators_[static_cast<size_t>(rank)];
  }
  [[nodiscard]] const std::vector<std::string>& labels() const { return labels_; }
  /// Id of the latest communicator.
  [[nodiscard]] const bootstrap::UniqueId& id() const { return id_; }

 private:
  std::vector<std::string> labels_;
  std::vector<std::unique_ptr<Runtime>> runtimes_;
  std::vector<Status> statuses_;
  std::vector<std::shared_ptr<Communicator>> communicators_;
  bootstrap::UniqueId id_{};
};

/// `body(0)` to `body(ranks.n() - 1)`, each on a thread. A rank whose check fails aborts all, so
/// that none waits for it.
void on_all_ranks(Ranks& ranks, const std::function<void(int)>& body);

/// A communicator of ranks on fake devices, one for each configuration: `body` on each rank's
/// thread. `change` may put other rows among the build's. A failure to form it fails the test.
void on_fake_devices(const std::vector<Config>& configs, const fake::FakeOptions& options,
                     const std::function<void(int rank, fake::FakeDevice& device,
                                              std::shared_ptr<Communicator> communicator)>& body,
                     const std::function<void(Adaptors&)>& change = {});

/// Runs `test` on one rank, in memory of its device. Returns "" or the error.
std::string run(const fake::Case& test, int rank, fake::FakeDevice& device,
                Communicator& communicator, device::Stream& stream,
                const std::vector<std::vector<std::byte>>& inputs);

/// Runs `test` on all ranks, blocking or on a host stream. Returns "" or the error.
std::string run(Ranks& ranks, const fake::Case& test, bool asynchronous);

/// The sum of `data` over all ranks, in place; blocking without a stream.
Status sum(Communicator& communicator, std::vector<float>& data, void* stream = nullptr);

/// A sum of `count` floats.
fake::Case all_reduce(const Ranks& ranks, uint64_t count);

}  // namespace hetccl::comm
