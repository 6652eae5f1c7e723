// Converts NCCL's calls to the keys of hetccl's tuner, and names the place where their settings are
// kept.
#pragma once

#include <optional>
#include <string_view>

#include "tune/knowledge.h"

namespace hetccl::nccl_tuner {

struct TunedCall {
  tune::Key key;
  uint64_t bytes = 0;  ///< of a block
  /// Equal for equal calls.
  [[nodiscard]] uint64_t number() const;
};
/// Returns nothing for a function that is not tuned. `bytes` counts as NCCL does: all blocks of an
/// all-gather together. NCCL passes neither type nor root, so the key has elements of one byte and
/// a root in cluster 0.
[[nodiscard]] std::optional<TunedCall> call_of(int function, uint64_t bytes, uint64_t n_ranks);

/// Prefix of these fingerprints' summaries.
inline constexpr std::string_view kSummaryPrefix = "nccl: ";
/// Fingerprint under which the settings of NCCL's communicators are kept in HETCCL_TUNE_FILE. It is
/// made only of facts that NCCL gives to all ranks alike, since all must find the same entries.
[[nodiscard]] tune::Fingerprint fingerprint_of(uint64_t n_ranks, uint64_t n_nodes);

}  // namespace hetccl::nccl_tuner
