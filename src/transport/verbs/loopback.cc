#include "transport/verbs/loopback.h"

#include <array>
#include <thread>
#include <utility>

namespace hetccl::transport::verbs {

Result<std::unique_ptr<Loopback>> Loopback::create(const Port& port, const Config& config,
                                                   void* user) {
  constexpr unsigned kAccess = abi::kRemoteWrite | abi::kRemoteRead;
  HETCCL_ASSIGN(auto queue, QueuePair::create(port, {kRoom, 1, kAccess, user}));
  HETCCL_TRY(queue->start_receiving(queue->address(), config));
  HETCCL_TRY(queue->start_sending(config));
  return std::unique_ptr<Loopback>(new Loopback(std::move(queue)));
}

Status Loopback::write(abi::Sge from, void* to, uint32_t key) {
  ++under_way_;
  const QueuePair::Remote remote{reinterpret_cast<uintptr_t>(to), key, 0, abi::kRdmaWrite};
  return queue_->post_send(0, {&from, 1}, &remote);
}

Status Loopback::read(abi::Sge to, const void* from, uint32_t key) {
  ++under_way_;
  const QueuePair::Remote remote{reinterpret_cast<uintptr_t>(from), key, 0, abi::kRdmaRead};
  return queue_->post_send(0, {&to, 1}, &remote);
}

Result<uint32_t> Loopback::poll() {
  if (under_way_ == 0) return 0U;
  std::array<abi::Wc, 16> completions{};
  const int n = queue_->poll(completions);
  if (n < 0) return error(ErrorCode::SystemError, "its device has failed");
  for (int i = 0; i < n; ++i) {
    const abi::Wc& one = completions[static_cast<size_t>(i)];
    if (one.status != abi::kWcSuccess)
      return error(ErrorCode::SystemError, "it cannot reach the memory: %s (vendor error 0x%x)",
                   queue_->text_of(one.status), one.vendor_error);
  }
  under_way_ -= static_cast<uint32_t>(n);
  return static_cast<uint32_t>(n);
}

Status Loopback::finish(const WaitLimit& limit) {
  for (const TimePoint deadline = limit.deadline(); under_way_ > 0;) {
    HETCCL_TRY(poll().status());
    HETCCL_TRY(limit.cancelled());
    if (limit.now() >= deadline) return error(ErrorCode::Timeout, "it copies nothing in time");
    std::this_thread::yield();
  }
  return {};
}

}  // namespace hetccl::transport::verbs
