// Turns an exception on one of hetccl's threads into an error of its communicator. It never ends
// the host process.
#pragma once

#include <functional>

#include "base/status.h"

namespace hetccl {

/// Takes the Status of an exception that has left a callback.
using OnException = std::function<void(const Status&)>;

/// Call within a catch. Returns the exception as a Status: SystemError "out of memory" for
/// std::bad_alloc, else InternalError. Throws std::bad_alloc if there is no memory for the text.
Status caught();

/// Returns the Result of `make`, or the Status of its exception.
template <typename Make>
auto make_or_catch(Make&& make) -> decltype(make()) {
  try {
    return make();
  } catch (...) {
    return caught();
  }
}

/// Call within a catch. Passes the exception to `then`. Returns false if that throws, too, for lack
/// of memory.
bool report_exception(const OnException& then) noexcept;

}  // namespace hetccl
