/// One call of the C API as a value.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "hetccl/hetccl.h"

namespace hetccl::torch_backend {

/// A tensor's content as `count` elements of `type`.
struct Elements {
  size_t count;
  hetcclDataType_t type;
};

/// A reduction in hetccl's terms: a built-in operator, or a pre-multiplied sum with its factor, one
/// element, in the first bytes.
struct Reduction {
  Elements elements;
  hetcclRedOp_t op;
  std::optional<std::array<std::byte, 8>> factor;
};

/// The arguments of a call, and memory that some of them point to.
class ApiCall {
 public:
  /// Moves `elements` from `from` to `to`. `root` is the root, or the peer of a message.
  ApiCall(hetcclFunction_t function, const Elements& elements, const void* from, void* to,
          int root = 0) {
    call_.function = function;
    call_.datatype = elements.type;
    call_.count = elements.count;
    call_.sendbuff = from;
    call_.recvbuff = to;
    call_.root = root;
  }
  ApiCall(hetcclFunction_t function, const Reduction& how, const void* from, void* to, int root = 0)
      : ApiCall(function, how.elements, from, to, root) {
    call_.op = how.op;
    factor_ = how.factor;
  }
  ApiCall&& send_counts(std::vector<size_t> counts) && {
    send_counts_ = std::move(counts);
    return std::move(*this);
  }
  ApiCall&& recv_counts(std::vector<size_t> counts) && {
    recv_counts_ = std::move(counts);
    return std::move(*this);
  }
  ApiCall&& residual(void* memory) && {
    call_.residual = memory;
    return std::move(*this);
  }
  ApiCall&& tag(uint32_t tag) && {
    call_.tag = tag;
    return std::move(*this);
  }
  /// Sets the address to which a receive from any rank writes the sender.
  ApiCall&& source(int* source) && {
    call_.source = source;
    return std::move(*this);
  }

  /// Valid while this object is not moved.
  [[nodiscard]] hetcclCall_t get() const {
    hetcclCall_t call = call_;
    call.size = sizeof(call);
    if (!send_counts_.empty()) call.sendcounts = send_counts_.data();
    if (!recv_counts_.empty()) call.recvcounts = recv_counts_.data();
    if (factor_) call.factor = factor_->data();
    return call;
  }

 private:
  hetcclCall_t call_{};
  std::vector<size_t> send_counts_, recv_counts_;
  std::optional<std::array<std::byte, 8>> factor_;
};

}  // namespace hetccl::torch_backend
