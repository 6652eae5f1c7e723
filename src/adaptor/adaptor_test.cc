// Tests which adaptors are refused.
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
  CHECK(has(refusal([](auto&, auto& library) { library.size = 0; }), "size is none"));
  CHECK(has(refusal([](auto&, auto& library) { library.size -= 4; }), "size is none"));
  CHECK(has(refusal([](auto&, auto& library) { library.device = "toy"; }), "lacks abort"));
  CHECK(has(refusal([](auto&, auto& library) { library.device = "Toy"; }), "library's device"));
  CHECK(has(refusal([](auto&, auto& library) { library.device = "host"; }), "of hetccl's own"));
  CHECK(has(refusal([](auto& table, auto&) { table.size = 0; }), "size is none"));
  CHECK(has(refusal([](auto& table, auto&) { table.size = 20; }), "size is none"));
  // Compiled with a header whose struct ended earlier.
  CHECK(has(
      refusal([](auto&, auto& library) { library.size = offsetof(hetcclLibraryAdaptor, destroy); }),
      "lacks destroy"));
  CHECK(has(check(nullptr, "it.so", {}).status().message(), "the adaptor it.so is refused"));
  CHECK(has(load("/nonexistent/adaptor.so", {}).status().message(), "refused"));
  CHECK(has(load("libc.so.6", {}).status().message(), "it exports no hetcclAdaptor"));
}

TEST_CASE("what is refused of a device, with the reason") {
  const auto refused = [](const std::function<void(hetcclDeviceAdaptor&)>& change) {
    hetcclDeviceAdaptor device = fake::device_of_stubs("toy");
    change(device);
    hetcclAdaptorTable table = fake::table_of(nullptr);
    table.device = &device;
    const auto made = check(&table, "it.so", {"cuda"});
    if (!made.ok()) return made.status().message();
    CHECK(made.value()->device->name == "toy");
    CHECK_FALSE(made.value()->library);
    CHECK_FALSE(made.value()->serves_hosts());
    return std::string();
  };
  CHECK(refused([](auto&) {}) == "");
  CHECK(has(refused([](auto& device) { device.name = "cuda"; }), "its name"));
  CHECK(has(refused([](auto& device) { device.wait_word = nullptr; }), "lacks wait_word"));
  CHECK(has(refused([](auto& device) { device.capabilities = 1; }), "0x1"));
  CHECK(has(refused([](auto& device) { device.reduce = nullptr; }), "lacks reduces or reduce"));
  CHECK(refused([](auto& device) { device.reduce = nullptr, device.reduces = nullptr; }) == "");
  CHECK(refused([](auto& device) { device.size = offsetof(hetcclDeviceAdaptor, reduces); }) == "");
  CHECK(has(refused([](auto& device) { device.size = offsetof(hetcclDeviceAdaptor, call_host); }),
            "lacks call_host"));
}

}  // namespace
}  // namespace hetccl::adaptor
