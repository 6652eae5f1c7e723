// The plans of a communicator's collectives, each made once and kept.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/config.h"
#include "base/encoding.h"
#include "exec/interpreter.h"
#include "plan/planner.h"
#include "topology/topology.h"
#include "tune/chooser.h"
#include "tune/key.h"

namespace hetccl::comm {

/// A plan ready to run.
struct PlannedProgram {
  exec::Program exec;
  uint64_t least_bytes = 0;  ///< that cross between clusters, per byte of the call's count
  bool reached = false;      ///< its peers are, or are being, connected
};

/// By the threads that launch, under the communicator's launch mutex.
class Programs {
 public:
  /// How one call is to run.
  struct Chosen {
    PlannedProgram* program = nullptr;
    plan::Choice choice;
    plan::Resources resources;
  };

  /// For `rank`. The topology and the configuration outlive it; `measured` by all ranks.
  Programs(int rank, const topology::Topology& topology,
           const std::vector<topology::Measurement>& measured, const Config& config)
      : rank_(rank),
        topology_(topology),
        config_(config),
        wire_(parse_encoding(config.wire).value()),
        wire_gather_(parse_encoding(config.wire_gather).value()),
        chooser_(topology, measured, config.deterministic) {}

  /// The program for a call with blocks of `block` elements, with the tuned setting where there is
  /// one, which calls of that key and tuning round share. It stays valid while this lives.
  Result<Chosen> choose(const Signature& signature, uint64_t block,
                        const std::optional<tune::Setting>& tuned = {}, uint64_t round = 0);
  /// InvalidArgument where that setting's algorithm plans no call of that key, or it asks the
  /// vendors' libraries for what they do not take.
  [[nodiscard]] Status check(const tune::Key& key, const tune::Setting& setting,
                             const Tactics& tactics) const;
  /// How what crosses between clusters is encoded in calls with blocks of `block` elements.
  [[nodiscard]] Encoding encoding_for(const Signature& signature, uint64_t block) const;
  /// How many seconds a call with blocks of `block` elements is expected to take, untuned.
  [[nodiscard]] double predict(const Signature& signature, uint64_t block);
  /// The settings to search for calls like this.
  [[nodiscard]] tune::Space space(const Signature& signature, uint64_t block,
                                  const tune::Limits& limits);
  /// How many plans were made.
  [[nodiscard]] uint64_t made() const { return made_; }

 private:
  [[nodiscard]] bool links_are_slow() const;
  Result<PlannedProgram*> find_or_make(const plan::Spec& spec);

  const int rank_;
  const topology::Topology& topology_;
  const Config& config_;
  const Encoding wire_, wire_gather_;
  tune::Chooser chooser_;
  std::map<plan::Spec, std::unique_ptr<PlannedProgram>> programs_;
  uint64_t made_ = 0;
  Signature last_signature_;  // of the last call
  uint64_t last_round_ = 0;
  Chosen last_;
};

}  // namespace hetccl::comm
