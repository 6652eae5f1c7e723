#include "exec/arena.h"

#include <algorithm>

namespace hetccl::exec {

Arena::~Arena() {
  if (data_ == nullptr) return;
  kind_ == Kind::Device ? device_.free(data_) : device_.free_pinned(data_);
}

Status Arena::reserve(size_t bytes) {
  if (bytes <= bytes_) return {};
  const size_t wanted = std::max(bytes, 2 * bytes_);
  HETCCL_ASSIGN(void* fresh,
                kind_ == Kind::Device ? device_.allocate(wanted) : device_.allocate_pinned(wanted));
  if (data_ != nullptr) kind_ == Kind::Device ? device_.free(data_) : device_.free_pinned(data_);
  data_ = static_cast<std::byte*>(fresh);
  bytes_ = wanted;
  return {};
}

}  // namespace hetccl::exec
