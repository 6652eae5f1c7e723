// A reliable queue pair with its own completion queue, which has room for a completion of each work
// request and so cannot overflow.
#pragma once

#include <array>
#include <memory>
#include <span>

#include "base/config.h"
#include "transport/verbs/device.h"

namespace hetccl::transport::verbs {

/// The address of a queue pair. Each end sends its own to the other over the authenticated
/// connection.
struct QpAddress {
  uint32_t number = 0, psn = 0;
  uint16_t lid = 0;
  uint8_t mtu = 0;
  abi::Gid gid{};
};
inline constexpr size_t kQpAddressBytes = 1 + 4 + 4 + 2 + 1 + 16;

void encode(const QpAddress& address, uint8_t out[kQpAddressBytes]);
/// Returns RemoteError if the bytes are no address.
Result<QpAddress> decode_qp(const uint8_t in[kQpAddressBytes]);

/// Used by one thread at a time. Once it is destroyed, no device accesses memory through it.
class QueuePair {
 public:
  struct Options {
    uint32_t sends = 0, receives = 0;
    unsigned access = abi::kRemoteWrite;  ///< the other end's access to this process's memory
    void* user = nullptr;                 ///< returned with each event of its completion queue
  };
  static Result<std::unique_ptr<QueuePair>> create(const Port& port, const Options& options);
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  [[nodiscard]] QpAddress address() const;
  /// Connects to the peer's queue pair, and receives from now on. Call `start_sending` once the
  /// peer receives, too.
  Status start_receiving(const QpAddress& peer, const Config& config);
  Status start_sending(const Config& config);

  Status post_receive(uint64_t id, abi::Sge part) { return post_receive(id, {&part, 1}); }
  /// Posts a receive for a write that carries only an immediate.
  Status post_receive(uint64_t id) { return post_receive(id, std::span<abi::Sge>()); }
  struct Remote {
    uint64_t address = 0;
    uint32_t key = 0, immediate = 0;
    int opcode = abi::kRdmaWriteWithImm;  ///< or kRdmaWrite, kRdmaRead
  };
  static constexpr size_t kMostParts = 4;
  /// Posts a send; with `remote` a write to it or a read from it, as its opcode says.
  Status post_send(uint64_t id, std::span<abi::Sge> parts, const Remote* remote);
  /// Writes the completions to `into`, as far as it has room. Returns their number; negative if the
  /// device fails.
  int poll(std::span<abi::Wc> into);
  [[nodiscard]] const char* text_of(int status) const {
    return port_.device->api().status_text(status);
  }
  /// Requests an event for the next completion.
  Status arm();
  /// Returns whether an event of its device reports that this queue pair has failed.
  [[nodiscard]] bool is_concerned(const abi::AsyncEvent& event) const;

 private:
  QueuePair(const Port& port, const Options& options);
  Status prepare();
  Status post_receive(uint64_t id, std::span<abi::Sge> parts);
  /// Returns how many RDMA reads may be under way.
  [[nodiscard]] uint8_t reads() const { return (options_.access & abi::kRemoteRead) != 0 ? 1 : 0; }
  Status modify(abi::QpAttr& attr, int mask, const char* what);

  const Port port_;
  const Options options_;
  const uint32_t psn_;  // its first packet number
  uint32_t inline_bytes_ = 0;
  abi::Cq* cq_ = nullptr;
  abi::Qp* qp_ = nullptr;
};

}  // namespace hetccl::transport::verbs
