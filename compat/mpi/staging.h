// Device memory for an MPI that takes none: calls with copies in host memory.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "mpi/call.h"
#include "mpi/host_copy.h"
#include "mpi/library.h"
#include "mpi/work.h"

namespace hetccl::mpi {

/// A collective with its buffers in host memory.
class StagedCall {
 public:
  /// Null where nothing needs a copy.
  static Result<std::shared_ptr<StagedCall>> make(const MpiCall& call, const Library& library);
  ~StagedCall();
  StagedCall(const StagedCall&) = delete;
  StagedCall& operator=(const StagedCall&) = delete;

  /// The call that the MPI can make. Its request goes to `request`.
  [[nodiscard]] const MpiCall& call() const { return call_; }
  [[nodiscard]] Word* request() { return &request_; }
  /// Copies in what the MPI reads, which `make` has done for the first time.
  Status fetch() const;
  Status deliver() const;

 private:
  explicit StagedCall(MpiCall call) : call_(std::move(call)) {}
  MpiCall call_;
  Word request_ = 0;
  std::optional<HostCopy> sent_, received_;
  bool reads_received_ = false;
};

/// What the MPI does under a request of its own, between host copies.
class StagedWork : public Work {
 public:
  /// Of a collective that the MPI has begun.
  StagedWork(const Library& library, std::shared_ptr<StagedCall> call)
      : library_(library), call_(std::move(call)), request_(call_->request()) {}
  /// Of a message, of which there is a copy on one side.
  StagedWork(const Library& library, std::optional<HostCopy> sent, std::optional<HostCopy> received)
      : library_(library),
        sent_(std::move(sent)),
        received_copy_(std::move(received)),
        request_(&message_) {}

  /// Where the MPI's request goes.
  [[nodiscard]] Word* request() { return request_; }
  bool is_done() override;
  void wait_briefly() override;
  Status finish() override;
  void cancel() override;
  [[nodiscard]] std::optional<Received> received() const override;

 private:
  const Library& library_;
  std::shared_ptr<StagedCall> call_;
  std::optional<HostCopy> sent_, received_copy_;
  Word message_ = 0;
  Word* const request_;
  alignas(8) std::array<std::byte, 64> status_{};
  int code_ = 0;
  bool done_ = false;
};

/// A persistent collective of the MPI, which has made a request for it.
class StagedPersistent : public PersistentCall {
 public:
  StagedPersistent(const Library& library, std::shared_ptr<StagedCall> call)
      : library_(library), call_(std::move(call)) {}
  Result<std::unique_ptr<Work>> begin() override;

 private:
  const Library& library_;
  std::shared_ptr<StagedCall> call_;
};

}  // namespace hetccl::mpi
