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

 private:
  struct Rank;
  void on_all(const std::function<std::string(Rank&)>& body, std::string& wrong);

  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace hetccl::gpu_tests
