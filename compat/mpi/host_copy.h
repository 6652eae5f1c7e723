// A device buffer of the program, and its copy in host memory.
#pragma once

#include <utility>

#include "base/status.h"
#include "mpi/layout.h"
#include "mpi/library.h"
#include "mpi/memory.h"
#include "mpi/word.h"

namespace hetccl::mpi {

/// Whether the MPI cannot reach `buffer`.
bool needs_host_copy(Word buffer, const Library& library);

class HostCopy {
 public:
  /// Copies `span`, the part of `buffer` that may be touched. `in`: the copy starts with the
  /// buffer's content.
  static Result<HostCopy> make(Word buffer, Span span, bool in);
  /// The address to pass to the MPI instead of `buffer`.
  [[nodiscard]] Word buffer() const {
    return from_pointer(scratch_.data()) - static_cast<Word>(span_.begin);
  }
  /// Copies from the program's buffer, or back to it.
  Status copy_in() const;
  Status copy_back() const;

 private:
  HostCopy(Scratch scratch, Word buffer, MemorySpace memory, Span span)
      : scratch_(std::move(scratch)), buffer_(buffer), memory_(memory), span_(span) {}
  [[nodiscard]] void* original() const {
    return to_pointer<void>(buffer_ + static_cast<Word>(span_.begin));
  }
  Scratch scratch_;
  Word buffer_;
  MemorySpace memory_;
  Span span_;
};

}  // namespace hetccl::mpi
