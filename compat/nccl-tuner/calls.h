// NCCL's calls as hetccl's tuner knows calls: their keys, and where their settings are kept.
#pragma once

#include <optional>
#include <string_view>

#include "tune/knowledge.h"

namespace hetccl::nccl_tuner {

struct TunedCall {
  tune::Key key;
  uint64_t bytes = 0;  ///< of a block
  /// Alike for like calls.
  [[nodiscard]] uint64_t number() const;
};
/// Nothing for a function that is not tuned. `bytes`: as NCCL counts them, all blocks of an
/// all-gather together. NCCL tells neither type nor root: in the key elements have one byte, and
/// the root is in cluster 0.
[[nodiscard]] std::optional<TunedCall> call_of(int function, uint64_t bytes, uint64_t n_ranks);

/// The beginning of the summaries of these fingerprints.
inline constexpr std::string_view kSummaryPrefix = "nccl: ";
/// Under which settings of NCCL's own communicators are kept in HETCCL_TUNE_FILE: made of what NCCL
/// tells to all ranks alike, since all must find the same.
[[nodiscard]] tune::Fingerprint fingerprint_of(uint64_t n_ranks, uint64_t n_nodes);

}  // namespace hetccl::nccl_tuner
