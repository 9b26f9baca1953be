// Who computes what: a pending value that several threads want is computed by one of them, and the others wait for it.
//
// A sync claims what its plan gives and the calls of kernels in it before it runs, and lets go of them when they are
// published or have failed. No lock is held in between. A sync that meets a claim of another thread waits, holding none
// of its own, and then looks again at what is pending. Where waiting would never end, as each of two kernels waits for
// what the other's plan computes, a value is computed twice instead.
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

  /// Claims all of them. False if one was another thread's, after waiting for that, or has been computed: then nothing
  /// is held.
  bool take(std::span<Node* const> nodes);
  void release();

 private:
  std::vector<Node*> held_;
};

}  // namespace fermata
