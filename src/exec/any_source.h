// Receives that name no rank, as MPI_ANY_SOURCE: each takes the first message of its tag, from
// whichever rank, that no receive takes which was posted before it.
#pragma once

#include <optional>
#include <vector>

#include "exec/operation.h"
#include "transport/transport.h"

namespace hetccl::exec {

/// The posted ones, in the order of posting. By whoever drives.
class AnySource {
 public:
  [[nodiscard]] bool empty() const { return posted_.empty(); }
  void post(Operation& op) { posted_.push_back(&op); }
  /// Forgets them all.
  void clear() { posted_.clear(); }
  /// Takes out the receive that a message gets which a rank sends, if one does: `incoming` is what
  /// is known of it, `next` the receive that names the rank and is to get its next message, or
  /// null.
  Operation* take(const transport::MessageInfo& incoming, const Operation* next);
  /// Whether `next` must wait: the rank's next message may be for one that was posted before it.
  [[nodiscard]] bool hold(const Operation& next,
                          const std::optional<transport::MessageInfo>& incoming) const;

 private:
  std::vector<Operation*> posted_;
};

}  // namespace hetccl::exec
