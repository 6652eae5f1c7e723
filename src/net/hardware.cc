#include "net/hardware.h"

#include <dirent.h>

#include <algorithm>
#include <bitset>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <system_error>

#include "base/cores.h"

namespace hetccl::net {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxLine = 4096;
constexpr size_t kMaxName = 64;
constexpr size_t kMaxDepth = 32;    // of PCI bridges
constexpr int kMaxStacked = 4;      // interfaces stacked on each other
constexpr size_t kMaxEntries = 64;  // of a folder
constexpr size_t kMaxCores = 8192;
constexpr int kMaxNode = 1023;
constexpr int64_t kMaxMbps = 1'000'000'000;
constexpr int kEthernet = 1, kInfiniBand = 32;  // ARPHRD_

// Returns the first line of a file; "" if there is none.
std::string line_of(const fs::path& path) {
  std::ifstream file(path);
  std::string line(kMaxLine, '\0');
  file.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  line.resize(std::min(line.find('\n'), line.size()));
  return line;
}

std::optional<int64_t> number_of(const fs::path& path) {
  const std::string line = line_of(path);
  int64_t number = 0;
  const auto [end, failure] = std::from_chars(line.data(), line.data() + line.size(), number);
  if (failure != std::errc()) return std::nullopt;
  return number;
}

bool is_there(const fs::path& path) {
  std::error_code failure;
  return fs::exists(path, failure);
}

// Returns a folder's entries that begin with `prefix`, sorted. (std::filesystem's iterators end the
// process if memory runs out.)
std::vector<std::string> entries_of(const fs::path& folder, std::string_view prefix) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()), ::closedir);
  std::vector<std::string> names;
  while (open != nullptr && names.size() < kMaxEntries) {
    const dirent* const entry = ::readdir(open.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name.starts_with(prefix) && name.size() <= kMaxName && name.front() != '.')
      names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Matches a root, "pci0000:00", or a device, "0000:00:01.0".
bool is_pci(std::string_view name) {
  if (name.starts_with("pci")) name.remove_prefix(3);
  return name.size() >= 7 && name.size() <= 20 && name.find(':') != name.npos &&
         std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::isxdigit(c) != 0 || c == ':' || c == '.'; });
}

// Returns the place of a device from a link in sysfs.
BusLocation locate(const fs::path& link) {
  std::error_code failure;
  const fs::path real = fs::canonical(link, failure);
  BusLocation place;
  if (failure) return place;
  fs::path at;
  fs::path device;
  for (const fs::path& part : real) {
    at /= part;
    const std::string name = part.string();
    if (!is_pci(name) || (place.path.empty() && !name.starts_with("pci"))) continue;
    if (place.path.size() == kMaxDepth) return {};
    place.path.push_back(name);
    device = at;
  }
  if (!place.known()) return place;
  const auto node = number_of(device / "numa_node");
  if (node && *node >= 0 && *node <= kMaxNode) place.numa_node = static_cast<int>(*node);
  place.cores = line_of(device / "local_cpulist");
  return place;
}

// Parses "100 Gb/sec (4X EDR)".
int64_t rate_of_port(const fs::path& device) {
  const std::string line = line_of(device / "ports/1/rate");
  double gigabits = 0;
  const auto [end, failure] = std::from_chars(line.data(), line.data() + line.size(), gigabits);
  const bool sound = failure == std::errc() && gigabits > 0 && gigabits * 1000 <= kMaxMbps;
  return sound ? static_cast<int64_t>(gigabits * 1000) : 0;
}

Hardware read_hardware(const std::string& interface, const std::string& sys, int stacked) {
  const fs::path folder = fs::path(sys) / "class/net" / interface;
  Hardware found;
  found.beneath = interface;
  const auto speed = number_of(folder / "speed");
  if (speed && *speed > 0 && *speed <= kMaxMbps) found.mbps = *speed;
  const auto type = number_of(folder / "type");
  found.is_card = type && (*type == kEthernet || *type == kInfiniBand) &&
                  !is_there(folder / "bridge") && !is_there(folder / "tun_flags");
  found.is_bond = is_there(folder / "bonding");
  const auto lower = entries_of(folder, "lower_");
  if (!lower.empty() && stacked < kMaxStacked) {
    const std::string name = lower.front().substr(std::string_view("lower_").size());
    Hardware carrier = read_hardware(name, sys, stacked + 1);
    found.place = std::move(carrier.place);
    found.rdma = std::move(carrier.rdma);
    if (found.mbps == 0) found.mbps = carrier.mbps;
    if (!found.is_bond) found.beneath = std::move(carrier.beneath);
    return found;
  }
  found.place = locate(folder / "device");
  const auto rdma = entries_of(folder / "device/infiniband", "");
  if (rdma.empty()) return found;
  found.rdma = rdma.front();
  if (found.mbps == 0) found.mbps = rate_of_port(folder / "device/infiniband" / found.rdma);
  return found;
}

using Cores = std::bitset<kMaxCores>;

// Parses "0-3,8"; returns nothing for anything else.
std::optional<Cores> parse_cores(std::string_view text) {
  Cores cores;
  while (!text.empty()) {
    std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    size_t first = 0;
    auto [end, failure] = std::from_chars(part.data(), part.data() + part.size(), first);
    part.remove_prefix(static_cast<size_t>(end - part.data()));
    size_t last = first;
    if (failure == std::errc() && part.starts_with('-')) {
      part.remove_prefix(1);
      failure = std::from_chars(part.data(), part.data() + part.size(), last).ec;
    }
    if (failure != std::errc() || first > last || last >= kMaxCores) return std::nullopt;
    for (size_t core = first; core <= last; ++core) cores.set(core);
  }
  return cores;
}

}  // namespace

Hardware hardware_of(const std::string& interface, const std::string& sys) {
  const bool is_name = !interface.empty() && interface.size() <= kMaxName &&
                       interface.find('/') == interface.npos && interface.front() != '.';
  return is_name ? read_hardware(interface, sys, 0) : Hardware{};
}

BusLocation locate_bus(std::string_view pci_address, const std::string& sys) {
  std::string name(pci_address.substr(0, kMaxName));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (!is_pci(name) || name.starts_with("pci")) return {};
  return locate(fs::path(sys) / "bus/pci/devices" / name);
}

BusLocation locate_folder(const std::string& folder) {
  return folder.empty() ? BusLocation{} : locate(folder);
}

BusLocation locate_rank(std::string_view pci_address) {
  if (!pci_address.empty()) return locate_bus(pci_address);
  BusLocation place;
  place.cores = list_of_cores();
  return place;
}

Distance distance_between(const BusLocation& device, const BusLocation& card) {
  // A switch has one port up and one down for each device: four steps from one device to the other.
  constexpr size_t kOneSwitch = 4;
  if (!device.known() && !device.cores.empty()) return distance_from_cores(device.cores, card);
  if (!device.known() || !card.known()) return kSystem;
  const auto apart =
      std::mismatch(device.path.begin(), device.path.end(), card.path.begin(), card.path.end());
  const auto common = static_cast<size_t>(apart.first - device.path.begin());
  const size_t steps = device.path.size() + card.path.size() - 2 * common;
  if (steps == 0) return kNear;
  if (common > 1) return steps <= kOneSwitch ? kSwitch : kBridges;
  if (common == 1) return kRoot;
  return device.numa_node >= 0 && device.numa_node == card.numa_node ? kNode : kSystem;
}

Distance distance_from_cores(std::string_view cores, const BusLocation& card) {
  const auto mine = parse_cores(cores);
  const auto next = parse_cores(card.cores);
  const bool known = mine && next && mine->any() && next->any();
  return known && (*mine & *next).none() ? kSystem : kNear;
}

}  // namespace hetccl::net
