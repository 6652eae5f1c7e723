#include "base/types.h"

#include <vector>

#include "base/encoding.h"

namespace hetccl {
namespace {

std::vector<Collective> all_collectives() {
  std::vector<Collective> all;
  for (uint8_t value = 0; value < static_cast<uint8_t>(Collective::PointToPoint); ++value) {
    all.push_back(static_cast<Collective>(value));
  }
  return all;
}

std::string arguments_of(const Signature& call) {
  if (call.collective == Collective::Barrier) return "";
  std::string text = " (";
  const bool counted = !call.uneven || call.collective == Collective::AllGather ||
                       call.collective == Collective::ReduceScatter;
  if (counted) text += std::to_string(call.count) + " ";
  text += name_of(call.type);
  if (reduces(call.collective)) text.append(", ").append(name_of(call.op));
  if (is_rooted(call.collective)) text += ", root " + std::to_string(call.root);
  if (!call.encoding.is_none()) text += ", as " + name_of(call.encoding);
  return text + ")";
}

}  // namespace

size_t size_of(DataType type) {
  switch (type) {
    case DataType::Int8:
    case DataType::Uint8:
    case DataType::Float8E4m3:
    case DataType::Float8E5m2:
      return 1;
    case DataType::Float16:
    case DataType::BFloat16:
    case DataType::Int16:
    case DataType::Uint16:
      return 2;
    case DataType::Int32:
    case DataType::Uint32:
    case DataType::Float32:
      return 4;
    case DataType::Int64:
    case DataType::Uint64:
    case DataType::Float64:
      return 8;
  }
  return 0;
}

std::string_view name_of(DataType type) {
  switch (type) {
    case DataType::Int8:
      return "int8";
    case DataType::Uint8:
      return "uint8";
    case DataType::Int32:
      return "int32";
    case DataType::Uint32:
      return "uint32";
    case DataType::Int64:
      return "int64";
    case DataType::Uint64:
      return "uint64";
    case DataType::Float16:
      return "float16";
    case DataType::Float32:
      return "float32";
    case DataType::Float64:
      return "float64";
    case DataType::BFloat16:
      return "bfloat16";
    case DataType::Float8E4m3:
      return "float8_e4m3";
    case DataType::Float8E5m2:
      return "float8_e5m2";
    case DataType::Int16:
      return "int16";
    case DataType::Uint16:
      return "uint16";
  }
  return "unknown type";
}

std::string_view name_of(RedOp op) {
  switch (op) {
    case RedOp::Sum:
      return "sum";
    case RedOp::Prod:
      return "prod";
    case RedOp::Max:
      return "max";
    case RedOp::Min:
      return "min";
    case RedOp::Avg:
      return "avg";
    case RedOp::PreMulSum:
      return "premul_sum";
    case RedOp::Band:
      return "band";
    case RedOp::Bor:
      return "bor";
    case RedOp::Bxor:
      return "bxor";
  }
  return "unknown reduction";
}

std::string_view name_of(Collective collective) {
  switch (collective) {
    case Collective::AllReduce:
      return "all_reduce";
    case Collective::ReduceScatter:
      return "reduce_scatter";
    case Collective::AllGather:
      return "all_gather";
    case Collective::Broadcast:
      return "broadcast";
    case Collective::Reduce:
      return "reduce";
    case Collective::Barrier:
      return "barrier";
    case Collective::Gather:
      return "gather";
    case Collective::Scatter:
      return "scatter";
    case Collective::AllToAll:
      return "all_to_all";
    case Collective::PointToPoint:
      return "send/recv";
  }
  return "unknown collective";
}

std::optional<Collective> parse_collective(std::string_view name) {
  for (const Collective collective : all_collectives()) {
    if (name_of(collective) == name) return collective;
  }
  return std::nullopt;
}

std::string collective_names() {
  std::string names;
  for (const Collective collective : all_collectives()) {
    names.append(names.empty() ? "" : ", ").append(name_of(collective));
  }
  return names;
}

std::string name_of(const Signature& call) {
  return std::string(name_of(call.collective)) + (call.uneven ? "_v" : "");
}

std::string describe(const Signature& call) {
  return name_of(call) + arguments_of(call);
}

std::string describe(const Signature& call, uint64_t sequence) {
  return name_of(call) + " #" + std::to_string(sequence) + arguments_of(call);
}

bool reduces(Collective collective) {
  return collective == Collective::AllReduce || collective == Collective::ReduceScatter ||
         collective == Collective::Reduce;
}

bool is_rooted(Collective collective) {
  return collective == Collective::Broadcast || collective == Collective::Reduce ||
         collective == Collective::Gather || collective == Collective::Scatter;
}

bool is_valid(DataType type) {
  return size_of(type) != 0;
}

bool is_valid(RedOp op) {
  return static_cast<uint8_t>(op) <= static_cast<uint8_t>(RedOp::PreMulSum) || is_bitwise(op);
}

bool is_integer(DataType type) {
  switch (type) {
    case DataType::Float8E4m3:
    case DataType::Float8E5m2:
    case DataType::Float16:
    case DataType::BFloat16:
    case DataType::Float32:
    case DataType::Float64:
      return false;
    default:
      return true;
  }
}

bool is_bitwise(RedOp op) {
  return op == RedOp::Band || op == RedOp::Bor || op == RedOp::Bxor;
}

bool applies(RedOp op, DataType type) {
  return !is_bitwise(op) || is_integer(type);
}

}  // namespace hetccl
