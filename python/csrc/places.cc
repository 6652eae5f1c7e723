#include "places.h"

#include <c10/util/StringUtil.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

namespace hetccl::torch_backend {
namespace {

/// FNV-1a, 64 bits: the same on all ranks, for any standard library.
uint64_t hash_of(const std::vector<int64_t>& ranks) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const int64_t rank : ranks) {
    for (unsigned shift = 0; shift < 64; shift += 8) {
      hash ^= (static_cast<uint64_t>(rank) >> shift) & 0xffU;
      hash *= 0x100000001b3;
    }
  }
  return hash;
}

}  // namespace

Places::Places(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

c10::intrusive_ptr<c10d::Store> Places::enter(const std::vector<int64_t>& global_ranks) {
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = entered_[global_ranks]++;
  }
  const std::string name = c10::str("hetccl/members/", hash_of(global_ranks), "/",
                                    global_ranks.size(), "/", number, "/");
  return c10::make_intrusive<c10d::PrefixStore>(name, store_->clone());
}

}  // namespace hetccl::torch_backend
