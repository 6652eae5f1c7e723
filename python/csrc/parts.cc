#include "parts.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>

namespace hetccl::torch_backend {
namespace {

/// True when `parts` lie one after the other in one storage.
bool adjacent(const Tensors& parts) {
  const char* next = nullptr;
  for (const at::Tensor& part : parts) {
    const auto* begin = static_cast<const char*>(part.const_data_ptr());
    if (begin == nullptr || (next != nullptr && begin != next)) return false;
    if (!part.is_alias_of(parts.front())) return false;
    next = begin + part.nbytes();
  }
  return true;
}

}  // namespace

void check_one(const Where& where, size_t count) {
  TORCH_CHECK_VALUE(count == 1, "hetccl: ", where.operation, " on rank ", where.rank, ": got ",
                    count, " tensors; hetccl takes one tensor per rank and call");
}

void check_lists(const Where& where, size_t outputs, size_t inputs) {
  TORCH_CHECK_VALUE(outputs == inputs && inputs > 0, "hetccl: ", where.operation, " on rank ",
                    where.rank, ": got ", outputs, " outputs for ", inputs,
                    " inputs; pass as many of one as of the other, and at least one");
}

void check_parts(const Where& where, const char* kind, const Tensors& parts, int size,
                 const char* name, const at::Tensor& whole) {
  TORCH_CHECK_VALUE(parts.size() == static_cast<size_t>(size), "hetccl: ", where.operation,
                    " on rank ", where.rank, ": the ", kind, " list has ", parts.size(),
                    " tensors, but must have one per rank: ", size);
  check_tensor(where, name, whole);
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string part = c10::str(kind, " ", i);
    check_tensor(where, part, parts[i]);
    check_same_type(where, part, parts[i], whole);
    check_numel(where, part, parts[i], whole.numel(), c10::str("as many as ", name));
  }
}

at::Tensor flat_like(const at::Tensor& part, int size) {
  return at::empty({size * part.numel()}, part.options().requires_grad(false));
}

at::Tensor slice_of(const at::Tensor& flat, const at::Tensor& part, size_t index) {
  return flat.narrow(0, static_cast<int64_t>(index) * part.numel(), part.numel())
      .view(part.sizes());
}

Flat::Flat(const Tensors& parts) : in_place_(adjacent(parts)) {
  const at::Tensor& first = parts.front();
  const auto total = static_cast<int64_t>(parts.size()) * first.numel();
  buffer_ = in_place_ ? first.as_strided({total}, {1}, first.storage_offset())
                      : flat_like(first, static_cast<int>(parts.size()));
}

void Flat::fill(const Tensors& parts) const {
  for (size_t i = 0; !in_place_ && i < parts.size(); ++i) {
    slice_of(buffer_, parts[i], i).copy_(parts[i].detach());
  }
}

void Flat::spread(Operation& operation, const Tensors& parts) const {
  operation.staging.push_back(buffer_);
  for (size_t i = 0; !in_place_ && i < parts.size(); ++i) {
    operation.copies.emplace_back(parts[i], slice_of(buffer_, parts[i], i));
  }
}

}  // namespace hetccl::torch_backend
