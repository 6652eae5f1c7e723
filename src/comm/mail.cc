#include "comm/mail.h"

#include <algorithm>

namespace hetccl::comm {
namespace {

constexpr std::chrono::milliseconds kLongestReminder{32'000};
constexpr size_t kHead = 2 + sizeof(uint64_t);  // the mark, the kind, and the round

}  // namespace

void Mail::begin(int peer, std::span<const std::byte> mine) {
  const std::lock_guard lock(mutex_);
  Box& box = boxes_[peer];
  auto& note = box.told[box.round % 2];
  note.assign(kHead + mine.size(), 0);
  note[0] = kMark;
  std::memcpy(&note[2], &box.round, sizeof box.round);
  std::memcpy(note.data() + kHead, mine.data(), mine.size());
  box.kind = Kind::Told;
  box.due = TimePoint::min();
  box.pause = reminder_;
}

Status Mail::send_note(int peer, std::vector<uint8_t> note, Kind kind) {
  note[1] = static_cast<uint8_t>(kind);
  return session_.send_note(peer, std::move(note));
}

std::optional<Mail::Bytes> Mail::take(int peer, TimePoint now, TimePoint& again) {
  std::unique_lock lock(mutex_);
  Box& box = boxes_[peer];
  for (Status told;;) {
    const bool untold = box.due == TimePoint::min();
    if (auto heard = untold ? decltype(box.heard)::node_type() : box.heard.extract(box.round)) {
      ++box.round;
      return std::move(heard.mapped());
    }
    HETCCL_TRY(told);
    if (box.left) return error(ErrorCode::RemoteError, "rank %d has left the communicator", peer);
    if (now < box.due) {
      again = std::min(again, box.due);
      return std::nullopt;
    }
    std::vector<uint8_t> note = box.told[box.round % 2];
    const Kind kind = std::exchange(box.kind, Kind::Reminder);
    box.due = now + box.pause;
    if (box.round == 0) box.pause = std::min(2 * box.pause, kLongestReminder);
    lock.unlock();  // the control plane's thread takes it while it holds its own
    told = send_note(peer, std::move(note), kind);
    lock.lock();
  }
}

void Mail::on_note(int from, std::span<const uint8_t> note) {
  if (note.size() < kHead || note[0] != kMark) return;
  uint64_t round = 0;
  std::memcpy(&round, &note[2], sizeof round);
  std::optional<std::vector<uint8_t>> again;
  {
    const std::lock_guard lock(mutex_);
    Box& box = boxes_[from];
    if (round == box.round || round == box.round + 1) {
      box.heard[round] = {note.begin() + kHead, note.end()};
    } else if (round + 1 == box.round && note[1] == static_cast<uint8_t>(Kind::Reminder)) {
      again = box.told[round % 2];
    }
  }
  ring_();
  if (again) static_cast<void>(send_note(from, std::move(*again), Kind::Answer));
}

void Mail::on_left(int rank) {
  {
    const std::lock_guard lock(mutex_);
    boxes_[rank].left = true;
  }
  ring_();
}

}  // namespace hetccl::comm
