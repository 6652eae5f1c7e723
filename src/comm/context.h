// State that all parts of one communicator share: its options, its settings, its init deadline and
// its life phase.
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
  int64_t timeout_ms = 0;       ///< of one collective; 0: HETCCL_TIMEOUT_MS
  int64_t init_timeout_ms = 0;  ///< until all ranks have joined; 0: the configuration's
  int64_t init_limit_ms = 0;    ///< upper bound on the init timeout; 0: none
  bool blocking = true;         ///< false: create, split and finalize run in the background
  /// Override the settings of the same names; none: the configuration's.
  std::optional<std::string> wire{}, wire_gather{};
  std::optional<bool> wire_inside{};
  std::string name{};    ///< shown in the log and in dumps
  ccl::Blocks blocks{};  ///< thread blocks for the cluster's library, if it takes them
};

enum class Phase { Opening, Ready, Finalizing, Closed };

/// Outlives the parts. Constant, except for the log during initialisation and the phase.
struct Context {
  Context(Runtime& runtime_used, CommunicatorOptions given, std::unique_ptr<Cancel> ends);
  [[nodiscard]] int64_t init_left_ms() const;
  [[nodiscard]] WaitLimit init_limit() const { return {init_left_ms(), cancel.get()}; }
  [[nodiscard]] progress::Engine& engine() const { return runtime.engine(); }

  Runtime& runtime;
  const CommunicatorOptions options;
  const Config config;                   ///< the process's settings, overridden by the options
  Log log;                               ///< names the rank once it is known
  const std::unique_ptr<Cancel> cancel;  ///< cancels initialisation
  const TimePoint init_deadline;
  std::atomic<Phase> phase{Phase::Opening};
};

}  // namespace hetccl::comm
