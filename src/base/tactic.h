// How a vendor's library runs a collective, for libraries whose caller may choose that.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace hetccl {

/// The collectives of NCCL and RCCL, with their numbers (ncclFunc_t).
enum class LibraryCall : uint8_t { Broadcast, Reduce, AllGather, ReduceScatter, AllReduce };
inline constexpr size_t kLibraryCalls = 5;

/// A request to the library for one call. All ranks of its communicator make the same one.
struct Tactic {
  /// NCCL_ALGO_*; NCCL before 2.23 and RCCL have no PAT.
  enum Algorithm : int { kTree, kRing, kCollnetDirect, kCollnetChain, kNvls, kNvlsTree, kPat };
  /// NCCL_PROTO_*.
  enum Protocol : int { kLl, kLl128, kSimple };
  static constexpr int kAlgorithms = 7, kProtocols = 3;

  uint8_t algorithm = 0;  ///< 1 + NCCL's number; 0: the library's choice
  uint8_t protocol = 0;   ///< likewise
  uint16_t channels = 0;  ///< maximum; 0: the library's choice
  bool operator==(const Tactic&) const = default;
};

/// Returns whether the library limits requested channels to those of the communicator. With
/// CollNet's algorithms, and NVLS's over several nodes, it does not.
inline bool takes_channels(int algorithm) {
  return algorithm == Tactic::kTree || algorithm == Tactic::kRing || algorithm == Tactic::kPat;
}

/// The pairs of algorithm and protocol that a caller may choose for a library's communicator.
class Tactics {
 public:
  /// Takes any of NCCL's numbers and ignores unknown ones.
  void add(LibraryCall call, int algorithm, int protocol) {
    if (is_pair(algorithm, protocol)) bits_[index_of(call)] |= bit_of(algorithm, protocol);
  }
  [[nodiscard]] bool has(LibraryCall call, int algorithm, int protocol) const {
    return is_pair(algorithm, protocol) &&
           (bits_[index_of(call)] & bit_of(algorithm, protocol)) != 0;
  }
  /// Returns a digest of the costs that the library expects. Other links or settings give another
  /// digest.
  [[nodiscard]] uint64_t costs() const { return costs_; }
  void add_costs(uint64_t digest) { costs_ = (costs_ * kPrime) ^ digest; }
  [[nodiscard]] bool empty() const { return bits_ == Bits{}; }
  /// Keeps the pairs that both have.
  Tactics& operator&=(const Tactics& other) {
    for (size_t i = 0; i < kLibraryCalls; ++i) bits_[i] &= other.bits_[i];
    add_costs(other.costs_);
    return *this;
  }
  bool operator==(const Tactics&) const = default;

  /// By call: bit `algorithm * Tactic::kProtocols + protocol`.
  using Bits = std::array<uint32_t, kLibraryCalls>;
  Tactics() = default;
  explicit Tactics(const Bits& bits, uint64_t costs = 0) : bits_(bits), costs_(costs) {}
  [[nodiscard]] const Bits& bits() const { return bits_; }

 private:
  static bool is_pair(int algorithm, int protocol) {
    return algorithm >= 0 && algorithm < Tactic::kAlgorithms && protocol >= 0 &&
           protocol < Tactic::kProtocols;
  }
  static size_t index_of(LibraryCall call) { return static_cast<size_t>(call); }
  static uint32_t bit_of(int algorithm, int protocol) {
    return uint32_t{1} << static_cast<unsigned>(algorithm * Tactic::kProtocols + protocol);
  }

  static constexpr uint64_t kPrime = 1'099'511'628'211;

  Bits bits_{};
  uint64_t costs_ = 0;
};

}  // namespace hetccl
