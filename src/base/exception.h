// What becomes of an exception on a thread of hetccl: an error of the communicator that it serves,
// never the end of the host process.
#pragma once

#include <functional>

#include "base/status.h"

namespace hetccl {

/// Takes the Status of an exception that has left a callback.
using OnException = std::function<void(const Status&)>;

/// Within a catch: the exception as a Status, SystemError "out of memory" of std::bad_alloc, else
/// InternalError. Throws std::bad_alloc where there is no memory for the text.
Status caught();

/// What `make` returns, a Result, or the Status of what it throws.
template <typename Make>
auto make_or_catch(Make&& make) -> decltype(make()) {
  try {
    return make();
  } catch (...) {
    return caught();
  }
}

/// Within a catch: hands the exception to `then`. False where that throws, too: no memory is left.
bool tell_caught(const OnException& then) noexcept;

}  // namespace hetccl
