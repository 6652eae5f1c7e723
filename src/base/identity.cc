#include <cmath>
#include <cstring>
#include <limits>

#include "base/element.h"
#include "base/reduce.h"

namespace hetccl {
namespace {

template <typename T>
Factor element_of(T value) {
  Factor factor;
  std::memcpy(factor.element, &value, sizeof value);
  return factor;
}

template <typename T>
Factor integer(RedOp op) {
  if (op == RedOp::Prod) return element_of<T>(1);
  if (op == RedOp::Max) return element_of(std::numeric_limits<T>::lowest());
  if (op == RedOp::Min) return element_of(std::numeric_limits<T>::max());
  if (op == RedOp::Band) return element_of(static_cast<T>(~T{0}));
  return element_of<T>(0);
}

// `one` and `largest` are the codes of 1 and of the largest value (infinity if there is one).
template <typename T>
Factor floating(RedOp op, T one, T largest) {
  constexpr T kSign = static_cast<T>(T{1} << (8 * sizeof(T) - 1));
  if (op == RedOp::Prod) return element_of(one);
  if (op == RedOp::Max) return element_of(static_cast<T>(kSign | largest));
  if (op == RedOp::Min) return element_of(largest);
  return element_of(kSign);  // -0.0: adding 0.0 would change its sign
}

}  // namespace

Factor identity_of(DataType type, RedOp op) {
  switch (type) {
    case DataType::Int8:
      return integer<int8_t>(op);
    case DataType::Uint8:
      return integer<uint8_t>(op);
    case DataType::Int16:
      return integer<int16_t>(op);
    case DataType::Uint16:
      return integer<uint16_t>(op);
    case DataType::Int32:
      return integer<int32_t>(op);
    case DataType::Uint32:
      return integer<uint32_t>(op);
    case DataType::Int64:
      return integer<int64_t>(op);
    case DataType::Uint64:
      return integer<uint64_t>(op);
    case DataType::Float8E4m3:
      return floating<uint8_t>(op, 0x38, 0x7e);
    case DataType::Float8E5m2:
      return floating<uint8_t>(op, 0x3c, 0x7b);
    case DataType::Float16:
      return floating<uint16_t>(op, 0x3c00, 0x7c00);
    case DataType::BFloat16:
      return floating<uint16_t>(op, 0x3f80, 0x7f80);
    case DataType::Float32:
      return floating<uint32_t>(op, 0x3f800000, 0x7f800000);
    case DataType::Float64:
      return floating<uint64_t>(op, 0x3ff0000000000000, 0x7ff0000000000000);
  }
  return {};
}

bool has_down(DataType type, Divisor divisor) {
  const int least = [type] {  // the exponent of the least denormal
    switch (type) {
      case DataType::Float8E4m3:
        return -9;
      case DataType::Float8E5m2:
        return -16;
      case DataType::Float16:
        return -24;
      case DataType::BFloat16:
      case DataType::Float32:
      case DataType::Float64:
        return -126;
      default:
        return 1;
    }
  }();
  return divisor.down() >= std::ldexp(1, least);
}

Factor down_of(DataType type, Divisor divisor) {
  const auto down = static_cast<float>(divisor.down());
  switch (type) {
    case DataType::Float8E4m3:
      return element_of(element::E4m3::store(down));
    case DataType::Float8E5m2:
      return element_of(element::E5m2::store(down));
    case DataType::Float16:
      return element_of(element::Half::store(down));
    case DataType::BFloat16:
      return element_of(element::BFloat::store(down));
    case DataType::Float64:
      return element_of(divisor.down());
    default:
      return element_of(down);
  }
}

}  // namespace hetccl
