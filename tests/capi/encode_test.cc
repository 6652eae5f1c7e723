// Encoding by hand gives the bits of base/encoding.h, and of collectives; errors name the argument.
#include <random>

#include "base/encoding.h"
#include "threads.h"

namespace hetccl::capi_test {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::pair<hetcclDataType_t, DataType> kTypes[] = {{hetcclFloat32, DataType::Float32},
                                                            {hetcclFloat16, DataType::Float16},
                                                            {hetcclBfloat16, DataType::BFloat16}};

// Elements of `type`: any bits below 2, and now and then any at all, infinities and NaNs among
// them.
Bytes random_elements(DataType type, size_t count) {
  std::mt19937 random(static_cast<uint32_t>(count));
  Bytes bytes(count * size_of(type));
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  for (size_t i = 0; i < count; ++i) {
    if (i % 1000 != 0) bytes[(i + 1) * size_of(type) - 1] &= std::byte{0xbf};
  }
  return bytes;
}

// Result of base/encoding.h for `from`, which holds codes unless `encodes`.
Bytes expected(bool encodes, const Bytes& from, size_t count, DataType type, const char* text) {
  const Encoding encoding = parse_encoding(text).value();
  Bytes to(encodes ? encoded_bytes(encoding, count) : count * size_of(type));
  Reduction call{.dst = to.data(), .n_srcs = 1, .count = count, .type = type, .op = RedOp::Sum};
  call.srcs[0] = from.data();
  call.encoding = encoding;
  call.encoded = 1U << (encodes ? Reduction::kMaxSources : 0);
  reduce_encoded(call, 0, count);
  return to;
}

void check_bits(size_t count, const char* encoding, hetcclComm_t comm, hetcclStream_t stream) {
  for (const auto& [number, type] : kTypes) {
    const Bytes source = random_elements(type, count);
    size_t bytes = 0;
    REQUIRE(hetcclEncodedBytes(count, encoding, &bytes) == hetcclSuccess);
    Bytes codes(bytes), target(source.size());
    REQUIRE(hetcclEncode(source.data(), codes.data(), count, number, encoding, comm, stream) ==
            hetcclSuccess);
    // In the stream's order: it has not read the codes before they are there.
    REQUIRE(hetcclDecode(codes.data(), target.data(), count, number, encoding, comm, stream) ==
            hetcclSuccess);
    if (stream != nullptr) {
      uint64_t ticket = 0;
      REQUIRE(hetcclHostStreamRecord(stream, &ticket) == hetcclSuccess);
      REQUIRE(hetcclHostStreamWait(stream, ticket, kLimitMs) == hetcclSuccess);
    }
    const Bytes wanted = expected(true, source, count, type, encoding);
    CHECK(codes == wanted);
    CHECK(target == expected(false, wanted, count, type, encoding));
  }
}

TEST_CASE("host memory is encoded to the bits of base/encoding.h, with a communicator or without") {
  const auto comms = join(1, false);
  hetcclStream_t stream = nullptr;
  REQUIRE(hetcclHostStreamCreate(&stream) == hetcclSuccess);
  for (const char* encoding : {"int8", "int4:32", "e4m3:512", "e5m2"}) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{77}, size_t{1'000'003}}) {
      check_bits(count, encoding, nullptr, nullptr);
      check_bits(count, encoding, comms[0], nullptr);
      check_bits(count, encoding, comms[0], stream);
    }
  }
  CHECK(hetcclHostStreamDestroy(stream) == hetcclSuccess);
  CHECK(hetcclCommDestroy(comms[0]) == hetcclSuccess);
}

// One cluster, whose all-gathers are encoded because of the options alone.
std::vector<hetcclComm_t> join_encoded(const char* gathers, const std::vector<int>& inside,
                                       std::vector<std::string>& errors) {
  hetcclUniqueId id;
  REQUIRE(hetcclGetUniqueId(&id) == hetcclSuccess);
  const auto n_ranks = static_cast<int>(inside.size());
  std::vector<hetcclComm_t> comms(inside.size());
  errors.assign(inside.size(), "");
  on_all_ranks(n_ranks, [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    hetcclConfig_t config = config_of(rank, false);
    config.wire_gather = gathers;
    config.wire_inside = inside[r];
    const auto result = hetcclCommInitRankConfig(&comms[r], n_ranks, id, rank, &config);
    if (result != hetcclSuccess) errors[r] = hetcclGetLastError(nullptr);
  });
  return comms;
}

TEST_CASE("wire_inside encodes all-gathers of one cluster, to what encoding by hand gives") {
  constexpr size_t kCount = 100'000;
  const Bytes own = random_elements(DataType::BFloat16, kCount);
  for (const int inside : {-1, 0, 1}) {
    std::vector<std::string> errors;
    const auto comms = join_encoded("int4:64", {inside, inside}, errors);
    REQUIRE(errors == std::vector<std::string>(2));
    on_all_ranks(2, [&](int rank) {
      Bytes gathered(2 * own.size());
      hetcclComm_t comm = comms[static_cast<size_t>(rank)];
      CHECK(hetcclAllGather(own.data(), gathered.data(), kCount, hetcclBfloat16, comm, nullptr) ==
            hetcclSuccess);
      size_t bytes = 0;
      CHECK(hetcclEncodedBytes(kCount, "int4:64", &bytes) == hetcclSuccess);
      Bytes codes(bytes), decoded(own.size());
      CHECK(hetcclEncode(own.data(), codes.data(), kCount, hetcclBfloat16, "int4:64", comm,
                         nullptr) == hetcclSuccess);
      CHECK(hetcclDecode(codes.data(), decoded.data(), kCount, hetcclBfloat16, "int4:64", comm,
                         nullptr) == hetcclSuccess);
      const Bytes& block = inside == 1 ? decoded : own;
      Bytes both = block;
      both.insert(both.end(), block.begin(), block.end());
      CHECK(gathered == both);
      CHECK(hetcclCommDestroy(comm) == hetcclSuccess);
    });
  }
}

TEST_CASE("ranks that disagree on wire_inside both learn both values") {
  std::vector<std::string> errors;
  for (hetcclComm_t comm : join_encoded("int8", {1, 0}, errors)) CHECK(comm == nullptr);
  for (const auto& text : errors) {
    CHECK(text.find("rank 0 has HETCCL_WIRE_INSIDE=1, rank 1 has HETCCL_WIRE_INSIDE=0") !=
          std::string::npos);
  }
}

// Arguments of hetcclEncode and hetcclDecode, all of them good.
struct Arguments {
  float* elements;
  uint8_t* codes;
  size_t count = 100;
  hetcclDataType_t type = hetcclFloat32;
  const char* encoding = "int8";
  hetcclComm_t comm = nullptr;
  hetcclStream_t stream = nullptr;
};

// Both refuse `arguments` with a text that has `part`.
void check_refused(const Arguments& a, const std::string& part,
                   hetcclResult_t how = hetcclInvalidArgument) {
  const auto has_part = [&] {
    return std::string(hetcclGetLastError(nullptr)).find(part) != std::string::npos;
  };
  CHECK(hetcclEncode(a.elements, a.codes, a.count, a.type, a.encoding, a.comm, a.stream) == how);
  CHECK(has_part());
  CHECK(hetcclDecode(a.codes, a.elements, a.count, a.type, a.encoding, a.comm, a.stream) == how);
  CHECK(has_part());
}

TEST_CASE("wrong arguments are refused by name, and nothing is written") {
  std::vector<float> elements(200, 1.0F);
  alignas(4) uint8_t codes[512] = {};
  const Arguments good{elements.data(), codes};
  const auto refuse = [&](const std::string& part, const auto& spoil) {
    Arguments bad = good;
    spoil(bad);
    check_refused(bad, part);
  };
  refuse("encoding is null", [](Arguments& a) { a.encoding = nullptr; });
  refuse("encoding is empty", [](Arguments& a) { a.encoding = ""; });
  refuse("encoding: \"int9\" is no encoding", [](Arguments& a) { a.encoding = "int9"; });
  refuse("leave out \":stochastic\"", [](Arguments& a) { a.encoding = "int8:64:stochastic"; });
  refuse("datatype float64", [](Arguments& a) { a.type = hetcclFloat64; });
  refuse("datatype 99", [](Arguments& a) { a.type = static_cast<hetcclDataType_t>(99); });
  refuse("count", [](Arguments& a) { a.count = SIZE_MAX; });
  refuse(" is null", [](Arguments& a) { a.elements = nullptr; });
  refuse("codes is null", [](Arguments& a) { a.codes = nullptr; });
  refuse("codes is 0x", [](Arguments& a) { a.codes += 2; });
  refuse("aligned to 4 bytes", [](Arguments& a) {
    a.elements = reinterpret_cast<float*>(reinterpret_cast<std::byte*>(a.elements) + 2);
  });
  refuse("overlap", [](Arguments& a) { a.codes = reinterpret_cast<uint8_t*>(a.elements + 99); });
  refuse("stream", [&](Arguments& a) { a.stream = &a; });
  refuse("comm is no communicator",
         [&](Arguments& a) { a.comm = reinterpret_cast<hetcclComm_t>(8); });
  CHECK(elements == std::vector<float>(200, 1.0F));
  CHECK(std::all_of(std::begin(codes), std::end(codes), [](uint8_t byte) { return byte == 0; }));
  size_t bytes = 0;
  CHECK(hetcclEncodedBytes(1, "int9", &bytes) == hetcclInvalidArgument);
  CHECK(hetcclEncodedBytes(1, "int8", nullptr) == hetcclInvalidArgument);
  CHECK(hetcclEncodedBytes(SIZE_MAX, "int8", &bytes) == hetcclInvalidArgument);
  CHECK(hetcclEncodedBytes(257, "int4:stochastic", &bytes) == hetcclSuccess);
  CHECK(bytes == 2 * 4 + 129);
}

TEST_CASE("a stream that is none is refused, and a communicator that was aborted") {
  const auto comms = join(1, false);
  std::vector<float> elements(100, 1.0F);
  alignas(4) uint8_t codes[512] = {};
  Arguments arguments{elements.data(), codes};
  arguments.comm = comms[0];
  arguments.stream = &arguments;
  check_refused(arguments, "stream");
  CHECK(hetcclCommAbort(comms[0]) == hetcclSuccess);
  arguments.stream = nullptr;
  check_refused(arguments, "comm is no communicator");
}

}  // namespace
}  // namespace hetccl::capi_test
