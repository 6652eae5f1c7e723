#include "exec/any_source.h"

#include <algorithm>

namespace hetccl::exec {
namespace {

bool has_begun(Operation& any) {
  return any.started().reached(1) && !any.given_up.load(std::memory_order_acquire);
}

bool fits(const Operation& any, const transport::MessageInfo& incoming) {
  return any.message.tag == incoming.step;
}

}  // namespace

Operation* AnySource::take(const transport::MessageInfo& incoming, const Operation* next) {
  const auto found = std::find_if(posted_.begin(), posted_.end(), [&](Operation* any) {
    return has_begun(*any) && fits(*any, incoming) &&
           (next == nullptr || any->posting < next->posting);
  });
  if (found == posted_.end()) return nullptr;
  Operation* const any = *found;
  posted_.erase(found);
  return any;
}

bool AnySource::hold(const Operation& next,
                     const std::optional<transport::MessageInfo>& incoming) const {
  return std::any_of(posted_.begin(), posted_.end(), [&](Operation* any) {
    return has_begun(*any) && any->posting < next.posting && (!incoming || fits(*any, *incoming));
  });
}

}  // namespace hetccl::exec
