#include "ccl/adaptor/found_library.h"

#include "adaptor/calls.h"

namespace hetccl::ccl {

static_assert(sizeof(UniqueId) == HETCCL_ADAPTOR_ID_BYTES);

Result<UniqueId> FoundLibrary::unique_id(int n_ranks, const WaitLimit& limit) {
  const auto make = [part = part_, n_ranks]() -> Result<UniqueId> {
    UniqueId id;
    HETCCL_TRY(adaptor::ask(*part, "making an id",
                            [&] { return part->calls.make_id(n_ranks, id.bytes); }));
    return id;
  };
  return adaptor::run_within<UniqueId>(limit, "make_id", make);
}

Result<void*> FoundLibrary::init_by(const Part& part, const UniqueId& id, int n_ranks, int rank,
                                    int64_t timeout_ms) {
  void* made = nullptr;
  HETCCL_TRY(adaptor::ask(
      part, "init", [&] { return part.calls.init(id.bytes, n_ranks, rank, timeout_ms, &made); }));
  if (made == nullptr) {
    return error(ErrorCode::SystemError, "%s: init has made no communicator, but returned success",
                 part.name.c_str());
  }
  return made;
}

}  // namespace hetccl::ccl
