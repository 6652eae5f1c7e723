// The base of adaptors' libraries: answers from their tables, ids and init.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "adaptor/adaptor.h"
#include "ccl/ccl.h"

namespace hetccl::ccl {

class FoundLibrary : public Library {
 public:
  using Part = adaptor::Part<hetcclLibraryAdaptor>;

  explicit FoundLibrary(const std::shared_ptr<const adaptor::Adaptor>& adaptor)
      : part_(adaptor, &adaptor->library.value()) {}
  [[nodiscard]] std::string name() const override { return part_->name; }
  [[nodiscard]] std::string version() const override { return part_->version; }
  [[nodiscard]] bool supports_exchange() const override { return can(HETCCL_LIBRARY_EXCHANGES); }
  [[nodiscard]] bool sends() const override { return can(HETCCL_LIBRARY_SENDS); }
  [[nodiscard]] Reach reach() const override {
    return {can(HETCCL_LIBRARY_JOINS_HOSTS), can(HETCCL_LIBRARY_JOINS_ARCHITECTURES)};
  }
  Result<UniqueId> unique_id(int n_ranks, const WaitLimit& limit) override;

 protected:
  /// Makes the adaptor's communicator. May wait for other ranks.
  static Result<void*> init_by(const Part& part, const UniqueId& id, int n_ranks, int rank,
                               int64_t timeout_ms);
  [[nodiscard]] const std::shared_ptr<const Part>& part() const { return part_; }

 private:
  [[nodiscard]] bool can(uint32_t capability) const {
    return (part_->calls.capabilities & capability) != 0;
  }
  const std::shared_ptr<const Part> part_;
};

}  // namespace hetccl::ccl
