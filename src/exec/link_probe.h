// Measures a channel before collectives use it: first small messages back and forth, then pieces
// both ways at once, as collectives send them. If the link is fast, longer pieces follow, because
// streams need time to reach their full rate. Each end makes a probe and drives it until it is
// done.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "progress/engine.h"
#include "transport/transport.h"

namespace hetccl::exec {

class LinkProbe : public progress::Driven {
 public:
  /// One end is the `first`. `channel` is new; `communicator` is the number in both ends' headers.
  LinkProbe(transport::Channel& channel, uint64_t communicator, bool first, const Clock& clock);

  bool poll(TimePoint now) override;
  [[nodiscard]] bool active() const override { return !done(); }
  [[nodiscard]] ShmSource* shm_source() override { return nullptr; }
  [[nodiscard]] bool silent() const override { return false; }

  /// True also if the channel has failed.
  [[nodiscard]] bool done() const { return done_.load(std::memory_order_acquire); }
  // Returns half of the median round-trip time. Requires done, without a failure of the channel.
  [[nodiscard]] Duration latency() const;
  /// Returns bytes per second, each way.
  [[nodiscard]] double bandwidth() const;

 private:
  /// Messages that follow each other without an answer.
  struct Row {
    size_t first, end, bytes;

    [[nodiscard]] constexpr size_t size() const { return end - first; }
  };
  static constexpr size_t kPings = 20, kWarm = 6;
  static constexpr Row kPieces{kPings, kPings + 16, size_t{128} << 10U};
  static constexpr size_t kRate = kPieces.end;  // each end tells its measured rate of the pieces
  static constexpr size_t kMessages = kRate + 1 + 6;

  /// The buffers of one end's messages. All messages of a row are sent from one buffer, but each is
  /// received into its own, because several threads may receive at once.
  struct EndBuffers {
    uint64_t ping = 0;
    std::vector<std::byte> pieces, long_messages;
    uint64_t rate = 0;
  };

  void send(size_t end);
  void receive(size_t end);
  bool take_received();
  [[nodiscard]] transport::Parcel transfer(EndBuffers& buffers, size_t number) const;
  void size_long_messages(uint64_t rate);
  [[nodiscard]] double rate_of(const Row& row) const;

  transport::Channel& channel_;
  const uint64_t communicator_;
  const bool first_;
  const Clock& clock_;
  EndBuffers out_, in_;
  size_t posted_ = 0, sent_ = 0, received_ = 0;
  Row long_messages_{kRate + 1, kMessages, 0};
  size_t end_ = kRate + 1;  // number of all messages
  std::array<TimePoint, kMessages> arrived_{};
  std::atomic<bool> done_{false};
};

}  // namespace hetccl::exec
