#include "ccl/host/segment.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/divide.h"
#include "base/printable.h"

namespace hetccl::ccl::host {

namespace {

constexpr size_t kBytesOfThread = size_t{256} << 10;
// All slots of a rank are twice a core's cache of 1 MiB.
constexpr size_t kLeastBytes = size_t{512} << 10;
// Keeps a power of two from being cut into one piece more than there are slots.
constexpr size_t kRounding = 4096;
constexpr size_t kMaxSegmentBytes = size_t{64} << 20;
constexpr size_t kRecordBytes = 1024;

// Places a call's descriptor and a small message in one pair of lines.
size_t stride(const Geometry& geometry) {
  return round_up(sizeof(CallDescriptor) + geometry.slot_bytes(), kPairOfLines);
}

size_t slots_offset(int n_ranks) {
  return round_up(kRecordBytes + static_cast<size_t>(n_ranks) * sizeof(RankControl), 4096);
}

std::string_view kind_name(Kind kind) {
  switch (kind) {
    case Kind::AllReduce:
      return "all_reduce";
    case Kind::Reduce:
      return "reduce";
    case Kind::Broadcast:
      return "broadcast";
    case Kind::Barrier:
      return "barrier";
    case Kind::Exchange:
      return "exchange";
  }
  return "an unknown collective";
}

}  // namespace

// 0: empty, 1: being written, 2: readable.
struct Segment::FailureRecord {
  std::atomic<uint32_t> state;
  ErrorCode code;
  bool disagrees;
  Disagreement between;
  char text[kRecordBytes - 16 - sizeof(Disagreement)];
};

std::string describe(const Called& call) {
  std::string text = "call " + std::to_string(call.sequence) + ", ";
  text += kind_name(call.kind);
  if (call.kind == Kind::Barrier) return text;
  text += " of " + std::to_string(call.count) + " ";
  text += is_valid(call.type) ? name_of(call.type) : "unknown";
  if (call.kind == Kind::Exchange)
    return text + " in " + std::to_string(call.n_shards) + " transfers";
  if (call.kind != Kind::AllReduce) text += " in " + std::to_string(call.n_shards) + " shards";
  if (call.kind != Kind::Broadcast && is_valid(call.op)) {
    text += ", ";
    text += name_of(call.op);
  }
  return text;
}

bool agree(const Called& one, const Called& other) {
  if (one.kind != Kind::Exchange) return one == other;
  return one.kind == other.kind && one.sequence == other.sequence && one.number == other.number &&
         one.type == other.type;
}

size_t Geometry::slot_bytes() const {
  const size_t share = kMaxSegmentBytes / (static_cast<size_t>(n_ranks) * kDepth);
  const size_t wanted = std::max(kLeastBytes, kBytesOfThread * static_cast<size_t>(threads));
  const size_t bytes = std::min(wanted, share / kRounding * kRounding);
  return bytes + (bytes >= kBytesOfThread ? kRounding : 0);
}

size_t Geometry::total_bytes() const {
  return slots_offset(n_ranks) + static_cast<size_t>(n_ranks) * kDepth * stride(*this);
}

Segment::Segment(SharedMemory memory, const Geometry& geometry)
    : memory_(std::move(memory)),
      geometry_(geometry),
      slots_offset_(slots_offset(geometry.n_ranks)),
      slot_stride_(stride(geometry)) {
  static_assert(sizeof(FailureRecord) == kRecordBytes);
  static_assert(sizeof(CallDescriptor) == 64);
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
}

Segment::FailureRecord& Segment::record() const {
  return *reinterpret_cast<FailureRecord*>(memory_.data());
}

RankControl& Segment::control(int rank) const {
  return reinterpret_cast<RankControl*>(memory_.data() + kRecordBytes)[rank];
}

std::byte* Segment::slot_base(int rank, uint64_t chunk) const {
  const size_t index = static_cast<size_t>(rank) * kDepth + chunk % kDepth;
  return memory_.data() + slots_offset_ + index * slot_stride_;
}

CallDescriptor& Segment::descriptor(int rank, uint64_t chunk) const {
  return *reinterpret_cast<CallDescriptor*>(slot_base(rank, chunk));
}

std::byte* Segment::slot(int rank, uint64_t chunk) const {
  return slot_base(rank, chunk) + sizeof(CallDescriptor);
}

void Segment::fail(const Status& status, const std::optional<Disagreement>& between) const {
  FailureRecord& r = record();
  uint32_t none = 0;
  if (!r.state.compare_exchange_strong(none, 1)) return;
  r.code = status.code();
  r.disagrees = between.has_value();
  r.between = between.value_or(Disagreement{});
  const size_t length = std::min(status.message().size(), sizeof r.text - 1);
  std::memcpy(r.text, status.message().data(), length);
  r.text[length] = '\0';
  r.state.store(2);
}

bool Segment::failed() const {
  return record().state.load() == 2;
}

Status Segment::failure() const {
  if (!failed()) return {};
  const FailureRecord& r = record();
  const bool known = r.code > ErrorCode::Ok && r.code <= ErrorCode::Unsupported;
  return {known ? r.code : ErrorCode::InternalError,
          printable({r.text, strnlen(r.text, sizeof r.text)}, sizeof r.text)};
}

std::optional<Disagreement> Segment::disagreement() const {
  if (!failed() || !record().disagrees) return std::nullopt;
  const Disagreement between = record().between;
  const auto is_rank = [this](int rank) { return rank >= 0 && rank < n_ranks(); };
  if (!is_rank(between.rank) || !is_rank(between.other)) return std::nullopt;
  return between;
}

}  // namespace hetccl::ccl::host
