#include "verify/expression.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace hetccl::verify {
namespace {

// First word of a key: the kind of node.
constexpr uint32_t kInput = 0, kReduction = 1, kScaled = 2, kEncoded = 3, kDecoded = 4;

}  // namespace

Expressions::Expressions(int n_ranks)
    : n_ranks_(static_cast<size_t>(n_ranks)), words_((n_ranks_ + 63) / 64) {
  nodes_.emplace_back();  // kUndefined
  ranks_.resize(words_, 0);
}

NodeId Expressions::input(int rank, uint32_t block) {
  const auto r = static_cast<uint32_t>(rank);
  const auto next = static_cast<NodeId>(nodes_.size());
  const auto [entry, is_new] = known_.try_emplace({kInput, r, block}, next);
  if (is_new) {
    add({.block = block});
    ranks_of(next)[r / 64] |= uint64_t{1} << (r % 64);
  }
  return entry->second;
}

NodeId Expressions::scaled(int rank, NodeId node) {
  const auto next = static_cast<NodeId>(nodes_.size());
  const auto [entry, is_new] =
      known_.try_emplace({kScaled, static_cast<uint32_t>(rank), node}, next);
  if (!is_new) return entry->second;
  const uint32_t block = nodes_[node].block;
  if (fault_.empty() && nodes_[node].scaled) fault_ = "multiplies by a factor twice";
  const auto raw = known_.find({kInput, static_cast<uint32_t>(rank), block});
  if (fault_.empty() && (raw == known_.end() || raw->second != node)) {
    fault_ = format("multiplies what is not its own input by rank %d's factor", rank);
  }
  add({.block = block, .scaled = true});
  std::copy_n(ranks_of(node), words_, ranks_of(next));
  return next;
}

NodeId Expressions::encoded(int rank, NodeId node) {
  return converted({kEncoded, static_cast<uint32_t>(rank), node}, node, true);
}

NodeId Expressions::decoded(NodeId node) {
  return converted({kDecoded, node}, node, false);
}

NodeId Expressions::converted(std::vector<uint32_t> key, NodeId node, bool to_encoded) {
  const auto next = static_cast<NodeId>(nodes_.size());
  const auto [entry, is_new] = known_.try_emplace(std::move(key), next);
  if (!is_new) return entry->second;
  Node made = nodes_[node];
  made.encoded = to_encoded;
  if (to_encoded) ++made.roundings;
  add(made);
  std::copy_n(ranks_of(node), words_, ranks_of(next));
  return next;
}

NodeId Expressions::add(Node node) {
  nodes_.push_back(node);
  ranks_.resize(ranks_.size() + words_, 0);
  return static_cast<NodeId>(nodes_.size() - 1);
}

NodeId Expressions::reduce(uint32_t place, bool average, const std::vector<NodeId>& operands) {
  // With one source a kernel copies, or converts.
  if (place == 0 && operands.size() == 1 && !average) return operands[0];
  std::vector<uint32_t> key = {kReduction, place, average ? 1U : 0U};
  key.insert(key.end(), operands.begin(), operands.end());
  const auto next = static_cast<NodeId>(nodes_.size());
  const auto [entry, is_new] = known_.try_emplace(std::move(key), next);
  if (!is_new) return entry->second;
  const Node& first = nodes_[operands[0]];
  add({first.block, average, first.scaled});
  for (NodeId operand : operands) add_operand(next, operand);
  if (average && !holds_all(next) && fault_.empty()) {
    fault_ = "averages what is not yet the sum of all ranks";
  }
  return next;
}

void Expressions::add_operand(NodeId node, NodeId operand) {
  if (!fault_.empty()) return;
  if (operand == kUndefined) fault_ = "reduces memory that nobody has written";
  if (nodes_[operand].encoded) fault_ = "adds encoded data as if they were numbers";
  nodes_[node].roundings = std::max(nodes_[node].roundings, nodes_[operand].roundings);
  if (nodes_[operand].average) fault_ = "reduces what is an average already";
  if (nodes_[operand].scaled != nodes_[node].scaled) {
    fault_ = "adds what was multiplied by its factor to what was not";
  }
  if (nodes_[operand].block != nodes_[node].block) {
    fault_ = format("reduces block %u together with block %u", nodes_[node].block,
                    nodes_[operand].block);
  }
  for (size_t w = 0; w < words_; ++w) {
    const uint64_t added = ranks_of(operand)[w];
    const uint64_t twice = ranks_of(node)[w] & added;
    if (twice != 0) {
      const size_t rank = w * 64 + static_cast<size_t>(__builtin_ctzll(twice));
      fault_ = format("adds the contribution of rank %zu twice", rank);
    }
    ranks_of(node)[w] |= added;
  }
}

bool Expressions::holds_all(NodeId node) const {
  size_t n = 0;
  for (size_t w = 0; w < words_; ++w) {
    n += static_cast<size_t>(__builtin_popcountll(ranks_[node * words_ + w]));
  }
  return n == n_ranks_;
}

bool Expressions::is_complete(NodeId node, uint32_t block) const {
  return node != kUndefined && nodes_[node].block == block && holds_all(node);
}

}  // namespace hetccl::verify
