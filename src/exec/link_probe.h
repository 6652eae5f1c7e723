// Measures a channel before collectives use it: small messages back and forth, then pieces both
// ways at once, as collectives send them. Both ends make one and drive it until it is done.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "exec/engine.h"
#include "transport/transport.h"

namespace hetccl::exec {

class LinkProbe : public Driven {
 public:
  /// One end is the `first`. `channel` is new; `communicator` names both ends' messages.
  LinkProbe(transport::Channel& channel, uint64_t communicator, bool first, const Clock& clock);

  bool poll(TimePoint now) override;
  [[nodiscard]] bool active() const override { return !done(); }
  [[nodiscard]] ShmSource* shm_source() override { return nullptr; }
  [[nodiscard]] bool silent() const override { return false; }

  /// Also when the channel has failed.
  [[nodiscard]] bool done() const { return done_.load(std::memory_order_acquire); }
  // Once it is done, and the channel has not failed.
  /// Half of what a message there and back mostly takes.
  [[nodiscard]] Duration latency() const;
  /// Bytes a second, each way.
  [[nodiscard]] double bandwidth() const;

 private:
  // Whatever lets a burst pass before it slows down lets less pass than kBurst pieces.
  static constexpr size_t kPings = 20, kWarm = 6, kPieces = 16, kBurst = 8;
  static constexpr size_t kPieceBytes = size_t{128} << 10U;
  static constexpr size_t kMessages = kPings + kPieces;

  void send();
  [[nodiscard]] transport::Transfer transfer(std::vector<std::byte>& buffer, size_t number) const;

  transport::Channel& channel_;
  const uint64_t communicator_;
  const bool first_;
  const Clock& clock_;
  std::vector<std::byte> out_, in_;
  bool posted_ = false;
  size_t sent_ = 0, received_ = 0;
  std::array<TimePoint, kMessages> arrived_{};
  std::atomic<bool> done_{false};
};

}  // namespace hetccl::exec
