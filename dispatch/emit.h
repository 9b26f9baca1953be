// What kernel descriptions can say, as variants of a backend's cells: the same for every backend that compiles them.
#pragma once

#include <string>

#include "dispatch/kernel_table.h"

namespace fermata {

/// Is the op part of the language of kernel descriptions? Such ops fuse.
bool is_emitted(Op op);
/// The operand dtypes that an emitting variant accepts: what the op's rule makes of anything.
DTypeSet emitted_dtypes(Op op);
/// An `emit` variant for every such op that the backend's cells have none for, registered at `where`.
void add_emit_variants(BackendKey backend, const std::string& variant,
                       std::source_location where = std::source_location::current());
/// Calls of a one-op kernel, compiled through the cache, for the pointwise ops, casts and copies: for those who call a
/// backend's kernels one by one.
void add_one_op_variants(BackendKey backend, std::source_location where = std::source_location::current());
/// Runs the ops, and the dtypes of ops, that the backend has no variant of on the CPU, with copies there and back.
void add_cpu_fallback(BackendKey backend, std::source_location where = std::source_location::current());

}  // namespace fermata
