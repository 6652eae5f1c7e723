// c2cRed: what other clusters send is added to what a cluster has itself. Where its devices can
// reduce, all of it lands on the rank that is to hold the sum, and a Reduce step adds it up there.
// Where they cannot, and nothing is encoded, the vendor's reduce does it: what arrives lands on
// other ranks than the holder, so that each contributes one array at most, and who has nothing
// contributes the operator's identity. Not a byte more crosses.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "plan/builder.h"

namespace hetccl::plan {

class C2cReduce {
 public:
  /// A piece, and the rank of the cluster that is to hold its sum.
  struct Entry {
    int holder = -1;
    Piece piece;
  };
  /// What the holder knows of an entry: its cluster's own part, complete after `ready`, and where
  /// the sum is to be; without a place it is scratch.
  struct Own {
    Region part;
    Deps ready;
    std::optional<Region> result{};
  };
  /// An entry's sum, where this rank holds it.
  struct Sum {
    Region region;
    Deps ready;
  };

  /// In `cluster`, which need not be this rank's. Each entry gets `n_arrivals` parts from others.
  C2cReduce(Builder& b, int cluster, std::vector<Entry> entries, int n_arrivals = 1);
  /// The entries of a cut of `cluster`.
  C2cReduce(Builder& b, int cluster, const Cut& cut, int n_arrivals = 1);

  /// The rank that gets the `nth` part of entry `at`.
  [[nodiscard]] int landing(size_t at, int nth = 0) const;
  /// A message with a piece of it, where this rank is that one.
  void receive(uint32_t message, int from, uint16_t stage, const Piece& piece, size_t at,
               int nth = 0);
  /// After all messages, on every rank of the cluster: adds up, the own part at place `own_at`
  /// among the others; `average` divides the sum. `own`, and what returns, is by entry.
  std::vector<Sum> add(uint16_t stage, size_t own_at, std::vector<Own> own, bool average);

 private:
  struct Arrival {
    Region box;
    Deps ready;
  };
  using Arrivals = std::map<std::pair<size_t, int>, Arrival>;  // by entry and number

  [[nodiscard]] bool by_vendor() const;
  /// Places in the cluster where parts of entry `at` can land.
  [[nodiscard]] std::vector<int> others(size_t at) const;
  std::vector<Sum> add_by_kernels(uint16_t stage, size_t own_at, std::vector<Own> own,
                                  bool average);
  std::vector<Sum> add_by_vendor(uint16_t stage, std::vector<Own> own, bool average);
  /// One call of the vendor's reduce: each rank's next part of every entry that still lacks some.
  void add_round(uint16_t stage, int round, std::vector<Own>& own);

  Builder& b_;
  int cluster_;
  std::vector<Entry> entries_;
  int n_arrivals_;
  Arrivals arrivals_;  // those on this rank
};

}  // namespace hetccl::plan
