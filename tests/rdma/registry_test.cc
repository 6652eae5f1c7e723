#include "transport/verbs/registry.h"

#include <doctest/doctest.h>

#include <vector>

#include "base/config.h"
#include "fake/fake_verbs.h"

namespace hetccl::transport::verbs {
namespace {

TEST_CASE("of registrations that overlap the newest is found, and the others once it has gone") {
  fake::VerbsFabric& fabric = fake::reset_verbs_fabric();
  std::vector<std::byte> memory(100'000);
  {
    const auto port = find_ports(fake::verbs_api(), Config()).value().front();
    const auto registry = std::make_shared<Registry>(std::vector{port.device});
    const auto add = [&](size_t begin, size_t bytes) {
      return registry->add({.data = memory.data() + begin, .bytes = bytes}).value();
    };
    const auto key_at = [&](size_t at) {
      const Piece piece = registry->find(memory.data() + at);
      return piece == nullptr ? 0 : piece->region(0).remote_key();
    };
    auto whole = add(0, 100'000);
    const uint32_t first = key_at(50'000);
    CHECK(first != 0);
    auto same = add(0, 100'000);
    const uint32_t second = key_at(50'000);
    CHECK(second != first);
    auto part = add(40'000, 20'000);
    CHECK(key_at(50'000) != second);
    CHECK(key_at(70'000) == 0);  // whoever registers memory anew may have it elsewhere, too
    const Piece held = registry->find(memory.data() + 50'000);
    part.reset();
    CHECK(key_at(50'000) == second);
    CHECK(held->region(0).valid());  // a transfer that has begun keeps it
    same.reset();
    CHECK(key_at(50'000) == first);
    whole.reset();
    CHECK(key_at(50'000) == 0);
    CHECK(fabric.regions == 1);
  }
  CHECK(fabric.regions == 0);
}

}  // namespace
}  // namespace hetccl::transport::verbs
