#include "device/kernels/kernels.h"

#include <algorithm>
#include <cstring>

#include "base/encoding.h"

namespace hetccl::device::kernels {
namespace {

// Returns the unsigned type of the same width.
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

}  // namespace

DataType kind_of(DataType type, RedOp op) {
  const bool ignores_sign =
      op == RedOp::Sum || op == RedOp::Prod || op == RedOp::PreMulSum || is_bitwise(op);
  return ignores_sign ? unsigned_of(type) : type;
}

std::string name_of(DataType type, RedOp op) {
  std::string name = "hetccl_reduce_";
  return name.append(hetccl::name_of(kind_of(type, op))).append("_").append(hetccl::name_of(op));
}

std::string batch_name_of(DataType kind) {
  return std::string("hetccl_batch_").append(hetccl::name_of(kind));
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
