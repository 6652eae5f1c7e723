// What two ranks tell each other, through a channel of their own: short things, by turns.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <type_traits>

#include "base/cancel.h"
#include "progress/engine.h"
#include "transport/transport.h"

namespace hetccl::comm {

/// Both ends make the same exchanges. By one thread; the engine drives it.
class Talk final : public progress::Driven {
 public:
  /// `number` is the channel's, alike at both ends. Exchanges end with `cancel`, which outlives
  /// them.
  Talk(progress::Engine& engine, std::unique_ptr<transport::Channel> channel, uint64_t number,
       const Cancel& cancel);
  ~Talk() override;
  Talk(const Talk&) = delete;
  Talk& operator=(const Talk&) = delete;

  /// Tells the other end `mine`, and returns what it tells: once both are through.
  template <typename T>
  Result<T> exchange(const T& mine) {
    static_assert(std::has_unique_object_representations_v<T>, "padding would travel, too");
    T sent = mine, received;
    HETCCL_TRY(exchange(std::as_writable_bytes(std::span(&sent, 1)),
                        std::as_writable_bytes(std::span(&received, 1))));
    return received;
  }

  bool poll(TimePoint now) override;
  [[nodiscard]] bool active() const override { return under_way_.load(); }
  [[nodiscard]] ShmSource* shm_source() override { return nullptr; }
  [[nodiscard]] bool silent() const override { return false; }

 private:
  Status exchange(std::span<std::byte> mine, std::span<std::byte> theirs);

  progress::Engine& engine_;
  std::unique_ptr<transport::Channel> channel_;
  const uint64_t number_;
  const Cancel& cancel_;
  uint64_t rounds_ = 0;
  std::atomic<bool> under_way_{false};
  Status thrown_;  // where nobody drives
};

}  // namespace hetccl::comm
