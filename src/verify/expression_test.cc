#include "verify/expression.h"

#include <doctest/doctest.h>

namespace hetccl::verify {
namespace {

TEST_CASE("kernels reduce alike on all ranks, but encode each in its own way") {
  Expressions expressions(2);
  const NodeId one = expressions.input(0, 0), other = expressions.input(1, 0);
  const NodeId sum = expressions.reduce(0, false, {one, other});
  CHECK(expressions.reduce(0, false, {one, other}) == sum);
  const NodeId codes = expressions.encoded(0, sum);
  CHECK(expressions.encoded(0, sum) == codes);
  CHECK(expressions.encoded(1, sum) != codes);
  CHECK(expressions.decoded(codes) == expressions.decoded(codes));
  CHECK(expressions.decoded(expressions.encoded(1, sum)) != expressions.decoded(codes));
}

TEST_CASE("a contribution's roundings are counted, and codes are no numbers") {
  Expressions expressions(2);
  const NodeId part = expressions.decoded(expressions.encoded(0, expressions.input(0, 0)));
  CHECK(expressions.roundings(part) == 1);
  const NodeId sum = expressions.reduce(0, false, {part, expressions.input(1, 0)});
  CHECK(expressions.roundings(sum) == 1);
  CHECK(expressions.roundings(expressions.encoded(1, sum)) == 2);
  CHECK(expressions.is_complete(sum, 0));
  CHECK(expressions.fault().empty());
  expressions.reduce(0, false, {expressions.encoded(1, sum), part});
  CHECK(expressions.fault().find("adds encoded data") != std::string::npos);
}

}  // namespace
}  // namespace hetccl::verify
