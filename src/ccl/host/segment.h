// The memory that the ranks of a host cluster share: a few data slots and monotonic counters for
// each rank. Each word has one writer, except where ranks wake each other.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/shared_memory.h"
#include "base/status.h"
#include "base/types.h"
#include "base/waker.h"
#include "ccl/ccl.h"

namespace hetccl::ccl::host {

inline constexpr int kMaxRanks = 1024;
/// The number of chunks in flight per rank, which is its number of slots.
inline constexpr uint64_t kDepth = 4;
inline constexpr size_t kPairOfLines = 128;  ///< cache lines that are fetched together

enum class Kind : uint8_t { AllReduce, Reduce, Broadcast, Barrier, Exchange };

/// A rank's call.
struct Called {
  uint64_t sequence = 0;
  uint64_t number = 0;    ///< of the caller's operation (Communicator::number_calls)
  uint64_t count = 0;     ///< elements of all shards; exchange: elements that this rank sends
  uint64_t digest = 0;    ///< of every shard's root, receiver and count
  uint32_t n_shards = 0;  ///< exchange: this rank's transfers
  Kind kind{};
  DataType type{};
  RedOp op{};
  bool operator==(const Called&) const = default;
};

/// Returns whether two ranks may make these calls together. In an exchange each rank has its own
/// messages.
bool agree(const Called& one, const Called& other);

/// Published with the call's first chunk: the part that all ranks compare, and the rank's own part.
struct alignas(64) CallDescriptor {
  Called call;
  Factor factor;          ///< for PreMulSum
  uint64_t n_chunks = 0;  ///< exchange: chunks that this rank's messages need
  uint64_t balance = 0;   ///< exchange: see Exchange::balance
};

/// Returns "all_reduce of 5 float32, sum".
std::string describe(const Called& call);

/// A counter of finished chunks, on its own cache line.
struct alignas(64) Counter {
  std::atomic<uint64_t> value;
};

/// One rank's words. Chunks are numbered through the communicator's life, the same on all ranks.
struct RankControl {
  Counter contributed;                         ///< its slots hold its part of these chunks
  Counter reduced;                             ///< it has read its inputs from the others' slots
  Counter gathered;                            ///< it will read nothing more of these chunks
  alignas(64) std::atomic<uint32_t> sleeping;  ///< it waits in poll(2): ring its waker
  alignas(64) std::atomic<uint32_t> joined;    ///< steps of the rendezvous that it has done
  std::atomic<uint32_t> claimed;               ///< a thread joins as this rank
  std::atomic<uint32_t> unwakeable;            ///< a peer could not open its waker
  WakerAddress waker;
};

/// The layout of the memory, the same on all ranks.
struct Geometry {
  int n_ranks = 1;
  int threads = 1;  ///< threads with which ranks copy and reduce; they pay off on long chunks
  /// Returns the payload bytes of a slot.
  [[nodiscard]] size_t slot_bytes() const;
  [[nodiscard]] size_t total_bytes() const;
};

/// Gives access to the shared bytes. Move-only.
class Segment {
 public:
  Segment() = default;
  /// `memory` must be `geometry.total_bytes()` long.
  Segment(SharedMemory memory, const Geometry& geometry);

  [[nodiscard]] const Geometry& geometry() const { return geometry_; }
  [[nodiscard]] int n_ranks() const { return geometry_.n_ranks; }
  [[nodiscard]] RankControl& control(int rank) const;
  [[nodiscard]] CallDescriptor& descriptor(int rank, uint64_t chunk) const;
  /// Returns a slot: `slot_bytes` of payload, 64-byte aligned.
  [[nodiscard]] std::byte* slot(int rank, uint64_t chunk) const;

  /// Records the cluster's first failure, with the ranks that disagree if it is about that. Ignores
  /// later failures.
  void fail(const Status& status, const std::optional<Disagreement>& between = {}) const;
  [[nodiscard]] bool failed() const;
  /// Returns the recorded failure; ok: none.
  [[nodiscard]] Status failure() const;
  /// Returns the ranks that disagree, if the recorded failure is about that.
  [[nodiscard]] std::optional<Disagreement> disagreement() const;

  void close_descriptor() { memory_.close_descriptor(); }

 private:
  struct FailureRecord;
  [[nodiscard]] FailureRecord& record() const;
  [[nodiscard]] std::byte* slot_base(int rank, uint64_t chunk) const;

  SharedMemory memory_;
  Geometry geometry_;
  size_t slots_offset_ = 0;
  size_t slot_stride_ = 0;
};

}  // namespace hetccl::ccl::host
