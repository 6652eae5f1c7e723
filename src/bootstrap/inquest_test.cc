#include "bootstrap/inquest.h"

#include <doctest/doctest.h>

namespace hetccl::bootstrap {
namespace {

Stall stalled() {
  return {{ErrorCode::Timeout, -1, "all_reduce #17 (8 float32, sum) timed out after 300 ms"},
          17,
          "all_reduce #17 (8 float32, sum)",
          "rank 1: it waits for messages to or from rank 3"};
}

Position at(uint64_t called, uint64_t completed, const std::string& call = stalled().call) {
  return {called, completed, called > 17 ? call : ""};
}

TEST_CASE("ranks that are missing, elsewhere, gone or mute are named, with where they are") {
  Inquest inquest(stalled(), 7);
  inquest.add_answer(1, at(18, 17));
  inquest.add_answer(0, at(19, 17));
  inquest.add_answer(2, at(16, 16));
  inquest.add_answer(5, at(0, 0));
  inquest.add_answer(3, at(18, 17, "broadcast #17 (8 float32, root 0)"));
  inquest.add_departure(6, 12);
  CHECK(!inquest.complete());
  const Failure failure = inquest.conclusion();
  CHECK(failure.code == ErrorCode::Timeout);
  CHECK(failure.rank == 6);
  CHECK(failure.reason ==
        "all_reduce #17 (8 float32, sum) timed out after 300 ms: rank 6 has left the communicator "
        "without calling it (rank 6 is at #11); ranks 2, 5 have not called it (rank 2 is at #15, "
        "rank 5 has called nothing); rank 3 called broadcast #17 (8 float32, root 0) instead; rank "
        "4 does not answer");
  inquest.add_answer(4, at(18, 17));
  CHECK(inquest.complete());
  CHECK(inquest.conclusion().reason.find("rank 4") == std::string::npos);
}

TEST_CASE("where every rank has called it, what the reporter sees is told") {
  Inquest inquest(stalled(), 3);
  inquest.add_answer(0, at(40, 18));
  inquest.add_departure(1, 18);
  inquest.add_answer(2, at(1018, 17, ""));  // forgotten
  CHECK(inquest.complete());
  const Failure failure = inquest.conclusion();
  CHECK(failure.rank == -1);
  CHECK(failure.reason ==
        "all_reduce #17 (8 float32, sum) timed out after 300 ms: every rank has called it, ranks "
        "0, 1 have completed it; rank 1: it waits for messages to or from rank 3");
}

Failure conclude_on(const std::vector<std::string>& calls) {
  Inquest inquest({{ErrorCode::InvalidUsage, 2, "the ranks disagree on barrier #17"},
                   17,
                   "barrier #17",
                   "rank 1: what it saw"},
                  static_cast<int32_t>(calls.size()));
  for (size_t rank = 0; rank < calls.size(); ++rank) {
    const uint64_t n_called = calls[rank] == "late" ? 17 : 18;
    inquest.add_answer(static_cast<int32_t>(rank),
                       {n_called, 17, n_called == 18 ? calls[rank] : ""});
  }
  return inquest.conclusion();
}

TEST_CASE("where ranks disagree, those that called something else than most are named") {
  const Failure one = conclude_on({"a #17", "a #17", "late", "b #17", "a #17", ""});
  CHECK(one.code == ErrorCode::InvalidUsage);
  CHECK(one.rank == 3);
  CHECK(one.reason ==
        "rank 3 called b #17 where ranks 0, 1, 4 called a #17; all ranks must make the same calls "
        "in the same order");
  const Failure even = conclude_on({"a #17", "b #17"});
  CHECK(even.rank == 1);
  CHECK(even.reason.starts_with("rank 1 called b #17 where rank 0 called a #17;"));
  const Failure several = conclude_on({"c #17", "b #17", "a #17", "a #17", "b #17", "a #17"});
  CHECK(several.rank == 0);
  CHECK(several.reason.starts_with(
      "rank 0 called c #17, ranks 1, 4 called b #17 where ranks 2, 3, 5 called a #17;"));
  CHECK(conclude_on({"a #17", "a #17"}).reason ==
        "the ranks disagree on barrier #17: rank 1: what it saw");
  std::vector<std::string> all(1000);
  for (size_t rank = 0; rank < all.size(); ++rank) all[rank] = "call " + std::to_string(rank);
  CHECK(conclude_on(all).reason.size() < 400);
}

TEST_CASE("a thousand missing ranks make no thousand words") {
  Inquest inquest(stalled(), 1000);
  for (int32_t rank = 1; rank < 1000; ++rank) inquest.add_answer(rank, at(3, 3));
  const std::string reason = inquest.conclusion().reason;
  CHECK(reason.size() < 400);
  CHECK(reason.find("and 983 more have not called it (rank 1 is at #2") != std::string::npos);
  CHECK(reason.find("rank 0 does not answer") != std::string::npos);
}

}  // namespace
}  // namespace hetccl::bootstrap
