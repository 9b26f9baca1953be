// Redirects the draws of a function.
#pragma once

#include "fermata/random.h"
#include "ir/random_stream.h"

namespace fermata {

/// Replaces the state of this thread's generator for a scope.
class GeneratorScope {
 public:
  explicit GeneratorScope(const Generator& inside) : outside_(default_generator()) { default_generator() = inside; }
  ~GeneratorScope() { default_generator() = outside_; }
  const Generator& outside() const { return outside_; }
  GeneratorScope(const GeneratorScope&) = delete;
  GeneratorScope& operator=(const GeneratorScope&) = delete;

 private:
  Generator outside_;
};

/// Installs the hooks of dispatch/call_context.h that give impure calls their own stream.
void install_draws();

}  // namespace fermata
