// Kernels of a device as images for architectures by name, made where there is no such device: what exported programs
// are made of.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/key_set.h"
#include "runtime/function_ref.h"

namespace fermata {

/// What is compiled: the text of a function, and what the compiler is to spend on it.
struct DeviceSource {
  std::string text;
  int effort = 0;
  bool operator==(const DeviceSource&) const = default;
};
using DeviceSources = std::map<std::string, DeviceSource>;  // by function

struct DeviceArchitecture {
  int major = 0, minor = 0;
};

class DeviceCompiler {
 public:
  virtual ~DeviceCompiler() = default;
  /// Whether images can be made here; `failure_reason` says what is missing.
  virtual bool can_compile(std::string* failure_reason) const = 0;
  /// The names of targets: machine code for each architecture, and what later ones can translate.
  virtual std::vector<std::string> targets(std::span<const DeviceArchitecture> architectures, bool for_later) const = 0;
  /// Does `work` as on a device, but launches nothing, and adds the kernels that it would have launched. On other
  /// devices of the kind other ones may be chosen: all of `kinds()` together choose all.
  virtual int kinds() const = 0;
  virtual void rehearse(int kind, bool any_size, DeviceSources& sources, FunctionRef<void()> work) const = 0;
  /// An image of functions of one effort for a target; empty where the compiler has no such target.
  virtual std::string compile(std::span<const std::pair<std::string, DeviceSource>> sources,
                              std::string_view target) const = 0;
  /// The compiler's name and version, for messages.
  virtual std::string name() const = 0;
};

/// Null where a backend has none.
const DeviceCompiler* device_compiler(BackendKey backend);
/// For the life of the process.
void set_device_compiler(BackendKey backend, const DeviceCompiler* compiler);

}  // namespace fermata
