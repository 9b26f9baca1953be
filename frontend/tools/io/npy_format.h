// The format of numpy.lib.format, versions 1 to 3, in memory: what .npy files and the entries of .npz archives are.
//
// A file is a magic string, a version, the length of the header, the header (a Python dictionary as text, padded so
// that the data is aligned to 64 bytes) and the elements.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "runtime/tensor.h"

namespace fermata {

struct NpyHeader {
  DType dtype;
  bool big_endian, fortran_order;
  Shape shape;
  std::size_t data_begin;
};
/// Reads the header that bytes begin with; whatever is not as it should be is FM1603 FileError, or FM2003
/// UnsupportedError for a dtype.
NpyHeader read_npy_header(std::string_view function, const std::string& path, std::string_view bytes, Location where);
/// What stands before the elements of a tensor; FM1101 DTypeError.
std::string npy_head(std::string_view function, const Tensor& x, Location where);

/// Copies elements of `width` bytes that lie in Fortran order into row-major order.
void copy_transposed(const Shape& shape, std::size_t width, const char* from, char* to);
/// Elements in the order of this machine, and bool as 0 and 1.
void settle_elements(const NpyHeader& header, char* elements, std::size_t bytes);

}  // namespace fermata
