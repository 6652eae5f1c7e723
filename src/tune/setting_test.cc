#include <doctest/doctest.h>

#include "tune/space.h"

namespace hetccl::tune {
namespace {

Setting parse(std::string_view text) {
  const auto setting = setting_from_json(Json::parse(text, "a setting", 4096).value());
  return setting.value_or(Setting{"none", {}, {}});
}

TEST_CASE("settings: what a vendor's library is asked for travels by name") {
  const Setting ring = vendor_setting({.tactic = {.algorithm = 2, .protocol = 3, .channels = 8}});
  CHECK(to_json(ring).dump() == R"({"algorithm":"vendor","nccl_algorithm":"ring",)"
                                R"("nccl_protocol":"simple","nccl_channels":8})");
  CHECK(setting_from_json(to_json(ring)) == ring);
  CHECK(text_of(ring) == "vendor, nccl_algorithm ring, nccl_protocol simple, nccl_channels 8");
  CHECK(parse(R"({"algorithm":"vendor"})") == vendor_setting({}));
  CHECK(parse(R"({"algorithm":"vendor","nccl_algorithm":2,"nccl_protocol":3,"nccl_channels":8})") ==
        ring);
  // The library's tactic beside the setting between clusters.
  const Setting both{"ring", {.slice_bytes = 4096, .depth = 3}, {.tactic = {.protocol = 1}}};
  CHECK(setting_from_json(to_json(both)) == both);
}

TEST_CASE("settings: what no library knows is none") {
  for (const char* text : {R"({"algorithm":"vendor","nccl_algorithm":"nonsense"})",
                           R"({"algorithm":"vendor","nccl_algorithm":8})",
                           R"({"algorithm":"vendor","nccl_protocol":4})",
                           R"({"algorithm":"vendor","nccl_channels":"many"})",
                           R"({"algorithm":"vendor","nccl_channels":129})",
                           R"({"algorithm":"vendor","nccl_channels":-1})",
                           R"({"algorithm":"ring","nccl_channels":1})"}) {
    CAPTURE(text);
    CHECK(parse(text).algorithm == "none");
  }
}

}  // namespace
}  // namespace hetccl::tune
