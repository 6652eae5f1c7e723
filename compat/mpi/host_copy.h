// A buffer of the program in device memory, and its copy in host memory.
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
  /// `span` is what may be touched of `buffer`. `in`: the copy begins as the buffer is.
  static Result<HostCopy> make(Word buffer, Span span, bool in);
  /// The address to pass to the MPI in place of `buffer`.
  [[nodiscard]] Word buffer() const {
    return from_pointer(scratch_.data()) - static_cast<Word>(span_.begin);
  }
  /// From the program's buffer, and back to it.
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
