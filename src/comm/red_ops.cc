#include "comm/red_ops.h"

#include <climits>
#include <cstring>
#include <string>

namespace hetccl::comm {
namespace {

// User operators begin above all built-in ones, present and future.
constexpr int kFirst = 128;

bool is_built_in(int number) {
  if (number < 0 || number >= kFirst) return false;
  const auto op = static_cast<RedOp>(number);
  return is_valid(op) && op != RedOp::PreMulSum;
}

Factor read(const void* scalar, DataType type) {
  Factor factor;
  std::memcpy(factor.element, scalar, size_of(type));
  return factor;
}

Status unknown(int number) {
  return error(ErrorCode::InvalidArgument,
               "op %d is no operator of this communicator: it was destroyed, made on another one, "
               "or never made",
               number);
}

}  // namespace

Result<int> RedOps::create(DataType type, const void* scalar, ScalarRead when) {
  if (!is_valid(type)) {
    return error(ErrorCode::InvalidArgument, "datatype %d is none that hetccl knows",
                 static_cast<int>(type));
  }
  if (scalar == nullptr) return error(ErrorCode::InvalidArgument, "scalar is null");
  PreMulSum op{.type = type, .factor = {}};
  if (when == ScalarRead::Now)
    op.factor = read(scalar, type);
  else
    op.scalar = scalar;
  std::lock_guard lock(mutex_);
  for (;;) {
    constexpr auto kNumbers = static_cast<uint32_t>(INT_MAX - kFirst);
    const int number = kFirst + static_cast<int>(numbers_.fetch_add(1) % kNumbers);
    if (made_.try_emplace(number, op).second) return number;
  }
}

Status RedOps::destroy(int number) {
  if (is_built_in(number)) {
    return error(ErrorCode::InvalidArgument,
                 "op %d is built in: only what was created is destroyed", number);
  }
  std::lock_guard lock(mutex_);
  return made_.erase(number) == 1 ? Status() : unknown(number);
}

Result<Reducer> RedOps::find(int number, DataType type) const {
  if (is_built_in(number)) return Reducer{static_cast<RedOp>(number)};
  std::lock_guard lock(mutex_);
  const auto found = made_.find(number);
  if (found == made_.end()) return unknown(number);
  const PreMulSum& op = found->second;
  if (op.type != type) {
    return error(ErrorCode::InvalidArgument,
                 "op %d was made for %s, and this call's elements are %s", number,
                 std::string(name_of(op.type)).c_str(), std::string(name_of(type)).c_str());
  }
  return Reducer{RedOp::PreMulSum, op.scalar == nullptr ? op.factor : read(op.scalar, type)};
}

}  // namespace hetccl::comm
