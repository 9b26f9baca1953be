// Reading and writing tensors: CSV, and NumPy's .npy and .npz. fermata/safetensors.h handles safetensors files.
#pragma once

#include <cstdint>
#include <string>

#include "fermata/named_tensors.h"
#include "runtime/tensor.h"

namespace fermata {

struct CsvFormat {
  char separator = ',';
  std::int64_t skip_lines = 0;  // for example a header
};

/// Reads a text table, one row per line, as a matrix.
///
/// Shape    [lines, values per line]; empty lines are skipped, and a file without values gives [0, 0].
/// DType    any real dtype or bool (0, 1, true, false). Floats may be nan or inf; they are rounded once, to `dtype`.
/// Errors   FileError if the file cannot be read, a line has more or fewer values than the first, or a value is not a
///          number of that dtype; DTypeError for complex and quantized dtypes.
Tensor load_csv(const std::string& path, DType dtype = DType::f32, const CsvFormat& format = {},
                Location where = Location::current());

/// Writes a vector as one column or a matrix row by row, with enough digits to read back the same bits.
///
/// Errors   ShapeError for other ranks; DTypeError for complex and quantized dtypes; FileError if the file cannot be
///          written; an existing file of that name is then unchanged.
void save_csv(const std::string& path, const Tensor& x, const CsvFormat& format = {},
              Location where = Location::current());

/// Reads an .npy file: format versions 1 to 3, either byte order, C or Fortran order.
///
/// DType    that of the file, one of bool, u1 to u8, i1 to i8, f2, f4, f8.
/// Errors   FileError if the file cannot be read or is damaged; UnsupportedError for other dtypes.
Tensor load_npy(const std::string& path, Location where = Location::current());

/// Writes an .npy file (format version 1, little-endian, C order).
///
/// Errors   DTypeError for dtypes that NumPy lacks (bf16, quantized); FileError as in save_csv.
void save_npy(const std::string& path, const Tensor& x, Location where = Location::current());

/// load_npy() by a private memory mapping, which reads elements when they are used. Elements that are not
/// little-endian, row-major and aligned to their dtype are copied.
Tensor map_npy(const std::string& path, Location where = Location::current());

/// Reads the arrays of an .npz archive, as written by numpy.savez or savez_compressed.
///
/// Errors   FileError as for load_npy, and for duplicate names; UnsupportedError FM2025 in a build without libzip.
NamedTensors load_npz(const std::string& path, Location where = Location::current());
/// Writes arrays as an .npz archive, optionally compressed.
///
/// Errors   those of save_npy; ValueError FM1385 for a name that is empty or escapes the extraction folder;
///          UnsupportedError FM2025.
void save_npz(const std::string& path, const NamedTensors& arrays, bool compressed = false,
              Location where = Location::current());

}  // namespace fermata
