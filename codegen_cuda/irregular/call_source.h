// Kernels of irregular ops: source that depends only on dtypes and ranks, built together with the arguments of one
// call.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/tensor_view.h"

namespace fermata::gpu {

/// Source text and its arguments. The same structure gives the same text, so it is compiled once. In it `index` is a
/// type for numbers of elements: unsigned where the loop and the views that are read count to no more than 2^31 - 1, as
/// division by 64 bits is slow, else i64.
class CallSource {
 public:
  explicit CallSource(std::string_view prefix) : prefix_(prefix) {}

  /// Adds an i64 argument and returns its name.
  std::string number(std::int64_t value);
  /// Adds a pointer argument and returns its name.
  std::string pointer(std::string_view type, const void* address);
  void line(const std::string& text) { text_ += "  " + text + "\n"; }
  void add(std::string_view text) { text_ += text; }
  /// Declares i64 `name`: the offset, in elements, of the element with row-major index `number_of` over axes [begin,
  /// end). The number is converted to `index`.
  void offset(const std::string& name, const std::string& number_of, const TensorView& view, unsigned begin,
              unsigned end);
  /// Opens a grid-stride loop over [0, count).
  void for_each(const std::string& variable, std::int64_t count);

  /// Compiles if needed, and launches with threads for `count` items.
  void launch(std::int64_t count, unsigned shared_bytes = 0) const;
  /// launch() with a number of thread blocks.
  void launch_blocks(std::int64_t blocks, unsigned threads, unsigned shared_bytes) const;

 private:
  std::string prefix_, text_;
  std::vector<std::uint64_t> slots_;
  unsigned names_ = 0;
  unsigned open_loops_ = 0;
  bool is_wide_ = false;  // `index` is i64
};

/// Copies elements from one view to another of the same sizes and dtype, at any strides.
void copy_elements(const TensorView& from, const TensorView& to);

/// A temporary buffer for the duration of a call.
class Workspace {
 public:
  explicit Workspace(std::int64_t bytes);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  void* data() const;

 private:
  void* block_;
};

/// Calls use_buffer() for all operands and results of a call.
void use_operands(const CallArgs& args);

}  // namespace fermata::gpu
