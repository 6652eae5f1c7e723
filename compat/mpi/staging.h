// Device memory under an MPI that does not accept it: the MPI works on copies in host memory.
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

/// A collective whose buffers are replaced by host copies.
class StagedCall {
 public:
  /// Returns null if no buffer needs a copy.
  static Result<std::shared_ptr<StagedCall>> make(const MpiCall& call, const Library& library);
  ~StagedCall();
  StagedCall(const StagedCall&) = delete;
  StagedCall& operator=(const StagedCall&) = delete;

  /// The call for the MPI. Its request is written to `request`.
  [[nodiscard]] const MpiCall& call() const { return call_; }
  [[nodiscard]] Word* request() { return &request_; }
  /// Copies the inputs to the host. `make` has done so for the first start.
  Status fetch() const;
  Status deliver() const;

 private:
  explicit StagedCall(MpiCall call) : call_(std::move(call)) {}
  MpiCall call_;
  Word request_ = 0;
  std::optional<HostCopy> sent_, received_;
  bool reads_received_ = false;
};

/// Work of the MPI, under a request of its own, on host copies.
class StagedWork : public Work {
 public:
  /// A collective that the MPI has started.
  StagedWork(const Library& library, std::shared_ptr<StagedCall> call)
      : library_(library), call_(std::move(call)), request_(call_->request()) {}
  /// A message with a host copy on at least one side.
  StagedWork(const Library& library, std::optional<HostCopy> sent, std::optional<HostCopy> received)
      : library_(library),
        sent_(std::move(sent)),
        received_copy_(std::move(received)),
        request_(&message_) {}

  /// Address for the MPI's request.
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

/// A persistent collective of the MPI, which has created a request for it.
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
