#include "base/dynlib.h"

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

namespace hetccl {
namespace {

TEST_CASE("a library that the process has loaded is reused, whatever its place in the list") {
  const std::vector<std::string> names = {"libhetccl-does-not-exist.so.9", "libc.so.6"};
  auto library = DynLib::open(names);
  REQUIRE(library.ok());
  CHECK(library->path().find("libc.so.6") != std::string::npos);
  void* address = library->symbol("strlen");
  REQUIRE(address);
  CHECK(reinterpret_cast<size_t (*)(const char*)>(address)("four") == 4);
  CHECK(library->symbol("hetccl_no_such_symbol") == nullptr);
}

TEST_CASE("what failed is listed") {
  const std::vector<std::string> names = {"libhetccl-a.so", "libhetccl-b.so"};
  const auto library = DynLib::open(names);
  CHECK(library.status().code() == Code::SystemError);
  CHECK(library.status().message().find("libhetccl-a.so") != std::string::npos);
  CHECK(library.status().message().find("libhetccl-b.so") != std::string::npos);
  CHECK(DynLib::open({}).status().code() == Code::SystemError);
}

TEST_CASE("a library can be moved") {
  const std::vector<std::string> names = {"libc.so.6"};
  auto first = DynLib::open(names);
  auto second = DynLib::open(names);
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  DynLib moved = std::move(first).value();
  moved = std::move(second).value();
  CHECK(moved.symbol("strlen") != nullptr);
}

}  // namespace
}  // namespace hetccl
