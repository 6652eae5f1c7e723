#include "comm/red_ops.h"

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "fake/thread.h"

namespace hetccl::comm {
namespace {

float value_of(const Result<Reducer>& found) {
  REQUIRE(found.ok());
  CHECK(found.value().op == RedOp::PreMulSum);
  float value = 0;
  std::memcpy(&value, found.value().factor.element, sizeof value);
  return value;
}

void check_refused(const Status& status, const std::string& text) {
  CHECK(status.code() == ErrorCode::InvalidArgument);
  CHECK_MESSAGE(status.message().find(text) != std::string::npos, status.message());
}

TEST_CASE("a scalar is read at once or at each use") {
  std::atomic<uint32_t> numbers{0};
  RedOps ops(numbers);
  float scalar = 2;
  const int now = ops.create(DataType::Float32, &scalar, ScalarRead::Now).value();
  const int later = ops.create(DataType::Float32, &scalar, ScalarRead::AtCall).value();
  scalar = 3;
  CHECK(value_of(ops.find(now, DataType::Float32)) == 2);
  CHECK(value_of(ops.find(later, DataType::Float32)) == 3);
  CHECK(ops.find(static_cast<int>(RedOp::Max), DataType::Float32).value().op == RedOp::Max);
}

TEST_CASE("operators that are stale, foreign, built in or of another type are refused") {
  std::atomic<uint32_t> numbers{0};
  RedOps ops(numbers), others(numbers);
  const float scalar = 2;
  const int mine = ops.create(DataType::Float32, &scalar, ScalarRead::Now).value();
  const int theirs = others.create(DataType::Float32, &scalar, ScalarRead::Now).value();
  CHECK(mine != theirs);
  check_refused(ops.find(mine, DataType::Float16).status(), "was made for float32");
  check_refused(ops.find(theirs, DataType::Float32).status(), "no operator of this communicator");
  check_refused(ops.destroy(theirs), "no operator of this communicator");
  CHECK(ops.destroy(mine).ok());
  check_refused(ops.destroy(mine), "was destroyed");
  check_refused(ops.find(mine, DataType::Float32).status(), "was destroyed");
  check_refused(ops.destroy(static_cast<int>(RedOp::Sum)), "built in");
  check_refused(ops.destroy(static_cast<int>(RedOp::Bxor)), "built in");
  CHECK(ops.find(static_cast<int>(RedOp::Bxor), DataType::Int8).value().op == RedOp::Bxor);
  for (int number : {-1, 5, 63, 67, 255, 1 << 30}) {
    check_refused(ops.find(number, DataType::Float32).status(), "no operator");
  }
  check_refused(ops.create(DataType::Float32, nullptr, ScalarRead::Now).status(), "scalar is null");
  check_refused(ops.create(static_cast<DataType>(50), &scalar, ScalarRead::Now).status(),
                "datatype 50");
}

TEST_CASE("numbers come round without meeting an operator that lives") {
  std::atomic<uint32_t> numbers{0};
  RedOps ops(numbers);
  const float scalar = 2;
  const int first = ops.create(DataType::Float32, &scalar, ScalarRead::Now).value();
  numbers = static_cast<uint32_t>(INT32_MAX - first) - 1;  // the last number, then the first again
  const int last = ops.create(DataType::Float32, &scalar, ScalarRead::Now).value();
  const int next = ops.create(DataType::Float32, &scalar, ScalarRead::Now).value();
  CHECK(last > first);
  CHECK(next == first + 1);
}

TEST_CASE("threads make and destroy operators at once") {
  std::atomic<uint32_t> numbers{0};
  RedOps ops(numbers);
  std::vector<fake::Thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&ops, t] {
      for (int i = 0; i < 500; ++i) {
        const auto scalar = static_cast<float>(1000 * t + i);
        const int op = ops.create(DataType::Float32, &scalar, ScalarRead::Now).value();
        CHECK(value_of(ops.find(op, DataType::Float32)) == scalar);
        CHECK(ops.destroy(op).ok());
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace hetccl::comm
