// Agreement of two ranks. They exchange short notes by turns, over the control plane.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <type_traits>
#include <vector>

#include "base/cancel.h"
#include "bootstrap/bootstrap.h"

namespace hetccl::comm {

/// Thread-safe; but with one peer one thread exchanges.
class Mail {
 public:
  /// The first byte of a note of these. Others are JSON.
  static constexpr uint8_t kMark = 'M';

  /// Exchanges end with `cancel`, once `wake` says that it is set. Both outlive this. Who waits
  /// reminds the other end after `reminder`; of the first exchange, for which it may be long in
  /// coming, then after twice as long each time.
  Mail(bootstrap::Session& session, const Cancel& cancel,
       std::chrono::milliseconds reminder = std::chrono::seconds(1))
      : session_(session), cancel_(cancel), reminder_(reminder) {}

  /// Tells `peer` `mine`, and returns what it tells: both ends make the same exchanges, and each
  /// waits for the other, which may be long in coming. RemoteError once it has left.
  template <typename T>
  Result<T> exchange(int peer, const T& mine) {
    static_assert(std::has_unique_object_representations_v<T>, "padding would travel, too");
    T received;
    HETCCL_TRY(exchange(peer, std::as_bytes(std::span(&mine, 1)),
                        std::as_writable_bytes(std::span(&received, 1))));
    return received;
  }

  // By the control plane's thread.
  /// Does nothing where it is no note of these.
  void on_note(int from, std::span<const uint8_t> note);
  void on_left(int rank);
  /// `cancel` is set.
  void wake();

 private:
  // The exchanges with one peer. A note may get lost: who waits reminds the other end of its own,
  // and who has gone on answers a reminder, but no answer, with what it told then.
  struct Box {
    uint64_t round = 0;                              // exchanges that are complete
    std::array<std::vector<uint8_t>, 2> told;        // the last two notes, by round
    std::map<uint64_t, std::vector<uint8_t>> heard;  // by round: this one, and the next
    bool left = false;
  };
  enum class Kind : uint8_t { Told, Reminder, Answer };
  static std::vector<uint8_t> note_of(uint64_t round, std::span<const std::byte> bytes);
  Status tell(int peer, std::vector<uint8_t> note, Kind kind);
  Status exchange(int peer, std::span<const std::byte> mine, std::span<std::byte> theirs);
  Status wait(std::unique_lock<std::mutex>& lock, int peer, Box& box);

  bootstrap::Session& session_;
  const Cancel& cancel_;
  const std::chrono::milliseconds reminder_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<int, Box> boxes_;
};

}  // namespace hetccl::comm
