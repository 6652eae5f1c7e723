#include "comm/mail.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

namespace hetccl::comm {
namespace {

constexpr std::chrono::milliseconds kLongestReminder{32'000};
constexpr size_t kHead = 2 + sizeof(uint64_t);  // the mark, the kind, and the round

}  // namespace

std::vector<uint8_t> Mail::note_of(uint64_t round, std::span<const std::byte> bytes) {
  std::vector<uint8_t> note(kHead + bytes.size());
  note[0] = kMark;
  std::memcpy(&note[2], &round, sizeof round);
  std::memcpy(note.data() + kHead, bytes.data(), bytes.size());
  return note;
}

Status Mail::tell(int peer, std::vector<uint8_t> note, Kind kind) {
  note[1] = static_cast<uint8_t>(kind);
  return session_.tell(peer, std::move(note));
}

Status Mail::exchange(int peer, std::span<const std::byte> mine, std::span<std::byte> theirs) {
  std::unique_lock lock(mutex_);
  Box& box = boxes_[peer];
  box.told[box.round % 2] = note_of(box.round, mine);
  HETCCL_TRY(wait(lock, peer, box));
  const std::vector<uint8_t> heard = std::move(box.heard.extract(box.round++).mapped());
  if (heard.size() != theirs.size()) {
    return error(Code::RemoteError, "rank %d told %zu bytes, not %zu", peer, heard.size(),
                 theirs.size());
  }
  std::memcpy(theirs.data(), heard.data(), heard.size());
  return {};
}

Status Mail::wait(std::unique_lock<std::mutex>& lock, int peer, Box& box) {
  const auto ended = [&] { return box.heard.contains(box.round) || box.left || cancel_.is_set(); };
  const bool patient = box.round == 0;
  auto kind = Kind::Told;
  for (auto pause = reminder_;; kind = Kind::Reminder) {
    std::vector<uint8_t> note = box.told[box.round % 2];
    lock.unlock();  // which the control plane's thread takes under its own
    const Status told = tell(peer, std::move(note), kind);
    lock.lock();
    if (box.heard.contains(box.round)) return {};
    HETCCL_TRY(told);
    changed_.wait_for(lock, pause, ended);
    if (box.heard.contains(box.round)) return {};
    if (cancel_.is_set()) return cancel_.reason();
    if (box.left) return error(Code::RemoteError, "rank %d has left the communicator", peer);
    if (patient) pause = std::min(2 * pause, kLongestReminder);
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
  changed_.notify_all();
  if (again) static_cast<void>(tell(from, std::move(*again), Kind::Answer));
}

void Mail::on_left(int rank) {
  const std::lock_guard lock(mutex_);
  boxes_[rank].left = true;
  changed_.notify_all();
}

void Mail::wake() {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

}  // namespace hetccl::comm
