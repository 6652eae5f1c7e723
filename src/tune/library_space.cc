#include "tune/library_space.h"

#include <algorithm>
#include <bit>
#include <optional>

namespace hetccl::tune {
namespace {

constexpr uint64_t kBytesOfChannel = uint64_t{256} << 10U;  // start of the search
constexpr uint64_t kMostStart = 16;
// Protocol ll sends twice the bytes to save latency that larger calls do not notice: over sockets,
// 32 MiB took eight times as long.
constexpr uint64_t kMostOfLl = uint64_t{4} << 20U;

// The most promising come first.
constexpr std::array kAlgorithms = {Tactic::kRing,        Tactic::kNvls, Tactic::kTree,
                                    Tactic::kNvlsTree,    Tactic::kPat,  Tactic::kCollnetDirect,
                                    Tactic::kCollnetChain};
constexpr std::array kProtocols = {Tactic::kSimple, Tactic::kLl128, Tactic::kLl};

std::optional<LibraryCall> call_of(Collective collective) {
  switch (collective) {
    case Collective::Broadcast:
      return LibraryCall::Broadcast;
    case Collective::Reduce:
      return LibraryCall::Reduce;
    case Collective::AllGather:
      return LibraryCall::AllGather;
    case Collective::ReduceScatter:
      return LibraryCall::ReduceScatter;
    case Collective::AllReduce:
      return LibraryCall::AllReduce;
    default:
      return std::nullopt;
  }
}

}  // namespace

Axis channels_axis() {
  return {Parameter::NcclChannels, {1, 2, 4, 8, 16, 32}};
}

uint16_t usual_channels(uint64_t bytes) {
  const uint64_t channels = std::clamp<uint64_t>(bytes / kBytesOfChannel, 1, kMostStart);
  return static_cast<uint16_t>(std::bit_floor(channels));
}

Subspace library_subspace(int algorithm, int protocol, uint64_t bytes) {
  plan::Resources resources;
  resources.tactic.algorithm = static_cast<uint8_t>(algorithm + 1);
  resources.tactic.protocol = static_cast<uint8_t>(protocol + 1);
  if (!takes_channels(algorithm)) return {vendor_setting(resources), {}};
  resources.tactic.channels = usual_channels(bytes);
  return {vendor_setting(resources), {channels_axis()}};
}

Status check(const Tactic& tactic, Collective collective, bool alone, const Tactics& tactics) {
  if (tactic == Tactic{}) return {};
  if (tactics.empty()) {
    return error(
        ErrorCode::InvalidArgument,
        "nccl_*: the libraries of this job's clusters cannot be told. It takes NCCL 2.22 or "
        "newer in every cluster of GPUs, HETCCL_TUNE=online, step or frozen, no "
        "NCCL_TUNER_PLUGIN of your own, no NCCL communicator before hetccl's first, and "
        "not NCCL_COMM_BLOCKING=0");
  }
  const int algorithm = tactic.algorithm - 1, protocol = tactic.protocol - 1;
  if ((algorithm < 0) != (protocol < 0))
    return error(ErrorCode::InvalidArgument, "nccl_algorithm and nccl_protocol go together");
  if (algorithm < 0) return {};
  if (!alone) {
    return error(ErrorCode::InvalidArgument,
                 "nccl_algorithm and nccl_protocol are for jobs of one cluster: between clusters a "
                 "collective takes several calls of the library, which differ in what they can");
  }
  const auto call = call_of(collective);
  if (!call || !tactics.has(*call, algorithm, protocol)) {
    return error(ErrorCode::InvalidArgument,
                 "nccl_algorithm and nccl_protocol: the library cannot run this collective so");
  }
  if (tactic.channels > 0 && !takes_channels(algorithm))
    return error(ErrorCode::InvalidArgument, "nccl_channels goes with tree, ring and pat alone");
  return {};
}

Space library_space(Collective collective, uint64_t bytes, const Tactics& tactics, bool keep_bits) {
  const auto call = call_of(collective);
  if (!call || tactics.empty()) return {};
  Space space{{vendor_setting({}), {}}};
  if (keep_bits && reduces(collective)) return space;
  for (const int algorithm : kAlgorithms)
    for (const int protocol : kProtocols)
      if (tactics.has(*call, algorithm, protocol) &&
          (protocol != Tactic::kLl || bytes <= kMostOfLl))
        space.push_back(library_subspace(algorithm, protocol, bytes));
  return space;
}

}  // namespace hetccl::tune
