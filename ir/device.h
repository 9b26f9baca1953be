// A device: a kind, and an index among devices of that kind.
#pragma once

#include <string>

#include "ir/key_set.h"

namespace fermata {

/// Printed as "cpu", "cuda:1", "meta" or "private_use1:0".
class Device {
 public:
  /// The default index is 0.
  constexpr Device(BackendKey backend = BackendKey::cpu, int index = 0) : backend_(backend), index_(index) {}
  constexpr BackendKey backend() const { return backend_; }
  constexpr int index() const { return index_; }
  constexpr bool operator==(const Device&) const = default;

 private:
  BackendKey backend_;
  int index_;
};

inline std::string to_string(Device device) {
  constexpr std::string_view kNames[] = {
#define FERMATA_KEY(name, text) #name,
      FERMATA_BACKENDS(FERMATA_KEY)
#undef FERMATA_KEY
  };
  std::string text(kNames[static_cast<std::size_t>(device.backend())]);
  const bool only_one = device.backend() == BackendKey::cpu || device.backend() == BackendKey::meta;
  return only_one && device.index() == 0 ? text : text + ":" + std::to_string(device.index());
}

}  // namespace fermata
