// How kernels of irregular ops speak of the elements of a dtype.
#pragma once

#include <string>
#include <string_view>

#include "ir/dtype.h"

namespace fermata::gpu {

/// An unsigned integer of an element's size: for kernels that only move elements.
std::string_view bits_text(DType dtype);

/// Elements that are computed with: half floats in f32, integers as unsigned ones, so that they wrap, unless their
/// order matters.
struct ElementText {
  std::string memory;         // the type in memory
  std::string sum;            // the type that is computed in
  std::string product;        // one that products of it do not overflow
  std::string widen, narrow;  // functions for half floats, else empty
  /// The element at an address, in the type that is computed in.
  std::string load(const std::string& address) const;
  /// A value as it lies in memory.
  std::string stored(const std::string& value) const;
};
ElementText element_text(DType dtype, bool ordered);

}  // namespace fermata::gpu
