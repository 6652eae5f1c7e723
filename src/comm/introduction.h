// The knowledge that a communicator's ranks share after they exchanged cards. Made once per
// process: a thousand ranks as threads parse a thousand cards, not a million.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/card.h"
#include "topology/topology.h"

namespace hetccl::comm {

struct Introduction {
  topology::Topology topology;
  std::vector<std::map<std::string, transport::Address>> addresses;  ///< by rank, then by transport
  std::vector<std::string> cores;                                    ///< by rank: Card::cores

  /// The number of ranks on one rank's host, itself included (`all`), and how many of these may use
  /// the same cores (`bound`).
  struct Sharers {
    int all = 0, bound = 0;
  };
  [[nodiscard]] Sharers sharers(int rank) const;
};

/// Thread-safe.
class Introductions {
 public:
  explicit Introductions(topology::AdaptorTraits traits = {}) : traits_(std::move(traits)) {}
  /// Decodes `encoded`, the cards by rank, which are the same for all ranks of `communicator` (a
  /// number that is unique in the process). The first caller decodes; others wait and share its
  /// result. Returns RemoteError naming a rank whose card is malformed, or InvalidUsage if ranks
  /// disagree.
  Result<std::shared_ptr<const Introduction>> read(
      uint64_t communicator, const std::vector<std::vector<uint8_t>>& encoded);

 private:
  struct Entry {
    std::mutex mutex;  // held while the cards are decoded
    std::optional<Introduction> made;
  };
  const topology::AdaptorTraits traits_;
  std::mutex mutex_;
  std::map<uint64_t, std::weak_ptr<Entry>> entries_;
};

}  // namespace hetccl::comm
