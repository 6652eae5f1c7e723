#include "adaptor/calls.h"

#include <cstring>

#include "base/printable.h"

namespace hetccl::adaptor {

Status failed(const std::string& name, const char* what, const char* text) {
  constexpr size_t kLongestText = 512;
  const std::string words =
      text == nullptr ? "unknown error" : std::string(text, strnlen(text, kLongestText));
  return error(ErrorCode::SystemError, "%s: %s: %s", name.c_str(), what,
               printable(words, kLongestText).c_str());
}

Status threw(const std::string& name, const char* what) {
  return error(ErrorCode::SystemError, "%s: %s: an exception has left the adaptor", name.c_str(),
               what);
}

Status not_in_time(const char* what, const WaitLimit& limit) {
  return error(ErrorCode::Timeout, "the adaptor's %s has not ended within %lld ms", what,
               static_cast<long long>(limit.timeout_ms));
}

}  // namespace hetccl::adaptor
