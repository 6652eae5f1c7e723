// Communicators over GPUs and the host: ranks as threads, each with a Runtime of its own, or as
// processes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/unique_id.h"
#include "comm/communicator.h"
#include "fake/cases.h"

namespace hetccl::gpu_tests {

/// A rank's place: "cuda:0" or "host", and the label of its cluster.
struct Place {
  std::string device, label;
};

/// A message of int32 that all ranks know of.
struct Letter {
  int from, to;
  uint64_t count;
};

class Job {
 public:
  /// Changes a rank's configuration, and the build's adaptors.
  using Change = std::function<void(int rank, Config& config, comm::Adaptors& adaptors)>;
  /// A failure to form it fails the test. `gpus` replaces the GPUs' runtime.
  Job(const std::vector<Place>& places, const Config& config,
      const std::shared_ptr<const device::gpu::Api>& gpus = nullptr, const Change& change = {});
  /// Makes only this process's part, which is `rank`.
  Job(const std::vector<Place>& places, const Config& config, int rank,
      const bootstrap::UniqueId& id, const std::shared_ptr<const device::gpu::Api>& gpus = nullptr);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  [[nodiscard]] int n() const { return n_; }
  /// Runs `test` on all ranks of this process, each in its device's memory. Returns "" or the
  /// error.
  std::string run(const fake::Case& test);
  /// Runs messages, each rank's in one call. Returns "" or the error.
  std::string run(const std::vector<Letter>& letters);
  /// Runs `body` on each rank's thread.
  void on_all(const std::function<void(int rank, comm::Communicator& communicator,
                                       device::Device& device, device::Stream& stream)>& body);

 private:
  struct Rank;
  void on_all(const std::function<std::string(Rank&)>& body, std::string& wrong);
  void add(int rank, const Place& place, Config config,
           const std::shared_ptr<const device::gpu::Api>& gpus, const Change& change = {});
  void join(const bootstrap::UniqueId& id);

  int n_;
  std::vector<std::unique_ptr<Rank>> ranks_;  // that are here
};

}  // namespace hetccl::gpu_tests
