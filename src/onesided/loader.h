// Prepares pieces for an outbox. Short pieces travel in runs, one message for each run. If the
// channel takes lists and reaches the pieces' memory, it sends a run as a list of pieces; otherwise
// the pieces are first copied together.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "exec/window.h"
#include "onesided/outbox.h"
#include "onesided/region.h"
#include "onesided/staging.h"

namespace hetccl::onesided {

/// Returns the most bytes of a run of several pieces. Runs that are copied are short, so that the
/// first bytes leave early.
constexpr size_t most_of_run(Frame::Way way) {
  if (way == Frame::Way::OneByOne) return 0;
  return way == Frame::Way::Lists ? kMaxPiece : size_t{1} << 20;
}

/// Returns how many of the `pieces`, which have `bytes`, form the first run. Both ends compute the
/// same.
template <typename Piece>
size_t length_of_run(std::span<const Piece> pieces, Frame::Way way) {
  size_t n = 1, bytes = pieces[0].bytes;
  while (n < pieces.size() && bytes + pieces[n].bytes <= most_of_run(way))
    bytes += pieces[n++].bytes;
  return n;
}

/// Used under the link's lock.
class Loader {
 public:
  struct Options {
    exec::Window* window = nullptr;   ///< shared with the peer; or null
    bool reaches_device = false;      ///< the channel reaches registered device memory
    bool takes_lists = false;         ///< the channel sends lists of pieces as one message
    Stager* stager = nullptr;         ///< copies pieces
    std::shared_ptr<ChunkPool> pool;  ///< buffers for copies, if there is no window
  };
  explicit Loader(Options options) : options_(std::move(options)), staging_(options_.pool) {}

  struct Piece {
    Place from;
    size_t bytes = 0;
  };
  struct Loaded {
    size_t n = 0;  ///< number of pieces loaded, from the first on
    size_t bytes = 0;
    Frame::Way way{};
    std::vector<Outbox::Item> items;
    Bytes data;  ///< Inline: the pieces' bytes, instead of items
  };
  /// Loads as many pieces as there is room for, all in the same way.
  Loaded load(std::span<const Piece> pieces);
  /// Releases a partly used chunk. Call when no pieces are pending.
  void rest() { staging_.rest(); }

 private:
  [[nodiscard]] bool reaches(const Piece& piece) const {
    return piece.from.is_reached(options_.reaches_device);
  }
  [[nodiscard]] Frame::Way way_of(std::span<const Piece> pieces) const;
  static Loaded load_inline(std::span<const Piece> pieces);
  void refer(Outbox::Item& item, std::span<const Piece> run) const;
  bool place(Outbox::Item& item, Frame::Way way);
  void enqueue(Loaded& loaded, std::vector<Stager::Piece>& copies, size_t& first);

  const Options options_;
  Staging staging_;
};

}  // namespace hetccl::onesided
