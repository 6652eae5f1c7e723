// Mutants of Code: each is one mistake, which the verifier is to reject.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "verify/problem.h"

namespace hetccl::verify {

struct Mutant {
  enum class Kind : uint8_t {
    Remove,    ///< of what takes no time: a wait, a signal, a credit, a turn, the call's end
    Forget,    ///< the signal of a message's completion
    Swap,      ///< an instruction with the next of its queue, where their order matters
    Shift,     ///< a wait is for the slice before the one it should be for
    Misplace,  ///< an operand is in the next block of scratch
  };
  Kind kind{};
  int rank = 0;
  uint32_t index = 0;    ///< of the instruction
  uint32_t operand = 0;  ///< Misplace: of its sources; one more: its destination
  uint32_t next = 0;     ///< Swap: the other instruction
};

/// All mutants. Two neighbours of a queue are swapped only if their order matters.
[[nodiscard]] std::vector<Mutant> find_mutants(const Codes& codes);
[[nodiscard]] lower::Code mutate(const lower::Code& code, const Mutant& mutant);
/// "rank 0: without instruction 7 (wait, step 2, queue work)".
[[nodiscard]] std::string describe(const Codes& codes, const Mutant& mutant);

/// What the verifier says of mutants.
struct MutationReport {
  uint64_t made = 0, rejected = 0;
  std::vector<std::string> survivors{};  ///< the first kMostSurvivors
  static constexpr size_t kMostSurvivors = 100;
};
/// Checks `n` mutants chosen by `seed`, or all if there are fewer.
MutationReport try_mutants(const Problem& problem, const Codes& codes, uint64_t n, uint64_t seed);

}  // namespace hetccl::verify
