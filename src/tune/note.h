// What ranks tell each other so that all change a setting at the same call.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "tune/key.h"
#include "tune/space.h"

namespace hetccl::tune {

/// One key's next setting.
struct Change {
  Key key;
  Setting setting;
  /// 0: it replaces the setting. Else it is tried beside it in so many calls of the key. They are
  /// cut into phases, some of which (`tries_candidate`) use this one, the others the setting that
  /// stands.
  uint32_t calls = 0;
  /// Calls in a phase. Divides `calls`.
  uint32_t phase = 1;
  /// After each two phases follow 1 to 3 calls with the setting that stands, which do not count. A
  /// program that repeats as many calls as some phases have would else try each setting at its own
  /// places of a step, where calls take different times.
  bool rests = false;
  bool operator==(const Change&) const = default;
};

/// Whether that phase of a trial, counted from 0, uses the candidate. Each second pair of phases
/// has it first, so that what a phase leaves to the next falls on both.
[[nodiscard]] constexpr bool tries_candidate(size_t phase) {
  return phase % 4 == 1 || phase % 4 == 2;
}

/// Rank 0 to all: from collective number `from` on, these changes are to hold.
struct Proposal {
  uint64_t round = 0;  ///< 1, 2, …: one at a time is open
  uint64_t from = 0;
  std::vector<Change> changes;
  bool operator==(const Proposal&) const = default;
};
/// The answer. Who says yes has not called `from` yet, and will not without the verdict, where that
/// call's key changes.
struct Vote {
  uint64_t round = 0;
  bool yes = false;
};
/// Rank 0 to all: whether everyone said yes.
struct Verdict {
  uint64_t round = 0;
  bool commit = false;
};
/// To rank 0: what is the verdict? A round that is still open is cancelled.
struct Doubt {
  uint64_t round = 0;
};
/// To rank 0: of each phase of a trial, in their order, how long a call took on this rank (the mean
/// of all but the first), or by steps the whole phase.
struct Samples {
  uint64_t round = 0;
  uint32_t change = 0;  ///< index in the proposal
  std::vector<double> us;
};
using Note = std::variant<Proposal, Vote, Verdict, Doubt, Samples>;

inline constexpr size_t kMostChanges = 16;
inline constexpr uint32_t kMostCalls = 4096;  ///< of a trial
inline constexpr uint32_t kMostPhases = 64;   ///< of a trial

/// At most 16 KiB.
[[nodiscard]] std::vector<uint8_t> encode(const Note& note);
/// Nothing where the bytes are no note.
[[nodiscard]] std::optional<Note> decode(std::span<const uint8_t> bytes);

}  // namespace hetccl::tune
