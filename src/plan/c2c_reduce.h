// c2cRed (paper 001): adds the parts that other clusters send to the cluster's own part. If the
// cluster's devices can reduce, or data is encoded, all parts land on the rank that holds the sum,
// and a Reduce step adds them there. Otherwise the vendor's reduce adds them: the parts land on
// ranks other than the holder, so that each rank contributes at most one array, and ranks without a
// part contribute the operator's identity. Both ways the same bytes cross between clusters.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "plan/builder.h"

namespace hetccl::plan {

class C2cReduce {
 public:
  /// A piece, and the global rank that holds its sum.
  struct Entry {
    int holder = -1;
    Piece piece;
  };
  /// The holder's view of an entry: its cluster's own part, complete after `ready`, and the region
  /// for the sum; without one the sum goes to scratch.
  struct Own {
    Region part;
    Deps ready;
    std::optional<Region> result{};
  };
  /// The sum of an entry, on its holder.
  struct Sum {
    Region region;
    Deps ready;
  };

  /// The sums are in `cluster`, which need not be this rank's. Each entry gets `n_arrivals` parts
  /// from other clusters.
  C2cReduce(Builder& b, int cluster, std::vector<Entry> entries, int n_arrivals = 1);
  /// The entries are those of a cut of `cluster`.
  C2cReduce(Builder& b, int cluster, const Cut& cut, int n_arrivals = 1);

  /// Returns the rank that receives the `nth` part of entry `at`.
  [[nodiscard]] int landing(size_t at, int nth = 0) const;
  /// On the landing rank: receives a message with a piece of a part.
  void receive(uint32_t message, int from, uint16_t stage, const Piece& piece, size_t at,
               int nth = 0);
  /// Adds up the entries. Called on every rank of the cluster, after all messages. The own part is
  /// source number `own_at`; `average` divides the sum. `own` and the result are indexed by entry.
  std::vector<Sum> add(uint16_t stage, size_t own_at, std::vector<Own> own, bool average);

 private:
  struct Arrival {
    Region box;
    Deps ready;
  };
  using Arrivals = std::map<std::pair<size_t, int>, Arrival>;  // by entry and part number

  [[nodiscard]] bool by_vendor() const;
  /// Local ranks where parts of entry `at` can land.
  [[nodiscard]] std::vector<int> others(size_t at) const;
  std::vector<Sum> add_by_kernels(uint16_t stage, size_t own_at, std::vector<Own> own,
                                  bool average);
  std::vector<Sum> add_by_vendor(uint16_t stage, std::vector<Own> own, bool average);
  /// Adds one call of the vendor's reduce, which adds each rank's next part of every entry that
  /// still lacks some.
  void add_round(uint16_t stage, int round, std::vector<Own>& own);

  Builder& b_;
  int cluster_;
  std::vector<Entry> entries_;
  int n_arrivals_;
  Arrivals arrivals_;  // the parts that land on this rank
};

}  // namespace hetccl::plan
