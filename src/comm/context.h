// Shared by all parts of one communicator: its options and settings, the limit of setting it up,
// and the phase of its life.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "base/cancel.h"
#include "comm/runtime.h"

namespace hetccl::comm {

struct CommunicatorOptions {
  int rank = 0;
  int n_ranks = 1;
  std::string device;           ///< "host", "cuda:1", "cuda"; "" is the host
  std::string cluster;          ///< label; "" takes the configuration's
  std::string host_id;          ///< "" takes the configuration's, or probes
  int64_t timeout_ms = 0;       ///< of one collective; 0 takes the configuration's
  int64_t init_timeout_ms = 0;  ///< for all ranks to come; 0 takes the configuration's
  int64_t init_limit_ms = 0;    ///< at most this; 0: no limit
  bool blocking = true;         ///< false: create, split and finalize go on in the background
  /// As the settings of these names; none takes the configuration's.
  std::optional<std::string> wire{}, wire_gather{};
  std::optional<bool> wire_inside{};
  std::string name{};    ///< for people: in the log and in dumps
  ccl::Blocks blocks{};  ///< of the cluster's library; where it takes them
};

enum class Phase { Opening, Ready, Finalizing, Closed };

/// Outlives the parts. Constant, but for the log while the communicator is set up, and the phase.
struct Context {
  Context(Runtime& runtime_used, CommunicatorOptions given, std::unique_ptr<Cancel> ends);
  [[nodiscard]] int64_t init_left_ms() const;
  [[nodiscard]] WaitLimit init_limit() const { return {init_left_ms(), cancel.get()}; }
  [[nodiscard]] progress::Engine& engine() const { return runtime.engine(); }

  Runtime& runtime;
  const CommunicatorOptions options;
  const Config config;                   ///< the process's settings, but for what the options say
  Log log;                               ///< names the rank once that is known
  const std::unique_ptr<Cancel> cancel;  ///< ends being set up
  const TimePoint init_deadline;
  std::atomic<Phase> phase{Phase::Opening};
};

}  // namespace hetccl::comm
