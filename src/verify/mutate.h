// Mutants of Code: each has one mistake, which the verifier must reject.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "verify/problem.h"

namespace hetccl::verify {

struct Mutant {
  enum class Kind : uint8_t {
    Remove,    ///< an instruction that takes no time: a wait, a signal, a credit, a turn, the
               ///< call's end
    Forget,    ///< drops the signal of a message's completion
    Swap,      ///< swaps an instruction with the next of its queue, if their order matters
    Shift,     ///< makes a wait wait for the previous slice
    Misplace,  ///< moves an operand to the next block of scratch
  };
  Kind kind{};
  int rank = 0;
  uint32_t index = 0;    ///< of the instruction
  uint32_t operand = 0;  ///< Misplace: index of the source; sources.size(): destination
  uint32_t next = 0;     ///< Swap: index of the other instruction
};

/// Lists all mutants. Neighbours of a queue are swapped only if their order matters.
[[nodiscard]] std::vector<Mutant> find_mutants(const Codes& codes);
[[nodiscard]] lower::Code mutate(const lower::Code& code, const Mutant& mutant);
/// "rank 0: without instruction 7 (wait, step 2, queue work)".
[[nodiscard]] std::string describe(const Codes& codes, const Mutant& mutant);

/// The verifier's verdict on mutants.
struct MutationReport {
  uint64_t made = 0, rejected = 0;
  std::vector<std::string> survivors{};  ///< at most kMostSurvivors
  static constexpr size_t kMostSurvivors = 100;
};
/// Checks `n` mutants chosen at random with `seed`, or all if there are fewer.
MutationReport try_mutants(const Problem& problem, const Codes& codes, uint64_t n, uint64_t seed);

}  // namespace hetccl::verify
