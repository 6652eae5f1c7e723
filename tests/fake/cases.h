// Random collectives over random layouts, with inputs whose result is exact in every type, so that
// any order of evaluation must give the same bits.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "base/types.h"
#include "fake/sample.h"
#include "topology/topology.h"

namespace hetccl::fake {

struct Case {
  Signature signature;
  bool in_place = false;
  std::vector<std::string> labels;  ///< the cluster of each rank
  uint64_t seed = 0;                ///< of the blocks' lengths if they are uneven
  uint64_t max_count = 0;           ///< of one such block

  [[nodiscard]] int n_ranks() const { return static_cast<int>(labels.size()); }
  [[nodiscard]] std::string text() const;
};

/// Labels of `n_ranks` ranks in 1 to `max_clusters` clusters, in random order.
std::vector<std::string> random_labels(std::mt19937_64& random, int max_ranks, int max_clusters);
/// A collective over `labels`.
Case random_case(std::mt19937_64& random, std::vector<std::string> labels, uint64_t max_count);
/// Infos that the ranks of `labels` would publish on one host, where some are far from any network
/// card.
std::vector<topology::RankInfo> infos_of(const std::vector<std::string>& labels);

/// Returns how many elements go from `from` to `to`; for reductions, the length of `to`'s part.
uint64_t block_length(const Case& test, int from, int to);
/// The lengths of the blocks that `rank` passes and gets, one after the other in its buffers.
std::vector<uint64_t> send_counts(const Case& test, int rank);
std::vector<uint64_t> recv_counts(const Case& test, int rank);
/// Offsets of contiguous blocks of these lengths.
std::vector<uint64_t> packed(const std::vector<uint64_t>& counts);
/// Elements of a rank's buffers, and where its own block begins in each.
size_t send_elements(const Case& test, int rank);
size_t recv_elements(const Case& test, int rank);
/// Offsets of the two buffers, in elements, if they share memory.
struct InPlace {
  size_t send = 0, recv = 0;
};
InPlace in_place(const Case& test, int rank);
/// Does `rank` get a result?
bool receives(const Case& test, int rank);
/// Factor of `rank` in a PreMulSum.
Factor factor_of(const Case& test, int rank);
/// Small integers (of the signature's type) for one rank.
std::vector<std::byte> input_of(const Case& test, int rank);
/// Expected output of `rank`, given all inputs; empty if it receives nothing.
std::vector<std::byte> expected_of(const Case& test, int rank,
                                   const std::vector<std::vector<std::byte>>& inputs);

}  // namespace hetccl::fake
