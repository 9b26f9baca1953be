// Claims on pending values: a value that several threads need is computed by one of them while the others wait.
//
// A sync claims the outputs and kernel calls of its plan before it runs, and releases them when they are published or
// have failed. No lock is held in between. A sync that finds a claim of another thread waits, holding no claims itself,
// and then walks the pending nodes again. If waiting would deadlock, because two kernels each wait for the other's
// plan, a value is computed twice instead.
#pragma once

#include <span>
#include <vector>

#include "runtime/node.h"

namespace fermata {

class Claims {
 public:
  Claims() = default;
  ~Claims() {
    if (!held_.empty()) [[unlikely]]
      release();
  }
  Claims(const Claims&) = delete;
  Claims& operator=(const Claims&) = delete;

  /// Claims all nodes. Returns false and holds none if one was claimed by another thread, after waiting for it, or is
  /// already computed.
  bool take(std::span<Node* const> nodes);
  void release();

 private:
  std::vector<Node*> held_;
};

}  // namespace fermata
