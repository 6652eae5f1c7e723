// The entries as functions, for either vendor: those that forward their arguments unchanged, and
// those that translate numbers or structs.
#pragma once

#include <cstdio>
#include <cstring>
#include <optional>
#include <span>

#include "runtime/vendor.h"

namespace hetccl::runtime {

template <typename Vendor>
hetcclRuntimeError_t to_neutral(int error) {
  for (const Number& row : kErrors) {
    if (row.*Vendor::kNumber == error) return static_cast<hetcclRuntimeError_t>(row.neutral);
  }
  const bool fits = error > 0 && error < hetcclRuntimeErrorOther;
  return static_cast<hetcclRuntimeError_t>(fits ? hetcclRuntimeErrorOther + error
                                                : hetcclRuntimeErrorUnknown);
}

/// Returns the vendor's number of a neutral one, if it has one.
template <typename Vendor>
std::optional<int> to_vendor(std::span<const Number> rows, int neutral) {
  for (const Number& row : rows) {
    if (row.neutral != neutral) continue;
    if (row.*Vendor::kNumber == kNone) return std::nullopt;
    return static_cast<int>(row.*Vendor::kNumber);
  }
  return std::nullopt;
}

/// Translates flags. Returns nothing for a flag that is unknown or that the vendor lacks.
template <typename Vendor>
std::optional<unsigned> flags_of(std::span<const Number> rows, unsigned neutral) {
  unsigned flags = 0;
  for (const Number& row : rows) {
    const auto flag = static_cast<unsigned>(row.neutral);
    if ((neutral & flag) == 0) continue;
    if (row.*Vendor::kNumber == kNone) return std::nullopt;
    flags |= static_cast<unsigned>(row.*Vendor::kNumber);
    neutral &= ~flag;
  }
  return neutral == 0 ? std::optional(flags) : std::nullopt;
}

/// Returns the vendor's function of an entry, as `Signature`.
template <typename Vendor, size_t kEntry, typename Signature>
Signature* function() {
  return reinterpret_cast<Signature*>(Vendor::functions.entries[kEntry]);
}

/// An entry that forwards its arguments unchanged.
template <typename Vendor, size_t kEntry, typename... Arguments>
hetcclRuntimeError_t forward(Arguments... arguments) {
  return to_neutral<Vendor>(function<Vendor, kEntry, int(Arguments...)>()(arguments...));
}

/// An entry that allocates host memory.
template <typename Vendor, size_t kEntry>
hetcclRuntimeError_t allocate_host(void** memory, size_t bytes, unsigned neutral) {
  const auto flags = flags_of<Vendor>(kHostFlags, neutral);
  if (!flags) return hetcclRuntimeErrorNotSupported;
  return forward<Vendor, kEntry>(memory, bytes, *flags);
}

/// Copies a vendor's text of at most 256 bytes, cut if it is longer.
inline void copy_text(char (&to)[256], const char* from) {
  std::memcpy(to, from, sizeof to);
  to[sizeof to - 1] = 0;
}

template <typename Vendor>
struct Adapted {
  static const char* get_error_string(hetcclRuntimeError_t error) {
    const int code = error > hetcclRuntimeErrorOther
                         ? static_cast<int>(error) - hetcclRuntimeErrorOther
                         : to_vendor<Vendor>(kErrors, error).value_or(error);
    return function<Vendor, entry("get_error_string"), const char*(int)>()(code);
  }

  static hetcclRuntimeError_t ext_malloc_with_flags(void** memory, size_t bytes,
                                                    hetcclRuntimeExtMalloc_t kind) {
    const auto flags = to_vendor<Vendor>(kExtMallocs, kind);
    if (!flags) return hetcclRuntimeErrorNotSupported;
    return forward<Vendor, entry("ext_malloc_with_flags")>(memory, bytes,
                                                           static_cast<unsigned>(*flags));
  }

  static hetcclRuntimeError_t host_register(void* memory, size_t bytes, unsigned neutral) {
    const auto flags = flags_of<Vendor>(kRegisterFlags, neutral);
    if (!flags) return hetcclRuntimeErrorNotSupported;
    return forward<Vendor, entry("host_register")>(memory, bytes, *flags);
  }

  static hetcclRuntimeError_t event_create_with_flags(hetcclRuntimeEvent_t* event,
                                                      unsigned neutral) {
    const auto flags = flags_of<Vendor>(kEventFlags, neutral);
    if (!flags) return hetcclRuntimeErrorNotSupported;
    return forward<Vendor, entry("event_create_with_flags")>(event, *flags);
  }

  static hetcclRuntimeError_t device_get_attribute(int* value, hetcclRuntimeAttribute_t attribute,
                                                   int device) {
    const auto number = to_vendor<Vendor>(kAttributes, attribute);
    if (!number) return hetcclRuntimeErrorNotSupported;
    return forward<Vendor, entry("device_get_attribute")>(value, *number, device);
  }

  static hetcclRuntimeError_t func_set_attribute(const void* kernel,
                                                 hetcclRuntimeFuncAttribute_t attribute,
                                                 int value) {
    const auto number = to_vendor<Vendor>(kFuncAttributes, attribute);
    if (!number) return hetcclRuntimeErrorNotSupported;
    return forward<Vendor, entry("func_set_attribute")>(kernel, *number, value);
  }

  static hetcclRuntimeError_t func_get_attributes(hetcclRuntimeFuncAttributes_t* attributes,
                                                  const void* kernel) {
    if (attributes == nullptr) return hetcclRuntimeErrorInvalidValue;
    typename Vendor::FuncAttributes theirs{};
    const auto error = forward<Vendor, entry("func_get_attributes")>(&theirs, kernel);
    *attributes = {theirs.shared,    theirs.constant,       theirs.local,          theirs.threads,
                   theirs.registers, theirs.binary_version, theirs.dynamic_shared, theirs.carveout};
    return error;
  }

  static hetcclRuntimeError_t pointer_get_attributes(hetcclRuntimePointerAttributes_t* attributes,
                                                     const void* memory) {
    if (attributes == nullptr) return hetcclRuntimeErrorInvalidValue;
    PointerAttributes theirs{};
    const auto error = forward<Vendor, entry("pointer_get_attributes")>(&theirs, memory);
    const bool shared = theirs.type >= 0 && theirs.type <= hetcclRuntimeMemoryManaged;
    attributes->type =
        shared ? static_cast<hetcclRuntimeMemory_t>(theirs.type) : hetcclRuntimeMemoryOther;
    attributes->device = theirs.device;
    attributes->device_pointer = theirs.device_pointer;
    attributes->host_pointer = theirs.host_pointer;
    return error;
  }

  static hetcclRuntimeError_t get_device_properties(hetcclRuntimeDeviceProperties_t* properties,
                                                    int device) {
    if (properties == nullptr) return hetcclRuntimeErrorInvalidValue;
    *properties = {};
    DeviceProperties theirs{};
    const auto error = forward<Vendor, entry("get_device_properties")>(&theirs, device);
    if (error != hetcclRuntimeSuccess) return error;
    copy_text(properties->name, theirs.name.data());
    properties->total_memory = theirs.total_memory;
    const auto failure = read_attributes(*properties, device);
    if constexpr (Vendor::kPlatform == hetcclRuntimePlatformHip) {
      const char* architecture = reinterpret_cast<const char*>(&theirs) + kHipArchitectureOffset;
      copy_text(properties->architecture, architecture);
    } else {
      snprintf(properties->architecture, sizeof properties->architecture, "sm_%d%d",
               properties->compute_major, properties->compute_minor);
    }
    return failure;
  }

  static hetcclRuntimeError_t stream_get_capture_info_v2(
      hetcclStream_t stream, hetcclRuntimeCaptureStatus_t* status, unsigned long long* id,
      hetcclRuntimeGraph_t* graph, const hetcclRuntimeGraphNode_t** dependencies, size_t* count) {
    constexpr size_t kEntry = entry("stream_get_capture_info_v2");
    if (Vendor::functions.entries[kEntry] != nullptr) {
      return forward<Vendor, kEntry>(stream, status, id, graph, dependencies, count);
    }
    using WithEdges =
        int(hetcclStream_t, hetcclRuntimeCaptureStatus_t*, unsigned long long*,
            hetcclRuntimeGraph_t*, const hetcclRuntimeGraphNode_t**, const void** edges, size_t*);
    auto* call = reinterpret_cast<WithEdges*>(Vendor::functions.capture_info_with_edges);
    return to_neutral<Vendor>(call(stream, status, id, graph, dependencies, nullptr, count));
  }

  static hetcclResult_t get_platform(hetcclRuntimePlatform_t* platform) {
    if (platform == nullptr) return hetcclInvalidArgument;
    *platform = Vendor::kPlatform;
    return hetcclSuccess;
  }

 private:
  static hetcclRuntimeError_t read_attributes(hetcclRuntimeDeviceProperties_t& properties,
                                              int device) {
    using Properties = hetcclRuntimeDeviceProperties_t;
    struct Field {
      int Properties::* member;
      hetcclRuntimeAttribute_t attribute;
    };
    constexpr std::array kFields = {
        Field{&Properties::compute_major, hetcclRuntimeAttributeComputeCapabilityMajor},
        Field{&Properties::compute_minor, hetcclRuntimeAttributeComputeCapabilityMinor},
        Field{&Properties::multiprocessors, hetcclRuntimeAttributeMultiprocessorCount},
        Field{&Properties::warp_size, hetcclRuntimeAttributeWarpSize},
        Field{&Properties::clock_rate, hetcclRuntimeAttributeClockRate},
        Field{&Properties::max_threads_per_block, hetcclRuntimeAttributeMaxThreadsPerBlock},
        Field{&Properties::max_threads_per_multiprocessor,
              hetcclRuntimeAttributeMaxThreadsPerMultiprocessor},
        Field{&Properties::max_registers_per_block, hetcclRuntimeAttributeMaxRegistersPerBlock},
        Field{&Properties::max_shared_memory_per_block,
              hetcclRuntimeAttributeMaxSharedMemoryPerBlock},
        Field{&Properties::l2_cache_size, hetcclRuntimeAttributeL2CacheSize},
        Field{&Properties::memory_bus_width, hetcclRuntimeAttributeMemoryBusWidth},
        Field{&Properties::async_engines, hetcclRuntimeAttributeAsyncEngineCount},
        Field{&Properties::pci_domain, hetcclRuntimeAttributePciDomainId},
        Field{&Properties::pci_bus, hetcclRuntimeAttributePciBusId},
        Field{&Properties::pci_device, hetcclRuntimeAttributePciDeviceId},
        Field{&Properties::integrated, hetcclRuntimeAttributeIntegrated},
        Field{&Properties::managed_memory, hetcclRuntimeAttributeManagedMemory},
        Field{&Properties::concurrent_kernels, hetcclRuntimeAttributeConcurrentKernels},
        Field{&Properties::ecc_enabled, hetcclRuntimeAttributeEccEnabled},
    };
    for (const Field& field : kFields) {
      const auto error = device_get_attribute(&(properties.*field.member), field.attribute, device);
      if (error != hetcclRuntimeSuccess) return error;
    }
    return hetcclRuntimeSuccess;
  }
};

}  // namespace hetccl::runtime
