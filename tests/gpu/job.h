// Communicators over GPUs and the host: ranks as threads, each with a Runtime of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "fake/cases.h"

namespace hetccl::gpu_tests {

/// Where a rank is: "cuda:0" or "host", and the label of its cluster.
struct Place {
  std::string device, label;
};

class Job {
 public:
  /// A failure to form it fails the test.
  Job(std::vector<Place> places, const Config& config);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  [[nodiscard]] int n() const { return static_cast<int>(ranks_.size()); }
  /// Runs `test` on all ranks, each in its device's memory; "" or what was wrong.
  std::string run(const fake::Case& test);
  /// All ranks at once; each enqueues `call` (by rank, with its memory) `times`, then waits.
  /// Returns the slowest rank's seconds for one.
  double time(const std::vector<comm::CollectiveArguments>& calls, int times);
  /// Memory of the rank's device, freed with the job.
  void* allocate(int rank, size_t bytes);

 private:
  struct Rank;
  void on_all(const std::function<std::string(Rank&)>& body, std::string& wrong);

  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace hetccl::gpu_tests
