#include "device/kernels/kernels.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/encoding.h"

namespace hetccl::device::kernels {
namespace {

// The type of the same width without a sign.
DataType unsigned_of(DataType type) {
  switch (type) {
    case DataType::Int8:
      return DataType::Uint8;
    case DataType::Int16:
      return DataType::Uint16;
    case DataType::Int32:
      return DataType::Uint32;
    case DataType::Int64:
      return DataType::Uint64;
    default:
      return type;
  }
}

// What wraps, or is bitwise, has the same bits with and without a sign: there are such kernels
// once.
DataType kind_of(DataType type, RedOp op) {
  const bool ignores_sign =
      op == RedOp::Sum || op == RedOp::Prod || op == RedOp::PreMulSum || is_bitwise(op);
  return ignores_sign ? unsigned_of(type) : type;
}

}  // namespace

std::string name_of(DataType type, RedOp op) {
  std::string name = "hetccl_reduce_";
  return name.append(hetccl::name_of(kind_of(type, op))).append("_").append(hetccl::name_of(op));
}

std::string batch_name_of(DataType type, RedOp op) {
  return std::string("hetccl_batch_").append(hetccl::name_of(kind_of(type, op)));
}

// As element.cu counts them.
uint32_t number_of(RedOp op) {
  constexpr std::array kOps = {RedOp::Sum,       RedOp::Prod, RedOp::Max, RedOp::Min, RedOp::Avg,
                               RedOp::PreMulSum, RedOp::Band, RedOp::Bor, RedOp::Bxor};
  return static_cast<uint32_t>(std::find(kOps.begin(), kOps.end(), op) - kOps.begin());
}

std::string name_of(DataType type, Format format) {
  std::string name = "hetccl_reduce_encoded_";
  return name.append(hetccl::name_of(type)).append("_").append(hetccl::name_of(format));
}

Arguments arguments_of(const Reduction& reduction) {
  Arguments arguments;
  arguments.dst = reduction.dst;
  std::copy_n(reduction.srcs, reduction.n_srcs, arguments.srcs);
  arguments.count = reduction.count;
  static_assert(sizeof arguments.factor == sizeof reduction.factor.element);
  std::memcpy(&arguments.factor, reduction.factor.element, sizeof arguments.factor);
  if (reduction.op == RedOp::Avg) {
    arguments.divisor = reduction.divisor.ranks;
    arguments.down = static_cast<float>(reduction.divisor.down());
    arguments.quotient = static_cast<float>(reduction.divisor.quotient());
  }
  arguments.n_srcs = static_cast<uint32_t>(reduction.n_srcs);
  arguments.encoded = reduction.encoded;
  arguments.block = reduction.encoding.block;
  arguments.salt = reduction.salt;
  arguments.stochastic = reduction.encoding.stochastic ? 1 : 0;
  arguments.first_element = reduction.first_element;
  arguments.residual = reduction.residual;
  return arguments;
}

}  // namespace hetccl::device::kernels
