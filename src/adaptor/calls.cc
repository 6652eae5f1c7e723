#include "adaptor/calls.h"

namespace hetccl::adaptor {

Status not_in_time(const char* what, const WaitLimit& limit) {
  return error(Code::Timeout, "the adaptor's %s has not ended within %lld ms", what,
               static_cast<long long>(limit.timeout_ms));
}

}  // namespace hetccl::adaptor
