// What the ranks of a communicator know of each other once they have exchanged their cards. Made
// once in a process: a thousand ranks as threads read a thousand cards, not a million.
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
  std::vector<std::map<std::string, transport::Address>> addresses;  ///< by rank; by transport
  std::vector<std::string> cores;                                    ///< by rank: Card::cores

  /// How many ranks are on the host of `rank`, itself included, and how many of them may use the
  /// same cores: others are bound to cores of their own.
  struct Sharers {
    int all = 0, bound = 0;
  };
  [[nodiscard]] Sharers sharers(int rank) const;
};

/// Thread-safe.
class Introductions {
 public:
  explicit Introductions(topology::AdaptorTraits traits = {}) : traits_(std::move(traits)) {}
  /// From `encoded`, the cards by rank, which are the same for all ranks of `communicator` (a
  /// number that no other has). The first that asks reads them, the others wait for it and share
  /// what it found. RemoteError naming a rank whose card is malformed, InvalidUsage where ranks
  /// disagree.
  Result<std::shared_ptr<const Introduction>> read(
      uint64_t communicator, const std::vector<std::vector<uint8_t>>& encoded);

 private:
  struct Entry {
    std::mutex mutex;  // held while the cards are read
    std::optional<Introduction> made;
  };
  const topology::AdaptorTraits traits_;
  std::mutex mutex_;
  std::map<uint64_t, std::weak_ptr<Entry>> entries_;
};

}  // namespace hetccl::comm
