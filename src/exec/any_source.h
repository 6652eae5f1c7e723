// Receives from any source, as MPI_ANY_SOURCE. Each takes the first message with its tag, from any
// rank, unless a receive posted earlier takes that message.
#pragma once

#include <optional>
#include <vector>

#include "exec/operation.h"
#include "transport/transport.h"

namespace hetccl::exec {

/// The posted any-source receives, in order of posting. Used by the driving thread.
class AnySource {
 public:
  [[nodiscard]] bool empty() const { return posted_.empty(); }
  void post(Operation& op) { posted_.push_back(&op); }
  /// Removes all receives.
  void clear() { posted_.clear(); }
  /// Removes and returns the any-source receive that gets the `incoming` message; null: none does.
  /// `next` is the receive that names the sender and gets its next message, or null.
  Operation* take(const transport::MessageInfo& incoming, const Operation* next);
  /// Returns whether `next` must wait, because its rank's next message may match a receive posted
  /// earlier.
  [[nodiscard]] bool hold(const Operation& next,
                          const std::optional<transport::MessageInfo>& incoming) const;

 private:
  std::vector<Operation*> posted_;
};

}  // namespace hetccl::exec
