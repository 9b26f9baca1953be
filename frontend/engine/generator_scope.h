// Where the draws of a function come from while it runs.
#pragma once

#include "fermata/random.h"
#include "ir/random_stream.h"

namespace fermata {

/// Another state of this thread's generator, for a scope.
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

/// Gives calls that are not pure a stream of their own: the hooks of dispatch/call_context.h.
void install_draws();

}  // namespace fermata
