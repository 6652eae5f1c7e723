// Agreement of two ranks. They exchange short notes by turns, over the control plane.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "bootstrap/bootstrap.h"

namespace hetccl::comm {

/// Waits for nothing. Thread-safe; but one thread exchanges with one peer.
class Mail {
 public:
  /// The first byte of a note of these. Others are JSON.
  static constexpr uint8_t kMark = 'M';

  /// `session` outlives this. `ring` is called, by the control plane's thread, when a peer's note
  /// or departure may complete an exchange. An exchange that is not complete reminds the other end
  /// after `reminder`; the first one, for which it may be long in coming, then after twice as long
  /// each time.
  Mail(bootstrap::Session& session, std::function<void()> ring,
       std::chrono::milliseconds reminder = std::chrono::seconds(1))
      : session_(session), ring_(std::move(ring)), reminder_(reminder) {}

  /// Begins the next exchange with `peer`, once the one before is complete. Both ends make the same
  /// exchanges.
  template <typename T>
  void begin(int peer, const T& mine) {
    static_assert(std::has_unique_object_representations_v<T>, "padding would travel, too");
    begin(peer, std::as_bytes(std::span(&mine, 1)));
  }
  /// Completes the exchange that has begun: what `peer` tells, or RemoteError once it has left.
  /// Empty while it has told nothing: ask again at `again`, which this only makes earlier.
  template <typename T>
  std::optional<Result<T>> take(int peer, TimePoint now, TimePoint& again) {
    const auto heard = take(peer, now, again);
    if (!heard) return std::nullopt;
    if (!heard->ok()) return heard->status();
    const std::vector<uint8_t>& bytes = heard->value();
    T theirs;
    if (bytes.size() != sizeof theirs) {
      return error(ErrorCode::RemoteError, "rank %d told %zu bytes, not %zu", peer, bytes.size(),
                   sizeof theirs);
    }
    std::memcpy(&theirs, bytes.data(), sizeof theirs);
    return theirs;
  }

  // By the control plane's thread.
  /// Does nothing where it is no note of these.
  void on_note(int from, std::span<const uint8_t> note);
  void on_left(int rank);

 private:
  enum class Kind : uint8_t { Told, Reminder, Answer };
  // The exchanges with one peer. A note may get lost: who waits reminds the other end of its own,
  // and who has gone on answers a reminder, but no answer, with what it told then.
  struct Box {
    uint64_t round = 0;                              // exchanges that are complete
    std::array<std::vector<uint8_t>, 2> told;        // the last two notes, by round
    std::map<uint64_t, std::vector<uint8_t>> heard;  // by round: this one, and the next
    bool left = false;
    // The exchange that has begun tells this rank's note as `kind` says, at `due`, and again after
    // `pause`.
    Kind kind = Kind::Told;
    TimePoint due{};
    std::chrono::milliseconds pause{};
  };
  using Bytes = Result<std::vector<uint8_t>>;
  void begin(int peer, std::span<const std::byte> mine);
  std::optional<Bytes> take(int peer, TimePoint now, TimePoint& again);
  Status tell(int peer, std::vector<uint8_t> note, Kind kind);

  bootstrap::Session& session_;
  const std::function<void()> ring_;
  const std::chrono::milliseconds reminder_;
  std::mutex mutex_;  // guards what follows
  std::map<int, Box> boxes_;
};

}  // namespace hetccl::comm
