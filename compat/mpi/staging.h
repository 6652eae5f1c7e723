// Device memory for an MPI that takes none: copies in host memory.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "mpi/call.h"
#include "mpi/layout.h"
#include "mpi/library.h"
#include "mpi/memory.h"
#include "mpi/work.h"

namespace hetccl::mpi {

/// One buffer of the program in device memory, and its copy.
class HostCopy {
 public:
  /// `span` is what the MPI may touch of `buffer`. `in`: it reads it, or leaves gaps in it alone.
  static Result<HostCopy> make(Word buffer, Span span, bool in);
  /// What the MPI takes for `buffer`.
  [[nodiscard]] Word buffer() const {
    return from_pointer(scratch_.data()) - static_cast<Word>(span_.begin);
  }
  Status copy_back() const;

 private:
  HostCopy(Scratch scratch, Word buffer, Memory memory, Span span)
      : scratch_(std::move(scratch)), buffer_(buffer), memory_(memory), span_(span) {}
  Scratch scratch_;
  Word buffer_;
  Memory memory_;
  Span span_;
};

/// Whether the MPI cannot reach `buffer`.
bool needs_host_copy(Word buffer, const Library& library);

/// A collective with its buffers in host memory.
class StagedCall {
 public:
  /// Null where nothing needs a copy.
  static Result<std::unique_ptr<StagedCall>> make(const Call& call, const Library& library);
  /// The call that the MPI can make.
  [[nodiscard]] const Call& call() const { return call_; }
  Call& call() { return call_; }
  Status deliver() const;

 private:
  explicit StagedCall(Call call) : call_(std::move(call)) {}
  Call call_;
  std::vector<HostCopy> sent_, received_;
};

/// What the MPI does under a request of its own, between host copies.
class StagedWork : public Work {
 public:
  /// Of a collective whose words end with where its request goes.
  static Result<std::unique_ptr<StagedWork>> begin(std::unique_ptr<StagedCall> staged,
                                                   const Library& library);
  /// Of a message, of which there is a copy on one side.
  StagedWork(const Library& library, std::optional<HostCopy> sent, std::optional<HostCopy> received)
      : library_(library), sent_(std::move(sent)), received_copy_(std::move(received)) {}

  /// Where the MPI's request goes.
  [[nodiscard]] void* request() { return &request_; }
  bool is_done() override;
  void wait_briefly() override;
  Status finish() override;
  [[nodiscard]] std::optional<Received> received() const override;

 private:
  const Library& library_;
  std::unique_ptr<StagedCall> call_;
  std::optional<HostCopy> sent_, received_copy_;
  Word request_ = 0;
  alignas(8) std::array<std::byte, 64> status_{};
  int code_ = 0;
  bool done_ = false;
};

}  // namespace hetccl::mpi
