// The conversions of small floats: every code, and every boundary between two of them.
#include "base/element.h"

#include <doctest/doctest.h>

#include <cmath>

#include "fake/reference.h"

using namespace hetccl;
using namespace hetccl::fake;

namespace {

bool same(float a, double b) {
  return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
}

// Returns whether `value` is stored as `code`, also by the conversion of finite values if there is
// one.
template <typename Type>
bool stores(float value, int code) {
  if constexpr (requires { Type::store_finite(value); }) {
    if (std::isfinite(value) && Type::store_finite(value) != code) return false;
  }
  return Type::store(value) == code;
}

template <typename Type>
void check_code(const SmallFloat& kind, int code) {
  const float value = Type::load(static_cast<typename Type::Word>(code));
  CHECK_MESSAGE(same(value, kind.decode(code)), "code ", code);
  const int back = Type::store(value);
  CHECK_MESSAGE(back == kind.encode(value), "code ", code);
  if (std::isfinite(value)) CHECK_MESSAGE(stores<Type>(value, code), "code ", code);
}

// Checks the midpoint of two neighbours and the floats next to it, with both signs.
template <typename Type>
void check_boundary(const SmallFloat& kind, double low, double high) {
  const auto middle = static_cast<float>((low + high) / 2);
  for (float near : {std::nextafter(middle, -INFINITY), middle, std::nextafter(middle, INFINITY)})
    for (float value : {near, -near})
      CHECK_MESSAGE(stores<Type>(value, kind.encode(value)), "float ", value);
}

template <typename Type>
void check_type(const SmallFloat& kind) {
  for (int code = 0; code < 1 << kind.width; ++code) check_code<Type>(kind, code);
  for (int code = 0; code < kind.largest; ++code)
    check_boundary<Type>(kind, kind.decode(code), kind.decode(code + 1));
  // The place of the next code if there were more exponents: beyond it fp8 saturates.
  const double largest = kind.decode(kind.largest), below = kind.decode(kind.largest - 1);
  const auto beyond = static_cast<float>(largest + (largest - below) / 2);
  for (float value : {std::nextafter(beyond, 0.0F), beyond, std::nextafter(beyond, INFINITY)})
    for (float either : {value, -value}) CHECK(Type::store(either) == kind.encode(either));
  for (float value : {1e-45F, 1e-38F, 1e10F, 3.4e38F, INFINITY, NAN})
    for (float either : {value, -value}) CHECK(Type::store(either) == kind.encode(either));
}

}  // namespace

TEST_CASE("small floats: all codes, and the floats around all rounding boundaries") {
  check_type<element::E4m3>(kE4m3);
  check_type<element::E5m2>(kE5m2);
  check_type<element::Half>(kHalf);
  check_type<element::BFloat>(kBFloat);
}

TEST_CASE("fp8: the ranges of the formats") {
  CHECK(element::E4m3::load(0x7e) == 448.0F);
  CHECK(std::isnan(element::E4m3::load(0x7f)));
  CHECK(element::E4m3::load(0x01) == 0x1p-9F);
  CHECK(element::E5m2::load(0x7b) == 57344.0F);
  CHECK(element::E5m2::load(0x7c) == INFINITY);
  CHECK(std::isnan(element::E5m2::load(0x7d)));
  CHECK(element::E5m2::load(0x01) == 0x1p-16F);
}
