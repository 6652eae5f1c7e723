#include "exec/recorder.h"

#include <algorithm>

namespace hetccl::exec {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

uint64_t pack(const Signature& call) {
  return static_cast<uint64_t>(call.collective) | static_cast<uint64_t>(call.type) << 8 |
         static_cast<uint64_t>(call.op) << 16 | uint64_t{call.uneven} << 24 |
         static_cast<uint64_t>(static_cast<uint32_t>(call.root)) << 32;
}

Signature unpack(uint64_t kind, uint64_t count) {
  return {static_cast<Collective>(kind & 0xff),
          static_cast<DataType>(kind >> 8 & 0xff),
          static_cast<RedOp>(kind >> 16 & 0xff),
          static_cast<int32_t>(kind >> 32),
          count,
          (kind >> 24 & 1) != 0};
}

int64_t ticks(TimePoint time) {
  return time.time_since_epoch().count();
}

TimePoint time_of(int64_t ticks) {
  return TimePoint(Duration(ticks));
}

}  // namespace

void Recorder::launch(const Record& record) {
  Entry& entry = entries_[record.sequence % entries_.size()];
  // Use release order throughout: a reader that sees one of the new words also sees the cleared
  // tag.
  entry.tag.store(0, std::memory_order_release);
  entry.kind.store(pack(record.signature), std::memory_order_release);
  entry.count.store(record.signature.count, std::memory_order_release);
  entry.slice_elements.store(record.slice_elements, std::memory_order_release);
  entry.slices.store(record.slices, std::memory_order_release);
  entry.moved_bytes.store(0, std::memory_order_release);
  entry.way.store(uint64_t{record.tag} << 32 | uint64_t{record.by_library} << 1 | record.sends,
                  std::memory_order_release);
  entry.number.store(record.number, std::memory_order_release);
  entry.state.store(static_cast<uint64_t>(Record::State::Launched), std::memory_order_release);
  entry.launched.store(ticks(record.launched), std::memory_order_release);
  entry.started.store(0, std::memory_order_release);
  entry.completed.store(0, std::memory_order_release);
  entry.tag.store(record.sequence + 1, std::memory_order_release);
  called_.store(record.sequence + 1, std::memory_order_release);
}

Recorder::Entry* Recorder::at(uint64_t sequence) {
  Entry& entry = entries_[sequence % entries_.size()];
  return entry.tag.load(kRelaxed) == sequence + 1 ? &entry : nullptr;
}

void Recorder::start(uint64_t sequence, TimePoint when) {
  Entry* const entry = at(sequence);
  if (entry == nullptr) return;
  entry->started.store(ticks(when), kRelaxed);
  entry->state.store(static_cast<uint64_t>(Record::State::Started), kRelaxed);
}

void Recorder::move(uint64_t sequence, uint64_t bytes) {
  Entry* const entry = at(sequence);
  if (entry == nullptr) return;
  entry->moved_bytes.store(entry->moved_bytes.load(kRelaxed) + bytes, kRelaxed);
}

void Recorder::end(uint64_t sequence, Record::State state, TimePoint when) {
  if (Entry* const entry = at(sequence)) {
    entry->completed.store(ticks(when), kRelaxed);
    entry->state.store(static_cast<uint64_t>(state), kRelaxed);
  }
  ended_.store(sequence + 1, std::memory_order_release);
}

std::optional<Record> Recorder::find(uint64_t sequence) const {
  const Entry& entry = entries_[sequence % entries_.size()];
  if (entry.tag.load(std::memory_order_acquire) != sequence + 1) return std::nullopt;
  const auto word = [](const auto& atomic) { return atomic.load(std::memory_order_acquire); };
  Record record;
  record.sequence = sequence;
  record.signature = unpack(word(entry.kind), word(entry.count));
  record.slice_elements = word(entry.slice_elements);
  record.slices = static_cast<uint32_t>(word(entry.slices));
  record.moved_bytes = word(entry.moved_bytes);
  const uint64_t way = word(entry.way);
  record.sends = (way & 1) != 0;
  record.by_library = (way >> 1 & 1) != 0;
  record.tag = static_cast<uint32_t>(way >> 32);
  record.number = word(entry.number);
  record.state = static_cast<Record::State>(word(entry.state));
  record.launched = time_of(word(entry.launched));
  record.started = time_of(word(entry.started));
  record.completed = time_of(word(entry.completed));
  if (entry.tag.load(kRelaxed) != sequence + 1) return std::nullopt;
  return record;
}

std::vector<Record> Recorder::records() const {
  const uint64_t end = called();
  std::vector<Record> records;
  for (uint64_t n = end - std::min<uint64_t>(end, entries_.size()); n < end; ++n) {
    if (auto record = find(n)) records.push_back(*record);
  }
  return records;
}

}  // namespace hetccl::exec
