// Source text for elements of a dtype in kernels of irregular ops.
#pragma once

#include <string>
#include <string_view>

#include "ir/dtype.h"

namespace fermata::gpu {

/// The unsigned integer type of an element's size, for kernels that only move elements.
std::string_view bits_text(DType dtype);

/// Types for arithmetic on elements: half floats in f32; integers as unsigned ones, so that they wrap, unless their
/// order matters.
struct ElementText {
  std::string memory;         // the type in memory
  std::string sum;            // the compute type
  std::string product;        // a type in which products do not overflow
  std::string widen, narrow;  // functions for half floats, else empty
  /// Loads an element in the compute type.
  std::string load(const std::string& address) const;
  /// Converts a value to its memory type.
  std::string stored(const std::string& value) const;
};
ElementText element_text(DType dtype, bool ordered);

}  // namespace fermata::gpu
