// The tuning parameters as data: their values, and the points that a key's search covers.
//
// Paper 004, rule I: the choice among implementations is small and follows no model, so each
// implementation is a *subspace*. Rule II (search.h): inside a subspace, the parameters that divide
// resources are ordered values, and time has one valley along each.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "plan/plan.h"

namespace hetccl::tune {

enum class Parameter : uint8_t {
  Algorithm,
  SliceBytes,
  Depth,
  TcpStreams,
  GpuBlocks,
  HostThreads,
  NcclAlgorithm,
  NcclProtocol,
  NcclChannels,
};

/// One row of the table, for the docs, `hetccl tune`, and checks of proposals. A new value takes
/// effect at the next call with an agreed number.
struct ParameterRow {
  Parameter parameter{};
  std::string_view name;     ///< in JSON
  std::string_view unit;     ///< "bytes", or ""
  std::string_view setting;  ///< the variable that fixes it, or ""
  uint64_t least = 0, most = 0;
  std::string_view help;
  std::span<const std::string_view> names = {};  ///< of the values 1, 2, …; empty: values are
                                                 ///< numbers
};
[[nodiscard]] std::span<const ParameterRow> parameters();
[[nodiscard]] const ParameterRow& row_of(Parameter parameter);

/// How a call runs: a row of plan::algorithms() and its launch parameters.
struct Setting {
  std::string_view algorithm;  ///< the row's id, in static storage
  plan::Choice choice;
  plan::Resources resources;
  bool operator==(const Setting&) const = default;
};
/// Returns the value of one parameter. Algorithm has none.
[[nodiscard]] uint64_t value_of(const Setting& setting, Parameter parameter);
void set_value(Setting& setting, Parameter parameter, uint64_t value);
/// Returns the setting of plan::kVendorCall: a call without slices.
[[nodiscard]] Setting vendor_setting(const plan::Resources& resources);
/// Returns text for people: "ring, slice 256 KiB, depth 4".
[[nodiscard]] std::string text_of(const Setting& setting);
[[nodiscard]] Json to_json(const Setting& setting);
/// Returns nothing if a value is missing or out of its row's range, or if no row of
/// plan::algorithms() has the algorithm's id.
[[nodiscard]] std::optional<Setting> setting_from_json(const Json& json);

/// One parameter of a subspace, and the values to try, ascending.
struct Axis {
  Parameter parameter{};
  std::vector<uint64_t> values;
};
/// The settings of one implementation.
struct Subspace {
  Setting start;  ///< the cost model's choice
  std::vector<Axis> axes;
};
/// The first subspace's start is the default.
using Space = std::vector<Subspace>;

/// A setting of a space: its subspace, and the index of its value on each axis.
struct Point {
  size_t subspace = 0;
  std::vector<size_t> at;
  auto operator<=>(const Point&) const = default;
};
/// Returns the start of a subspace.
[[nodiscard]] Point start_of(const Space& space, size_t subspace);
[[nodiscard]] Setting setting_at(const Space& space, const Point& point);
/// Returns the point of that setting; nothing if the space lacks it.
[[nodiscard]] std::optional<Point> find_point(const Space& space, const Setting& setting);
/// Returns the number of settings.
[[nodiscard]] size_t size_of(const Space& space);

}  // namespace hetccl::tune
