// Makes each plan of a communicator's collectives once, and keeps it.
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

/// A plan that is ready to run.
struct PlannedProgram {
  exec::Program exec;
  uint64_t least_bytes = 0;  ///< crossing between clusters, per byte of the call's count
  bool reached = false;      ///< its peers are connected or being connected
};

/// Used by threads that launch, under the communicator's launch mutex.
class Programs {
 public:
  /// The program and setting of one call.
  struct Chosen {
    PlannedProgram* program = nullptr;
    plan::Choice choice;
    plan::Resources resources;
  };

  /// Makes programs for `rank`. The topology and the configuration must outlive it; `measured` is
  /// of all ranks.
  Programs(int rank, const topology::Topology& topology,
           const std::vector<topology::Measurement>& measured, const Config& config)
      : rank_(rank),
        topology_(topology),
        config_(config),
        wire_(parse_encoding(config.wire).value()),
        wire_gather_(parse_encoding(config.wire_gather).value()),
        chooser_(topology, measured, config.deterministic) {}

  /// Returns the program for a call with blocks of `block` elements, with the `tuned` setting if
  /// there is one. Calls of the same key and tuning round share a program, which stays valid while
  /// this lives.
  Result<Chosen> choose(const Signature& signature, uint64_t block,
                        const std::optional<tune::Setting>& tuned = {}, uint64_t round = 0);
  /// Returns InvalidArgument if the setting's algorithm has no plan for `key`, or if it asks the
  /// vendors' libraries for tactics that they do not accept.
  [[nodiscard]] Status check(const tune::Key& key, const tune::Setting& setting,
                             const Tactics& tactics) const;
  /// Returns the encoding of data between clusters for calls with blocks of `block` elements.
  [[nodiscard]] Encoding encoding_for(const Signature& signature, uint64_t block) const;
  /// Returns the expected seconds of an untuned call with blocks of `block` elements.
  [[nodiscard]] double predict(const Signature& signature, uint64_t block);
  /// Returns the settings to search for such a call.
  [[nodiscard]] tune::Space space(const Signature& signature, uint64_t block,
                                  const tune::Limits& limits);
  /// Returns the number of plans made.
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
