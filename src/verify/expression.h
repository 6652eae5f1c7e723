// Hash-consed expression trees: what a cell of memory holds, symbolically. Equal numbers mean the
// same expression over the same inputs, evaluated in the same place or by the same kernel.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace hetccl::verify {

using NodeId = uint32_t;

class Expressions {
 public:
  /// Memory that nobody has written.
  static constexpr NodeId kUndefined = 0;

  explicit Expressions(int n_ranks);

  /// Block `block` of `rank`'s input.
  NodeId input(int rank, uint32_t block);
  /// `node`, which must be `rank`'s own input and no more, times that rank's factor.
  NodeId scaled(int rank, NodeId node);
  /// The operands' reduction, in order. `place` tells apart what may be evaluated differently:
  /// kernels reduce alike everywhere (place 0), each vendor call in its own way. All operands are
  /// scaled, or none. Empty `fault()` on success.
  NodeId reduce(uint32_t place, bool average, const std::vector<NodeId>& operands);
  /// `node` as an encoding's bytes, rounded once more; and what such bytes stand for. Ranks encode
  /// differently: by random, or with a residual of their own.
  NodeId encoded(int rank, NodeId node);
  NodeId decoded(NodeId node);
  /// Why a reduction, if any, was wrong.
  [[nodiscard]] const std::string& fault() const { return fault_; }

  /// Is it the reduction of every rank's block `block`, once each?
  [[nodiscard]] bool is_complete(NodeId node, uint32_t block) const;
  [[nodiscard]] bool is_average(NodeId node) const { return nodes_[node].average; }
  [[nodiscard]] bool is_scaled(NodeId node) const { return nodes_[node].scaled; }
  [[nodiscard]] bool is_encoded(NodeId node) const { return nodes_[node].encoded; }
  /// How often a contribution to it was rounded by an encoding, at most.
  [[nodiscard]] uint32_t roundings(NodeId node) const { return nodes_[node].roundings; }

 private:
  struct Node {
    uint32_t block = 0;
    bool average = false;
    bool scaled = false;
    bool encoded = false;
    uint32_t roundings = 0;
  };
  NodeId converted(std::vector<uint32_t> key, NodeId node, bool to_encoded);
  [[nodiscard]] uint64_t* ranks_of(NodeId node) { return &ranks_[node * words_]; }
  NodeId add(Node node);
  [[nodiscard]] bool holds_all(NodeId node) const;
  void add_operand(NodeId node, NodeId operand);

  size_t n_ranks_, words_;
  std::vector<Node> nodes_;
  std::vector<uint64_t> ranks_;  // per node a set of contributing ranks, as bits
  std::map<std::vector<uint32_t>, NodeId> known_;
  std::string fault_;
};

}  // namespace hetccl::verify
