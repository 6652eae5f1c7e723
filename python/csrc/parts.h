/// A list of tensors, one per rank, as the one flat buffer that the C API needs.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "tensors.h"
#include "work.h"

namespace hetccl::torch_backend {

/// Throws unless there is exactly one tensor.
void check_one(const Where& where, size_t count);
/// Throws unless there are as many outputs as inputs, and at least one.
void check_lists(const Where& where, size_t outputs, size_t inputs);
/// Throws unless there is one part per rank, all of `whole`'s type, and this rank's part has as
/// many elements as `whole`. Errors call the parts `kind` ("output") and the tensor `name` ("the
/// input").
void check_parts(const Where& where, const char* kind, const Tensors& parts, int size,
                 const char* name, const at::Tensor& whole);
/// Throws unless all parts have as many elements as `whole`.
void check_even(const Where& where, const char* kind, const Tensors& parts, const char* name,
                const at::Tensor& whole);
[[nodiscard]] bool are_even(const Tensors& parts);
/// Number of elements of each part, as hetccl moves them.
[[nodiscard]] std::vector<size_t> counts_of(const Tensors& parts);

/// Uses parts in place if they are contiguous in one storage; otherwise allocates a buffer.
class Flat {
 public:
  /// `parts` must have passed check_parts.
  explicit Flat(const Tensors& parts);

  [[nodiscard]] const at::Tensor& buffer() const { return buffer_; }
  /// Copies the parts into the buffer now.
  void fill(const Tensors& parts) const;
  /// Keeps the buffer until `request` is complete, and copies it to the parts then.
  void spread(Request& request, const Tensors& parts) const;

 private:
  [[nodiscard]] at::Tensor slice_of(const Tensors& parts, size_t index) const;

  bool in_place_;
  at::Tensor buffer_;
  std::vector<int64_t> offsets_;
};

}  // namespace hetccl::torch_backend
