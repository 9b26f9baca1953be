// `emit` variants: ops that can be expressed as kernel descriptions. They are the same for every backend that compiles
// them.
#pragma once

#include <string>

#include "dispatch/kernel_table.h"

namespace fermata {

/// Whether the op can be expressed in a kernel description. Such ops fuse.
bool is_emitted(Op op);
/// The operand dtypes that an `emit` variant accepts: the results of the op's dtype rule.
DTypeSet emitted_dtypes(Op op);
/// Adds an `emit` variant for every such op that has none in the backend's cells, registered at `where`; with
/// `complex_parts` also of complex dtypes, where an op has a form of parts; with `picks` also of ops that
/// pick elements.
void add_emit_variants(BackendKey backend, const std::string& variant, bool complex_parts, bool picks,
                       std::source_location where = std::source_location::current());
/// Adds `call` variants of pointwise ops, casts and copies that run a single-op kernel, compiled through the cache, for
/// eager calls.
void add_one_op_variants(BackendKey backend, std::source_location where = std::source_location::current());
/// Adds CPU fallbacks, with copies there and back, for ops and dtypes without a variant of the backend.
void add_cpu_fallback(BackendKey backend, std::source_location where = std::source_location::current());

}  // namespace fermata
