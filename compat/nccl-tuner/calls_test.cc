#include "nccl-tuner/calls.h"

#include <doctest/doctest.h>

#include "ccl/nccl/tuner_abi.h"

namespace hetccl::nccl_tuner {
namespace {

TEST_CASE("calls: NCCL's calls have keys that files can hold") {
  for (int function = 0; function < 12; ++function) {
    for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 20U, UINT64_MAX}) {
      const auto call = call_of(function, bytes, 4);
      CHECK(call.has_value() == (function <= kAllReduce));
      if (call) CHECK(tune::key_from_json(to_json(call->key)) == call->key);
    }
  }
  CHECK_FALSE(call_of(-1, 8, 4));
  // NCCL counts all blocks, hetccl one.
  CHECK(call_of(kAllReduce, 1024, 4)->key.size_class == 10);
  CHECK(call_of(kAllReduce, 1025, 4)->key.size_class == 11);
  CHECK(call_of(kAllGather, 4096, 4)->key.size_class == 10);
  CHECK(call_of(kReduceScatter, 4096, 4)->key.size_class == 10);
  CHECK(call_of(kReduceScatter, 4096, 4)->bytes == 1024);
  CHECK(call_of(kReduceScatter, 4096, 4)->number() != call_of(kAllGather, 4096, 4)->number());
  CHECK(call_of(kBroadcast, 1024, 4)->key.size_class == 10);
}

TEST_CASE("calls: a file keeps communicators of different shapes apart") {
  CHECK(fingerprint_of(4, 1).digest == fingerprint_of(4, 1).digest);
  CHECK(fingerprint_of(4, 1).digest != fingerprint_of(4, 2).digest);
  CHECK(fingerprint_of(4, 1).digest != fingerprint_of(8, 1).digest);
  CHECK(fingerprint_of(4, 1).summary == "nccl: 4 ranks on 1 nodes");
}

}  // namespace
}  // namespace hetccl::nccl_tuner
