// Prepares pieces for an outbox. Short pieces travel in runs, one message each. A run is a list of
// pieces where the channel reaches them and takes lists; else they are first copied together.
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

/// A run is one piece, or several pieces of at most this many bytes in total.
inline constexpr size_t kRunBytes = size_t{1} << 20;

/// Returns how many pieces from `begin` on form a run. Both ends compute the same.
template <typename Pieces, typename BytesOf>
size_t length_of_run(const Pieces& pieces, size_t begin, const BytesOf& bytes_of) {
  size_t n = 1, bytes = bytes_of(pieces[begin]);
  while (begin + n < pieces.size() && bytes + bytes_of(pieces[begin + n]) <= kRunBytes)
    bytes += bytes_of(pieces[begin + n++]);
  return n;
}

/// Used under the link's lock.
class Loader {
 public:
  struct Options {
    exec::Window* window = nullptr;   ///< shared with the peer; or null
    bool reaches_device = false;      ///< the channel reaches registered device memory
    bool takes_lists = false;         ///< the channel does
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
  /// Called when no pieces are pending.
  void rest() { staging_.rest(); }

 private:
  [[nodiscard]] bool reaches(const Piece& piece) const {
    return piece.from.is_reached(options_.reaches_device);
  }
  [[nodiscard]] Frame::Way way_of(std::span<const Piece> pieces) const;
  [[nodiscard]] bool copies(Frame::Way way, const Piece& first) const;
  static Loaded load_inline(std::span<const Piece> pieces);
  void refer(Outbox::Item& item, std::span<const Piece> run) const;
  bool place(Outbox::Item& item, Frame::Way way);
  void enqueue(Loaded& loaded, std::vector<Stager::Piece>& copies, size_t& first);

  const Options options_;
  Staging staging_;
};

}  // namespace hetccl::onesided
