#include "base/exception.h"

#include <exception>
#include <new>

namespace hetccl {

Status caught() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return error(ErrorCode::SystemError, "out of memory");
  } catch (const std::exception& exception) {
    return error(ErrorCode::InternalError, "unexpected exception: %s", exception.what());
  } catch (...) {
    return error(ErrorCode::InternalError, "unexpected exception");
  }
}

bool report_exception(const OnException& then) noexcept {
  try {
    then(caught());
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace hetccl
