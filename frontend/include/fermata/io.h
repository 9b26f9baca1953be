// Tensors from files and back: tables of numbers as text, and NumPy's .npy and .npz. fermata/safetensors.h has files of
// named tensors.
#pragma once

#include <cstdint>
#include <string>

#include "fermata/named_tensors.h"
#include "runtime/tensor.h"

namespace fermata {

struct CsvFormat {
  char separator = ',';
  std::int64_t skip_lines = 0;  // a header, for instance
};

/// Reads a table of numbers, one row a line, as a matrix.
///
/// Shape    [lines, values a line]; empty lines are left out, and a file without values gives [0, 0].
/// DType    any real dtype or bool (0, 1, true, false). Floats may be nan or inf, and are rounded once, to `dtype`.
/// Errors   FileError if the file cannot be read, a line has more or fewer values than the first, or a value is not a
///          number of that dtype; DTypeError for complex and quantized dtypes.
Tensor load_csv(const std::string& path, DType dtype = DType::f32, const CsvFormat& format = {},
                Location where = Location::current());

/// Writes a vector as one column or a matrix row by row, in as many digits as reading back the same bits takes.
///
/// Errors   ShapeError for other ranks; DTypeError for complex and quantized dtypes; FileError if the file cannot be
///          written, in which case an earlier file of that name is still there.
void save_csv(const std::string& path, const Tensor& x, const CsvFormat& format = {},
              Location where = Location::current());

/// Reads an array that NumPy saved: format version 1 to 3, either byte order, C or Fortran order.
///
/// DType    that of the file: bool, u1 to u8, i1 to i8, f2, f4, f8.
/// Errors   FileError if the file cannot be read or is damaged; UnsupportedError for other dtypes.
Tensor load_npy(const std::string& path, Location where = Location::current());

/// Writes an array for NumPy (format version 1, little-endian, C order).
///
/// Errors   DTypeError for dtypes that NumPy has not (bf16, quantized) and for complex ones; FileError as in save_csv.
void save_npy(const std::string& path, const Tensor& x, Location where = Location::current());

/// load_npy() without reading the elements: the file is mapped into memory, privately, and read as they are used. A
/// copy where they are not little-endian, in row-major order and aligned to their dtype.
Tensor map_npy(const std::string& path, Location where = Location::current());

/// Reads the arrays of an archive that numpy.savez or savez_compressed wrote.
///
/// Errors   FileError as load_npy, also for two arrays of one name; UnsupportedError FM2025 in a build without libzip.
NamedTensors load_npz(const std::string& path, Location where = Location::current());
/// Writes arrays as an archive, compressed or as they are.
///
/// Errors   those of save_npy; ValueError FM1385 for a name that is empty or leads out of a folder; UnsupportedError
///          FM2025.
void save_npz(const std::string& path, const NamedTensors& arrays, bool compressed = false,
              Location where = Location::current());

}  // namespace fermata
