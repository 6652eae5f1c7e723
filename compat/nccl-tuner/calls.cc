#include "nccl-tuner/calls.h"

#include <algorithm>

#include "ccl/nccl/tuner_abi.h"

namespace hetccl::nccl_tuner {
namespace {

std::optional<Collective> collective_of(int function) {
  switch (function) {
    case kBroadcast:
      return Collective::Broadcast;
    case kReduce:
      return Collective::Reduce;
    case kAllGather:
      return Collective::AllGather;
    case kReduceScatter:
      return Collective::ReduceScatter;
    case kAllReduce:
      return Collective::AllReduce;
    default:
      return std::nullopt;
  }
}

}  // namespace

uint64_t TunedCall::number() const {
  return bytes * 16 + static_cast<uint64_t>(key.collective);
}

std::optional<TunedCall> call_of(int function, uint64_t bytes, uint64_t n_ranks) {
  const auto collective = collective_of(function);
  if (!collective) return std::nullopt;
  const bool blocks =
      *collective == Collective::AllGather || *collective == Collective::ReduceScatter;
  TunedCall call{{*collective}, blocks ? bytes / std::max<uint64_t>(n_ranks, 1) : bytes};
  call.key.size_class = tune::size_class_of(call.bytes);
  if (reduces(*collective)) call.key.element_bytes = 1;
  if (is_rooted(*collective)) call.key.root_cluster = 0;
  return call;
}

tune::Fingerprint fingerprint_of(uint64_t n_ranks, uint64_t n_nodes) {
  const std::string text =
      format("nccl: %llu ranks on %llu nodes", static_cast<unsigned long long>(n_ranks),
             static_cast<unsigned long long>(n_nodes));
  return {tune::digest_of(text), text};
}

}  // namespace hetccl::nccl_tuner
