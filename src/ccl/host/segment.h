// The memory that the ranks of a host cluster share: a few slots of data and a set of monotonic
// counters for each rank. Each word has one writer, except where ranks wake each other.
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
/// Chunks that a rank may have in flight: its slots.
inline constexpr uint64_t kDepth = 4;
inline constexpr size_t kPairOfLines = 128;  ///< which are fetched together

enum class Kind : uint8_t { AllReduce, Reduce, Broadcast, Barrier, Exchange };

/// What a rank called.
struct Called {
  uint64_t sequence = 0;
  uint64_t number = 0;    ///< of the caller's operation (Communicator::number_calls)
  uint64_t count = 0;     ///< elements of all shards; exchange: that this rank sends
  uint64_t digest = 0;    ///< of every shard's root, receiver and count
  uint32_t n_shards = 0;  ///< exchange: transfers of this rank
  Kind kind{};
  DataType type{};
  RedOp op{};
  bool operator==(const Called&) const = default;
};

/// Whether two ranks may have called these together. In an exchange each rank has messages of its
/// own.
bool agree(const Called& one, const Called& other);

/// Published with the call's first chunk: what every other rank compares, and what is the rank's
/// own.
struct alignas(64) CallDescriptor {
  Called call;
  Factor factor;          ///< of a PreMulSum
  uint64_t n_chunks = 0;  ///< exchange: that this rank's messages take
  uint64_t balance = 0;   ///< exchange: of its messages (Exchange::balance)
};

/// "all_reduce of 5 float32, sum".
std::string describe(const Called& call);

/// A counter of finished chunks, on a cache line of its own.
struct alignas(64) Counter {
  std::atomic<uint64_t> value;
};

/// One rank's words. Chunks are numbered through the communicator's life, the same on all ranks.
struct RankControl {
  Counter contributed;  ///< its slots hold its part of these chunks
  Counter reduced;      ///< it has read what it computes from the others' slots
  Counter gathered;     ///< it has read all that it ever will of these chunks
  alignas(64) std::atomic<uint32_t> sleeping;  ///< ring its waker: it waits in poll(2)
  alignas(64) std::atomic<uint32_t> joined;    ///< steps of the rendezvous that it has come through
  std::atomic<uint32_t> claimed;               ///< somebody joins as this rank
  std::atomic<uint32_t> unwakeable;            ///< a peer could not open its waker
  WakerAddress waker;
};

/// How the memory is divided: the same on all ranks.
struct Geometry {
  int n_ranks = 1;
  int threads = 1;  ///< with which ranks copy and reduce: they are worth their while on long chunks
  /// Of payload.
  [[nodiscard]] size_t slot_bytes() const;
  [[nodiscard]] size_t total_bytes() const;
};

/// Maps names onto the shared bytes. Move-only.
class Segment {
 public:
  Segment() = default;
  /// `memory` is `geometry.total_bytes()` long.
  Segment(SharedMemory memory, const Geometry& geometry);

  [[nodiscard]] const Geometry& geometry() const { return geometry_; }
  [[nodiscard]] int n_ranks() const { return geometry_.n_ranks; }
  [[nodiscard]] RankControl& control(int rank) const;
  [[nodiscard]] CallDescriptor& descriptor(int rank, uint64_t chunk) const;
  /// `slot_bytes` of payload, 64-byte aligned.
  [[nodiscard]] std::byte* slot(int rank, uint64_t chunk) const;

  /// Records the cluster's first failure, and the ranks that disagree where it is about that. Later
  /// failures are ignored.
  void fail(const Status& status, const std::optional<Disagreement>& between = {}) const;
  [[nodiscard]] bool failed() const;
  /// The recorded failure; ok while there is none.
  [[nodiscard]] Status failure() const;
  /// The ranks that disagree, where the recorded failure is about that.
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
