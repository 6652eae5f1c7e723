// A reliable queue pair with a completion queue of its own, which holds a completion of each work
// request that the two queues can hold: it cannot overflow.
#pragma once

#include <array>
#include <memory>
#include <span>

#include "base/config.h"
#include "transport/verbs/device.h"

namespace hetccl::transport::verbs {

/// The address of a queue pair, which its end sends to the other over their authenticated
/// connection.
struct QpAddress {
  uint32_t number = 0, psn = 0;
  uint16_t lid = 0;
  uint8_t mtu = 0;
  abi::Gid gid{};
};
inline constexpr size_t kQpAddressBytes = 1 + 4 + 4 + 2 + 1 + 16;

void encode(const QpAddress& address, uint8_t out[kQpAddressBytes]);
/// RemoteError where the bytes are none.
Result<QpAddress> decode_qp(const uint8_t in[kQpAddressBytes]);

/// One thread at a time. No memory is reached through it once it is destroyed.
class QueuePair {
 public:
  struct Options {
    uint32_t sends = 0, receives = 0;
    unsigned access = abi::kRemoteWrite;  ///< of the other end
    void* user = nullptr;                 ///< what events of its completion queue carry
  };
  static Result<std::unique_ptr<QueuePair>> create(const Port& port, const Options& options);
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  [[nodiscard]] QpAddress address() const;
  /// Connects to the peer's: receives from here on. `start_sending` once the peer receives, too.
  Status start_receiving(const QpAddress& peer, const Config& config);
  Status start_sending(const Config& config);

  Status post_receive(uint64_t id, abi::Sge part) { return post_receive(id, {&part, 1}); }
  /// The same for a write that brings only an immediate.
  Status post_receive(uint64_t id) { return post_receive(id, std::span<abi::Sge>()); }
  struct Remote {
    uint64_t address = 0;
    uint32_t key = 0, immediate = 0;
    int opcode = abi::kRdmaWriteWithImm;  ///< or kRdmaWrite, kRdmaRead
  };
  static constexpr size_t kMostParts = 4;
  /// A send; with `remote`, a write to there, or a read from there.
  Status post_send(uint64_t id, std::span<abi::Sge> parts, const Remote* remote);
  /// Completions, as many as there are and `into` has room for; negative when the device fails.
  int poll(std::span<abi::Wc> into);
  [[nodiscard]] const char* text_of(int status) const {
    return port_.device->api().status_text(status);
  }
  /// The next completion makes an event.
  Status arm();
  /// Whether an event of its device tells that it has failed.
  [[nodiscard]] bool is_concerned(const abi::AsyncEvent& event) const;

 private:
  QueuePair(const Port& port, const Options& options);
  Status prepare();
  Status post_receive(uint64_t id, std::span<abi::Sge> parts);
  /// How many reads may be under way.
  [[nodiscard]] uint8_t reads() const { return (options_.access & abi::kRemoteRead) != 0 ? 1 : 0; }
  Status modify(abi::QpAttr& attr, int mask, const char* what);

  const Port port_;
  const Options options_;
  const uint32_t psn_;  // where numbers of packets begin
  uint32_t inline_bytes_ = 0;
  abi::Cq* cq_ = nullptr;
  abi::Qp* qp_ = nullptr;
};

}  // namespace hetccl::transport::verbs
