#include "comm/host_libraries.h"

#include <doctest/doctest.h>

#include "fake/host_adaptor.h"
#include "fake/patience.h"

namespace hetccl::comm {
namespace {

adaptor::Found found(const char* path, int (*score)(void)) {
  hetcclLibraryAdaptor library = *fake::host_adaptor().library;
  library.score = score;
  const hetcclAdaptorTable table = fake::table_of(&library);
  return {path, adaptor::check(&table, path, {})};
}

TEST_CASE("the library with the best score serves the host's ranks, of equals the first") {
  std::vector<std::string> why;
  const auto chosen_of = [&](const std::vector<adaptor::Found>& libraries) -> std::string {
    const auto best = choose_library(libraries, why, fake::kHangMs);
    if (!best.ok()) return best.status().message();
    return best.value() == nullptr ? "own" : best.value()->path;
  };
  const adaptor::Found none = found("none", [] { return 0; });
  const adaptor::Found less = found("less", [] { return HETCCL_OWN_SCORE; });
  const adaptor::Found good = found("good", [] { return 150; });
  const adaptor::Found as_good = found("as good", [] { return 150; });
  const adaptor::Found best = found("best", [] { return 200; });
  CHECK(chosen_of({}) == "own");
  CHECK(chosen_of({none, less}) == "own");
  CHECK(why == std::vector<std::string>{"it cannot serve this process",
                                        "its score is 100, and another's is 100"});
  CHECK(chosen_of({good, as_good}) == "good");
  CHECK(chosen_of({good, best, as_good}) == "best");
  CHECK(why == std::vector<std::string>{"another's score is higher: 200", "",
                                        "its score is 150, and another's is 200"});
  CHECK(chosen_of({good, {"bad", adaptor::check(nullptr, "bad", {})}}).find("bad is refused") !=
        std::string::npos);
  CHECK(adaptor::find("", {}).empty());
  CHECK(adaptor::find(":/nonexistent/a.so::/nonexistent/b.so", {}).size() == 2);
}

}  // namespace
}  // namespace hetccl::comm
