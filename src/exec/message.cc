#include "exec/message.h"

#include "base/status.h"

namespace hetccl::exec {

std::string describe(const Message& message) {
  if (message.peer == kAnyRank) {
    return format("recv of %llu %s from any rank%s", static_cast<unsigned long long>(message.count),
                  name_of(message.type).data(),
                  message.tag == 0 ? "" : format(" with tag %u", message.tag).c_str());
  }
  return format("%s of %llu %s %s rank %d", message.send ? "send" : "recv",
                static_cast<unsigned long long>(message.count), name_of(message.type).data(),
                message.send ? "to" : "from", message.peer);
}

}  // namespace hetccl::exec
