#include "tune/space.h"

#include <algorithm>
#include <array>

#include "base/cores.h"
#include "base/status.h"
#include "plan/algorithms.h"

namespace hetccl::tune {
namespace {

constexpr uint64_t kMostSlice = uint64_t{64} << 20U;

constexpr std::array<std::string_view, 7> kNcclAlgorithms = {
    "tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"};
constexpr std::array<std::string_view, 3> kNcclProtocols = {"ll", "ll128", "simple"};
constexpr uint64_t kMostChannels = 128;  // RCCL's limit; NCCL's is 64

constexpr std::array<ParameterRow, 9> kParameters = {{
    {Parameter::Algorithm, "algorithm", "", "", 0, 0,
     "how clusters exchange data: a row of the algorithms"},
    {Parameter::SliceBytes, "slice_bytes", "bytes", "HETCCL_SLICE_BYTES", 64, kMostSlice,
     "a block is cut into slices, which follow each other from step to step"},
    {Parameter::Depth, "depth", "", "HETCCL_DEPTH", 1, 64, "slices in flight"},
    {Parameter::TcpStreams, "tcp_streams", "", "", 0, 64,
     "TCP connections of a channel that carry the call's data; 0: all"},
    {Parameter::GpuBlocks, "gpu_blocks", "", "", 0, 65'535,
     "thread blocks of a kernel that adds; 0: HETCCL_GPU_BLOCKS"},
    {Parameter::HostThreads, "host_threads", "", "HETCCL_HOST_THREADS", 0, kMaxHostThreads,
     "threads of a rank of the host that add; 0: HETCCL_HOST_THREADS"},
    {Parameter::NcclAlgorithm, "nccl_algorithm", "", "NCCL_ALGO", 0, kNcclAlgorithms.size(),
     "NCCL's and RCCL's; absent: the library's choice", kNcclAlgorithms},
    {Parameter::NcclProtocol, "nccl_protocol", "", "NCCL_PROTO", 0, kNcclProtocols.size(),
     "NCCL's and RCCL's; absent: the library's choice", kNcclProtocols},
    {Parameter::NcclChannels, "nccl_channels", "", "", 0, kMostChannels,
     "channels of NCCL and RCCL, each a thread block; 0: the library's choice"},
}};

// `value` refers to the setting's own member, whose address the caller may use.
template <typename AnySetting, typename Visitor>
void visit(AnySetting& setting, Parameter parameter, const Visitor& visitor) {
  switch (parameter) {
    case Parameter::SliceBytes:
      return visitor(setting.choice.slice_bytes);
    case Parameter::Depth:
      return visitor(setting.choice.depth);
    case Parameter::TcpStreams:
      return visitor(setting.resources.tcp_streams);
    case Parameter::GpuBlocks:
      return visitor(setting.resources.gpu_blocks);
    case Parameter::HostThreads:
      return visitor(setting.resources.host_threads);
    case Parameter::NcclAlgorithm:
      return visitor(setting.resources.tactic.algorithm);
    case Parameter::NcclProtocol:
      return visitor(setting.resources.tactic.protocol);
    case Parameter::NcclChannels:
      return visitor(setting.resources.tactic.channels);
    case Parameter::Algorithm:
      return;
  }
}

// Returns whether the parameter applies: a call without slices has slice values that nothing reads.
bool applies(std::string_view algorithm, Parameter parameter) {
  const bool slices = parameter == Parameter::SliceBytes || parameter == Parameter::Depth;
  return parameter != Parameter::Algorithm && !(slices && algorithm == plan::kVendorCall);
}

std::optional<uint64_t> value_from(const Json* json, const ParameterRow& row) {
  if (json == nullptr) return row.least == 0 ? std::optional<uint64_t>(0) : std::nullopt;
  if (const std::string* name = row.names.empty() ? nullptr : json->text()) {
    const auto found = std::find(row.names.begin(), row.names.end(), *name);
    if (found == row.names.end()) return std::nullopt;
    return static_cast<uint64_t>(found - row.names.begin()) + 1;
  }
  const auto value = json->integer(static_cast<int64_t>(row.least), static_cast<int64_t>(row.most));
  return value ? std::optional(static_cast<uint64_t>(*value)) : std::nullopt;
}

std::string bytes_text(uint64_t bytes) {
  if (bytes >= uint64_t{1} << 20U && bytes % (uint64_t{1} << 20U) == 0)
    return format("%llu MiB", static_cast<unsigned long long>(bytes >> 20U));
  if (bytes >= 1024) return format("%.4g KiB", static_cast<double>(bytes) / 1024);
  return format("%llu B", static_cast<unsigned long long>(bytes));
}

// Returns the point of a subspace whose values are the setting's, or the next larger ones.
Point nearest(const Space& space, size_t subspace, const Setting& setting) {
  Point point{subspace, {}};
  for (const Axis& axis : space[subspace].axes) {
    const uint64_t value = value_of(setting, axis.parameter);
    const auto found = std::lower_bound(axis.values.begin(), axis.values.end(), value);
    const auto last = static_cast<ptrdiff_t>(axis.values.size()) - 1;
    point.at.push_back(static_cast<size_t>(std::min(found - axis.values.begin(), last)));
  }
  return point;
}

}  // namespace

std::span<const ParameterRow> parameters() {
  return kParameters;
}

const ParameterRow& row_of(Parameter parameter) {
  return kParameters.at(static_cast<size_t>(parameter));
}

uint64_t value_of(const Setting& setting, Parameter parameter) {
  uint64_t value = 0;
  visit(setting, parameter, [&](const auto& field) { value = field; });
  return value;
}

void set_value(Setting& setting, Parameter parameter, uint64_t value) {
  visit(setting, parameter,
        [&](auto& field) { field = static_cast<std::remove_reference_t<decltype(field)>>(value); });
}

Setting vendor_setting(const plan::Resources& resources) {
  const auto least = [](Parameter parameter) { return row_of(parameter).least; };
  return {plan::kVendorCall,
          {.slice_bytes = least(Parameter::SliceBytes),
           .depth = static_cast<uint32_t>(least(Parameter::Depth))},
          resources};
}

std::string text_of(const Setting& setting) {
  std::string text(setting.algorithm);
  for (const ParameterRow& row : kParameters) {
    const uint64_t value = value_of(setting, row.parameter);
    if (!applies(setting.algorithm, row.parameter) || value == 0) continue;
    text += format(", %.*s ", static_cast<int>(row.name.size()), row.name.data());
    if (!row.names.empty()) {
      text += row.names[value - 1];
    } else {
      text += row.unit == "bytes" ? bytes_text(value)
                                  : format("%llu", static_cast<unsigned long long>(value));
    }
  }
  return text;
}

Json to_json(const Setting& setting) {
  Json json{{"algorithm", setting.algorithm}};
  for (const ParameterRow& row : kParameters) {
    const uint64_t value = value_of(setting, row.parameter);
    if (!applies(setting.algorithm, row.parameter) || value == 0) continue;
    row.names.empty() ? json.set(row.name, value) : json.set(row.name, row.names[value - 1]);
  }
  return json;
}

std::optional<Setting> setting_from_json(const Json& json) {
  const std::string* id = json["algorithm"].text();
  if (id == nullptr) return std::nullopt;
  const auto table = plan::algorithms();
  const auto row =
      std::find_if(table.begin(), table.end(), [&](const auto& one) { return one.id == *id; });
  if (row == table.end()) return std::nullopt;
  Setting setting = vendor_setting({});
  setting.algorithm = row->id;
  for (const ParameterRow& parameter : kParameters) {
    if (!applies(row->id, parameter.parameter)) continue;
    const auto value = value_from(json.find(parameter.name), parameter);
    if (!value) return std::nullopt;
    set_value(setting, parameter.parameter, *value);
  }
  return setting.choice.slice_bytes % 64 == 0 ? std::optional(setting) : std::nullopt;
}

Point start_of(const Space& space, size_t subspace) {
  return nearest(space, subspace, space[subspace].start);
}

Setting setting_at(const Space& space, const Point& point) {
  const Subspace& subspace = space[point.subspace];
  Setting setting = subspace.start;
  for (size_t i = 0; i < subspace.axes.size(); ++i)
    set_value(setting, subspace.axes[i].parameter, subspace.axes[i].values[point.at[i]]);
  return setting;
}

std::optional<Point> find_point(const Space& space, const Setting& setting) {
  for (size_t i = 0; i < space.size(); ++i) {
    if (space[i].start.algorithm != setting.algorithm) continue;
    Point point = nearest(space, i, setting);
    if (setting_at(space, point) == setting) return point;
  }
  return std::nullopt;
}

size_t size_of(const Space& space) {
  size_t all = 0;
  for (const Subspace& subspace : space) {
    size_t points = 1;
    for (const Axis& axis : subspace.axes) points *= axis.values.size();
    all += points;
  }
  return all;
}

}  // namespace hetccl::tune
