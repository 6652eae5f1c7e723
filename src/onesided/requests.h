// Keeps account of what the gets of a link have requested and of what has not arrived yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "onesided/inbox.h"
#include "onesided/pace.h"
#include "onesided/protocol.h"
#include "onesided/transfer.h"

namespace hetccl::onesided {

/// Used under the link's lock.
class Requests {
 public:
  /// Adds the next pieces of a get to `frame`: as many as a frame and the bounds allow, so perhaps
  /// none. Pieces are as long as a turn of the link was when the get began, at most kMaxPiece.
  void add(Transfer& get, Frame& frame);
  /// Returns the places of the next `count` pieces of a get, at most as many as are outstanding. At
  /// `now` the peer has announced them, so what it announced before has arrived.
  std::vector<Inbox::Expected> take(Transfer& get, uint32_t count, TimePoint now);
  /// Drops what a get still expects, because it has ended.
  void drop(Transfer& get);

  /// Pieces that all gets of a link may request before the first of them have arrived.
  static constexpr size_t kMostPieces = size_t{8} * kMaxPieces;

 private:
  uint64_t pass(Transfer& get);
  void rest();

  size_t pieces_ = 0, bytes_ = 0;  // that have not been announced
  size_t announced_ = 0;           // bytes of the last announcement
  Pace pace_;
};

}  // namespace hetccl::onesided
