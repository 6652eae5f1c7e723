// Which adaptors are refused.
#include "adaptor/adaptor.h"

#include <doctest/doctest.h>

#include <functional>

#include "fake/host_adaptor.h"

namespace hetccl::adaptor {
namespace {

std::string refusal(const std::function<void(hetcclAdaptorTable&, hetcclLibraryAdaptor&)>& change) {
  hetcclAdaptorTable table = fake::host_adaptor();
  hetcclLibraryAdaptor library = *table.library;
  table.library = &library;
  change(table, library);
  const auto made = check(&table, "it.so", {"host", "nccl"});
  return made.ok() ? "" : made.status().message();
}

bool has(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("what is refused, with the reason") {
  CHECK(refusal([](auto&, auto&) {}) == "");
  CHECK(has(refusal([](auto& table, auto&) { table.abi = 2; }), "compiled for ABI 2 of adaptors"));
  CHECK(has(refusal([](auto& table, auto&) { table.library = nullptr; }), "its table is empty"));
  CHECK(has(refusal([](auto&, auto& library) { library.name = "host"; }), "its name"));
  CHECK(has(refusal([](auto&, auto& library) { library.name = "Big"; }), "its name"));
  CHECK(has(refusal([](auto&, auto& library) { library.name = nullptr; }), "its name"));
  CHECK(has(refusal([](auto&, auto& library) { library.version = ""; }), "its version"));
  CHECK(has(refusal([](auto&, auto& library) { library.test = nullptr; }), "lacks test"));
  CHECK(has(refusal([](auto&, auto& library) { library.capabilities = 1U << 20; }), "0x100000"));
  CHECK(has(refusal([](auto&, auto& library) { library.size = 0; }), "size is 0"));
  CHECK(has(refusal([](auto& table, auto&) { table.size = 0; }), "size is 0"));
  // Compiled with a header whose struct ended earlier.
  CHECK(has(
      refusal([](auto&, auto& library) { library.size = offsetof(hetcclLibraryAdaptor, destroy); }),
      "lacks destroy"));
  CHECK(has(check(nullptr, "it.so", {}).status().message(), "the adaptor it.so is refused"));
  CHECK(has(load("/nonexistent/adaptor.so", {}).status().message(), "refused"));
  CHECK(has(load("libc.so.6", {}).status().message(), "it exports no hetcclAdaptor"));
}

}  // namespace
}  // namespace hetccl::adaptor
