// Tables of the fake runtimes, for tests of this room.
#pragma once

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <initializer_list>
#include <string>

#include "fake/runtime_calls.h"
#include "runtime/load.h"

namespace hetccl::runtime {

/// A fake library, and its table.
struct Fake {
  const hetcclRuntime* table;
  bool hip;
  const fake::RuntimeCall* call;
  fake::RuntimeAnswers* answers;
};

/// Loads the fake of "cuda" or "hip", which this process then keeps.
inline Fake load_fake(const std::string& platform) {
  const bool hip = platform == "hip";
  const std::string path =
      HETCCL_FAKE_RUNTIMES + std::string(hip ? "/libamdhip64.so.6" : "/libcudart.so.13");
  const auto table = load({platform, path, {}}, {});
  REQUIRE_MESSAGE(table.ok(), table.status().message());
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(library != nullptr);
  using Call = const fake::RuntimeCall*();
  using Answers = fake::RuntimeAnswers*();
  auto* const call = reinterpret_cast<Call*>(dlsym(library, "fake_last_call"));
  auto* const answers = reinterpret_cast<Answers*>(dlsym(library, "fake_answers"));
  *answers() = {};
  return {table.value(), hip, call(), answers()};
}

template <typename Value>
uint64_t number_of(Value value) {
  if constexpr (std::is_pointer_v<Value>) return reinterpret_cast<uintptr_t>(value);
  if constexpr (std::is_integral_v<Value>) return static_cast<std::make_unsigned_t<Value>>(value);
  return 0;
}

/// Checks that the fake's function of this name was called with these arguments.
template <typename... Values>
void check_call(const Fake& fake, const std::string& name, Values... values) {
  INFO(name);
  CHECK(fake.call->symbol == (fake.hip ? "hip" : "cuda") + name);
  const std::array<uint64_t, sizeof...(values)> expected = {number_of(values)...};
  REQUIRE(fake.call->count == static_cast<int>(expected.size()));
  for (size_t i = 0; i < expected.size(); ++i) {
    INFO("argument ", i);
    CHECK(fake.call->arguments[i] == expected.at(i));
  }
}

}  // namespace hetccl::runtime
