// The memory of a part of a message while it moves, be it contiguous or a list.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <span>

#include "transport/transport.h"

namespace hetccl::transport {

/// Shrinks from the front as bytes move. Does not read the list again once no bytes are left.
class Extent {
 public:
  Extent() = default;
  /// `bytes` of the message from `offset` on, which must lie inside it.
  Extent(const Parcel& message, size_t offset, size_t bytes);

  /// Returns the number of bytes left.
  [[nodiscard]] size_t bytes() const { return left_; }
  /// Returns the contiguous bytes at the front; empty only if none are left.
  [[nodiscard]] std::span<std::byte> front() const { return {at_, here_}; }
  /// Describes bytes from the front on, at most `most` of them, as far as `parts` has room. Returns
  /// the number of parts and sets `*bytes` to their sum.
  size_t describe(std::span<iovec> parts, size_t most, size_t* bytes) const;
  /// Passes `bytes`, which are at most those left.
  void advance(size_t bytes);

 private:
  void enter_next();

  std::byte* at_ = nullptr;
  size_t here_ = 0;              // bytes at at_
  size_t left_ = 0;              // of all
  const iovec* next_ = nullptr;  // the piece behind those at at_
};

}  // namespace hetccl::transport
