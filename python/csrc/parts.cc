#include "parts.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <algorithm>

namespace hetccl::torch_backend {
namespace {

/// Whether `parts` are contiguous in one storage, with elements in index order.
bool adjacent(const Tensors& parts) {
  const char* next = nullptr;
  for (const at::Tensor& part : parts) {
    const auto* begin = static_cast<const char*>(part.const_data_ptr());
    if (!part.is_contiguous()) return false;
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
  check_dense(where, name, whole);
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string part = c10::str(kind, " ", i);
    check_dense(where, part, parts[i]);
    check_same_type(where, part, parts[i], whole);
  }
  const auto own = static_cast<size_t>(where.rank);
  check_numel(where, c10::str(kind, " ", own), parts[own], whole.numel(),
              c10::str("as many as ", name));
}

void check_even(const Where& where, const char* kind, const Tensors& parts, const char* name,
                const at::Tensor& whole) {
  for (size_t i = 0; i < parts.size(); ++i) {
    check_numel(where, c10::str(kind, " ", i), parts[i], whole.numel(),
                c10::str("as many as ", name));
  }
}

bool are_even(const Tensors& parts) {
  return std::all_of(parts.begin(), parts.end(),
                     [&](const at::Tensor& part) { return part.numel() == parts.front().numel(); });
}

std::vector<size_t> counts_of(const Tensors& parts) {
  std::vector<size_t> counts;
  for (const at::Tensor& part : parts) counts.push_back(movable(part).count);
  return counts;
}

at::Tensor Flat::slice_of(const Tensors& parts, size_t index) const {
  return buffer_.narrow(0, offsets_[index], parts[index].numel()).view(parts[index].sizes());
}

Flat::Flat(const Tensors& parts) : in_place_(adjacent(parts)) {
  const at::Tensor& first = parts.front();
  int64_t total = 0;
  for (const at::Tensor& part : parts) {
    offsets_.push_back(total);
    total += part.numel();
  }
  buffer_ = in_place_ ? first.as_strided({total}, {1}, first.storage_offset())
                      : at::empty({total}, first.options().requires_grad(false));
}

void Flat::fill(const Tensors& parts) const {
  for (size_t i = 0; !in_place_ && i < parts.size(); ++i) {
    slice_of(parts, i).copy_(parts[i].detach());
  }
}

void Flat::spread(Request& request, const Tensors& parts) const {
  request.staging.push_back(buffer_);
  for (size_t i = 0; !in_place_ && i < parts.size(); ++i) {
    request.copies.emplace_back(parts[i], slice_of(parts, i));
  }
}

}  // namespace hetccl::torch_backend
