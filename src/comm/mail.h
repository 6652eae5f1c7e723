// Lets two ranks agree: they exchange short notes in turns, over the control plane.
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

/// Never blocks. Thread-safe, but only one thread may exchange with one peer.
class Mail {
 public:
  /// The first byte of mail notes. Other notes are JSON.
  static constexpr uint8_t kMark = 'M';

  /// `session` must outlive this. The control plane's thread calls `ring` when a peer's note or
  /// departure may complete an exchange. While an exchange is incomplete, this end repeats its note
  /// after `reminder`. The first exchange may take long, so its pause doubles each time.
  Mail(bootstrap::Session& session, std::function<void()> ring,
       std::chrono::milliseconds reminder = std::chrono::seconds(1))
      : session_(session), ring_(std::move(ring)), reminder_(reminder) {}

  /// Begins the next exchange with `peer`, once the one before is complete. Both ends must make the
  /// same exchanges.
  template <typename T>
  void begin(int peer, const T& mine) {
    static_assert(std::has_unique_object_representations_v<T>, "padding would travel, too");
    begin(peer, std::as_bytes(std::span(&mine, 1)));
  }
  /// Completes the begun exchange: returns the peer's note, or RemoteError if the peer has left.
  /// Returns nothing while the note is missing. Then call again when the bell rings, and at `again`
  /// at the latest; this call may move `again` to an earlier time.
  template <typename T>
  std::optional<Result<T>> take(int peer, TimePoint now, TimePoint& again) {
    const auto heard = take(peer, now, again);
    if (!heard) return std::nullopt;
    if (!heard->ok()) return heard->status();
    const std::vector<uint8_t>& bytes = heard->value();
    T theirs;
    if (bytes.size() != sizeof theirs) {
      return error(ErrorCode::RemoteError, "rank %d sent a note of %zu bytes, not %zu", peer,
                   bytes.size(), sizeof theirs);
    }
    std::memcpy(&theirs, bytes.data(), sizeof theirs);
    return theirs;
  }

  // Called by the control plane's thread. Ignores notes that are not mail.
  void on_note(int from, std::span<const uint8_t> note);
  void on_left(int rank);

 private:
  enum class Kind : uint8_t { Told, Reminder, Answer };
  // The exchanges with one peer. Notes may get lost, so a waiting end repeats its note as a
  // reminder. An end that has already completed that round answers the reminder with its note. It
  // never answers an answer, or two ends would go on for ever.
  struct Box {
    uint64_t round = 0;                              // completed exchanges
    std::array<std::vector<uint8_t>, 2> told;        // the last two notes sent, by round
    std::map<uint64_t, std::vector<uint8_t>> heard;  // notes received, by round: this one, and the
                                                     // next
    bool left = false;
    // The current exchange sends its note as `kind` at `due`, and again after each `pause`.
    Kind kind = Kind::Told;
    TimePoint due{};
    std::chrono::milliseconds pause{};
  };
  using Bytes = Result<std::vector<uint8_t>>;
  void begin(int peer, std::span<const std::byte> mine);
  std::optional<Bytes> take(int peer, TimePoint now, TimePoint& again);
  Status send_note(int peer, std::vector<uint8_t> note, Kind kind);

  bootstrap::Session& session_;
  const std::function<void()> ring_;
  const std::chrono::milliseconds reminder_;
  std::mutex mutex_;  // guards the members below
  std::map<int, Box> boxes_;
};

}  // namespace hetccl::comm
