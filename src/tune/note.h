// Notes by which all ranks change a setting at the same call.
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
  /// 0: replaces the setting. Otherwise it is tried in that many calls of the key. They are cut
  /// into phases; some (`tries_candidate`) use this setting, the others the standing one.
  uint32_t calls = 0;
  /// Calls in a phase. Must divide `calls`.
  uint32_t phase = 1;
  /// After every two phases, 1 to 3 calls with the standing setting follow that do not count.
  /// Otherwise a program whose step has as many calls as some phases would try each setting at
  /// fixed places of the step, whose calls take different times.
  bool rests = false;
  bool operator==(const Change&) const = default;
};

/// Returns whether that phase of a trial, counted from 0, uses the candidate. It goes first in
/// every second pair, so that after-effects of a phase hit both settings.
[[nodiscard]] constexpr bool tries_candidate(size_t phase) {
  return phase % 4 == 1 || phase % 4 == 2;
}

/// Rank 0 to all: from collective number `from` on, these changes hold.
struct Proposal {
  uint64_t round = 0;  ///< 1, 2, …; only one at a time is open
  uint64_t from = 0;
  std::vector<Change> changes;
  bool operator==(const Proposal&) const = default;
};
/// The answer. Yes: this rank has not called `from` yet, and, if that call's key changes, will wait
/// there for the verdict.
struct Vote {
  uint64_t round = 0;
  bool yes = false;
};
/// Rank 0 to all: whether every rank voted yes.
struct Verdict {
  uint64_t round = 0;
  bool commit = false;
};
/// To rank 0: asks for the verdict. Rank 0 cancels a round that is still open.
struct Doubt {
  uint64_t round = 0;
};
/// To rank 0: for each phase of a trial, in order, this rank's mean time of all calls but the
/// first, or by steps the time of the whole phase.
struct Samples {
  uint64_t round = 0;
  uint32_t change = 0;  ///< index in the proposal
  std::vector<double> us;
};
using Note = std::variant<Proposal, Vote, Verdict, Doubt, Samples>;

inline constexpr size_t kMostChanges = 16;
inline constexpr uint32_t kMostCalls = 4096;  ///< of a trial
inline constexpr uint32_t kMostPhases = 64;   ///< of a trial

/// Returns at most 16 KiB.
[[nodiscard]] std::vector<uint8_t> encode(const Note& note);
/// Returns nothing if the bytes are no note.
[[nodiscard]] std::optional<Note> decode(std::span<const uint8_t> bytes);

}  // namespace hetccl::tune
