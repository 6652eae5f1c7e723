// Hash-consed expression trees: the symbolic contents of memory cells. Equal numbers mean equal
// expressions over the same inputs, evaluated in the same place or by the same kernel.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace hetccl::verify {

using NodeId = uint32_t;

class Expressions {
 public:
  /// Memory that was never written.
  static constexpr NodeId kUndefined = 0;

  explicit Expressions(int n_ranks);

  /// Block `block` of `rank`'s input.
  NodeId input(int rank, uint32_t block);
  /// `node` times `rank`'s factor. `node` must be `rank`'s own input.
  NodeId scaled(int rank, NodeId node);
  /// The reduction of the operands, in order. `place` separates evaluations that may differ in
  /// bits: kernels reduce alike everywhere (place 0), each vendor call in its own way. Either all
  /// operands are scaled or none. On success `fault()` stays empty.
  NodeId reduce(uint32_t place, bool average, const std::vector<NodeId>& operands);
  /// `node` encoded, which rounds it once more; and the value that an encoded node stands for. Each
  /// rank encodes differently: at random, or with its own residual.
  NodeId encoded(int rank, NodeId node);
  NodeId decoded(NodeId node);
  /// The first mistake in a reduction; empty if none.
  [[nodiscard]] const std::string& fault() const { return fault_; }

  /// Whether `node` reduces every rank's block `block` exactly once.
  [[nodiscard]] bool is_complete(NodeId node, uint32_t block) const;
  [[nodiscard]] bool is_average(NodeId node) const { return nodes_[node].average; }
  [[nodiscard]] bool is_scaled(NodeId node) const { return nodes_[node].scaled; }
  [[nodiscard]] bool is_encoded(NodeId node) const { return nodes_[node].encoded; }
  /// Most times that an encoding has rounded a contribution to `node`.
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
  std::vector<uint64_t> ranks_;  // by node: the set of contributing ranks, as bits
  std::map<std::vector<uint32_t>, NodeId> known_;
  std::string fault_;
};

}  // namespace hetccl::verify
