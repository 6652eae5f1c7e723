// The C API's functions that encode and decode: check arguments, and run on the host or a device.
#include <cstdint>
#include <string>

#include "base/encoding.h"
#include "capi/process.h"
#include "hetccl/hetccl.h"

using hetccl::DataType;
using hetccl::Encoding;
using hetccl::error;
using hetccl::ErrorCode;
using hetccl::Reduction;
using hetccl::Result;
using hetccl::Status;
using hetccl::capi::finished;
using hetccl::capi::narrow;
using hetccl::capi::null;
using hetccl::capi::with;
using hetccl::comm::Communicator;

namespace {

constexpr size_t kMostElements = size_t{1} << 60U;
constexpr size_t kCodesAlignment = alignof(float);  // alignment of a block's scale

// Memory that a caller passes.
struct Array {
  const char* argument;
  const void* data;
  size_t bytes;
  size_t alignment;
};

Result<Encoding> read_encoding(const char* text) {
  if (text == nullptr) return null("encoding");
  auto encoding = hetccl::parse_encoding(text);
  if (!encoding.ok()) return encoding.status().with("encoding");
  if (encoding->is_none()) {
    return error(ErrorCode::InvalidArgument, "encoding is empty: give int8, int4, e4m3 or e5m2");
  }
  return encoding;
}

Status check_count(size_t count) {
  if (count <= kMostElements) return {};
  return error(ErrorCode::InvalidArgument, "count %zu is too large", count);
}

Result<DataType> read_type(hetcclDataType_t datatype) {
  const auto type = narrow<DataType>(datatype);
  if (hetccl::has_encoding(type)) return type;
  const std::string name = hetccl::is_valid(type) ? std::string(hetccl::name_of(type))
                                                  : std::to_string(static_cast<int>(datatype));
  return error(ErrorCode::InvalidArgument,
               "datatype %s has no encoding: float32, float16 and bfloat16 have", name.c_str());
}

Status check(const Array& array) {
  if (array.data == nullptr && array.bytes > 0) return null(array.argument);
  if (reinterpret_cast<uintptr_t>(array.data) % array.alignment == 0) return {};
  return error(ErrorCode::InvalidArgument, "%s is %p: it must be aligned to %zu bytes",
               array.argument, array.data, array.alignment);
}

Status check_apart(const Array& one, const Array& other) {
  const auto a = reinterpret_cast<uintptr_t>(one.data), b = reinterpret_cast<uintptr_t>(other.data);
  if (a >= b + other.bytes || b >= a + one.bytes) return {};
  return error(ErrorCode::InvalidArgument, "%s and %s overlap: keep them apart", one.argument,
               other.argument);
}

// Arguments of a call: hetcclEncode if `encodes`, else hetcclDecode.
struct Recoding {
  bool encodes;
  const void* from;
  void* to;
  size_t count;
  hetcclDataType_t datatype;
  const char* encoding;
};

Result<Reduction> reduction_of(const Recoding& recoding) {
  Reduction reduction;
  HETCCL_ASSIGN(reduction.encoding, read_encoding(recoding.encoding));
  if (reduction.encoding.stochastic) {
    return error(ErrorCode::InvalidArgument,
                 "encoding \"%s\": collectives alone round at random; leave out \":stochastic\"",
                 recoding.encoding);
  }
  HETCCL_ASSIGN(reduction.type, read_type(recoding.datatype));
  HETCCL_TRY(check_count(recoding.count));
  const size_t width = size_of(reduction.type);
  const size_t codes_bytes = hetccl::encoded_bytes(reduction.encoding, recoding.count);
  const Array elements{recoding.encodes ? "source" : "target",
                       recoding.encodes ? recoding.from : recoding.to, recoding.count * width,
                       width};
  const Array codes{"codes", recoding.encodes ? recoding.to : recoding.from, codes_bytes,
                    kCodesAlignment};
  HETCCL_TRY(check(elements));
  HETCCL_TRY(check(codes));
  HETCCL_TRY(check_apart(elements, codes));
  reduction.srcs[0] = recoding.from;
  reduction.n_srcs = 1;
  reduction.dst = recoding.to;
  reduction.count = recoding.count;
  reduction.op = hetccl::RedOp::Sum;
  reduction.encoded = 1U << (recoding.encodes ? Reduction::kMaxSources : 0);
  return reduction;
}

hetcclResult_t recode(const Recoding& recoding, hetcclComm_t comm, hetcclStream_t stream) {
  if (comm != nullptr) {
    return with(comm, [&](Communicator& self) -> Status {
      HETCCL_ASSIGN(const Reduction reduction, reduction_of(recoding));
      return self.dispatch().recode(reduction, stream);
    });
  }
  return finished([&]() -> Status {
    HETCCL_ASSIGN(const Reduction reduction, reduction_of(recoding));
    if (stream != nullptr) {
      return error(ErrorCode::InvalidArgument,
                   "stream is not null, but comm is: the calling thread encodes");
    }
    hetccl::reduce_encoded(reduction, 0, reduction.count);
    return {};
  });
}

}  // namespace

hetcclResult_t hetcclEncodedBytes(size_t count, const char* encoding, size_t* bytes) {
  return finished([&]() -> Status {
    if (bytes == nullptr) return null("bytes");
    HETCCL_ASSIGN(const Encoding wire, read_encoding(encoding));
    HETCCL_TRY(check_count(count));
    *bytes = hetccl::encoded_bytes(wire, count);
    return {};
  });
}

hetcclResult_t hetcclEncode(const void* source, void* codes, size_t count,
                            hetcclDataType_t datatype, const char* encoding, hetcclComm_t comm,
                            hetcclStream_t stream) {
  return recode({true, source, codes, count, datatype, encoding}, comm, stream);
}

hetcclResult_t hetcclDecode(const void* codes, void* target, size_t count,
                            hetcclDataType_t datatype, const char* encoding, hetcclComm_t comm,
                            hetcclStream_t stream) {
  return recode({false, codes, target, count, datatype, encoding}, comm, stream);
}
