// C++ interface to programs written by fermata::export_program(): fermata/run.h with RAII and exceptions. Needs C++17,
// and no part of the engine.
//
//   fermata::run::Program program("model.fermata");
//   auto results = program.run({fermata::run::tensor(pixels.data(), {1, 784})});
//   const float* scores = results.data<float>(0);
#pragma once

#include <array>
#include <complex>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <fermata/run.h>

namespace fermata::run {

struct Error : std::runtime_error {
  Error(int number, const std::string& text) : std::runtime_error(text), code(number) {}
  int code;  // docs/errors.md
};

template <class T> constexpr fermata_dtype dtype_of() {
  if constexpr (std::is_same_v<T, bool>)
    return FERMATA_BOOL;
  else if constexpr (std::is_same_v<T, float>)
    return FERMATA_F32;
  else if constexpr (std::is_same_v<T, double>)
    return FERMATA_F64;
  else if constexpr (std::is_same_v<T, std::complex<float>>)
    return FERMATA_C64;
  else if constexpr (std::is_same_v<T, std::complex<double>>)
    return FERMATA_C128;
  else {
    static_assert(std::is_integral_v<T>, "for other dtypes, fill in a Tensor");
    constexpr int log2 = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    return static_cast<fermata_dtype>((std::is_signed_v<T> ? FERMATA_I8 : FERMATA_U8) + log2);
  }
}

/// A view of dense elements in row-major order.
struct Tensor {
  void* data;
  fermata_dtype dtype;
  std::vector<std::int64_t> sizes;
};
template <class T> Tensor tensor(T* data, std::vector<std::int64_t> sizes) {
  using U = std::remove_const_t<T>;
  return {const_cast<U*>(data), dtype_of<U>(), std::move(sizes)};
}

inline void check(int code) {
  if (code != 0) throw Error(code, fermata_last_error());
}

/// What a run gives.
class Results {
 public:
  explicit Results(fermata_results* results) : results_(results) {}
  std::size_t size() const { return fermata_results_count(results_.get()); }
  Tensor operator[](std::size_t i) const {
    const fermata_tensor t = fermata_results_get(results_.get(), i);
    return {t.data, static_cast<fermata_dtype>(t.dtype), {t.sizes, t.sizes + t.rank}};
  }
  /// The elements of a result. Throws std::invalid_argument if i is out of range or the dtype differs.
  template <class T> const T* data(std::size_t i) const {
    const fermata_tensor t = fermata_results_get(results_.get(), i);
    if (i >= size() || t.dtype != dtype_of<T>()) throw std::invalid_argument("no such result, or its dtype differs");
    return static_cast<const T*>(t.data);
  }
  /// To memory of the host.
  void copy(std::size_t i, void* to) const { check(fermata_results_copy(results_.get(), i, to)); }

 private:
  struct Free {
    void operator()(fermata_results* r) const { fermata_results_free(r); }
  };
  std::unique_ptr<fermata_results, Free> results_;
};

class Program {
 public:
  /// For a device: "cpu", "cuda", "cuda:1"; by default the processor if the file has code for it, else CUDA.
  explicit Program(const std::string& path, const std::string& device = {}) {
    fermata_program* loaded = nullptr;
    check(fermata_program_load_on(path.c_str(), device.c_str(), &loaded));
    program_.reset(loaded);
  }

  std::vector<std::string> inputs() const {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < fermata_program_input_count(get()); ++i)
      names.emplace_back(fermata_program_input_name(get(), i));
    return names;
  }
  std::vector<std::string> outputs() const {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < fermata_program_output_count(get()); ++i)
      names.emplace_back(fermata_program_output_name(get(), i));
    return names;
  }
  std::string target() const { return fermata_program_target(get()); }
  void verify() const { check(fermata_program_verify(get())); }
  void seed(std::uint64_t seed) { fermata_program_seed(get(), seed); }

  /// Thread-safe: any number of threads may run a program concurrently.
  Results run(const std::vector<Tensor>& inputs) const {
    fermata_results* results = nullptr;
    const List in(inputs);
    check(fermata_program_run(get(), in.data(), in.size(), &results));
    return Results(results);
  }
  void run_into(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) const {
    const List in(inputs), out(outputs);
    check(fermata_program_run_into(get(), in.data(), in.size(), out.data(), out.size()));
  }
  /// On CUDA: waits for nothing and leaves results on the device, for later runs or for Results::copy().
  Results run_on_device(const std::vector<Tensor>& inputs) const {
    fermata_results* results = nullptr;
    const List in(inputs);
    check(fermata_program_run_on_device(get(), in.data(), in.size(), &results));
    return Results(results);
  }
  /// On CUDA: a CUstream for the runs that follow, or null for the library's own.
  void set_stream(void* stream) { check(fermata_program_set_stream(get(), stream)); }
  void wait() { check(fermata_program_wait(get())); }
  fermata_program* get() const { return program_.get(); }

 private:
  /// As C takes them; a few without an allocation.
  class List {
   public:
    explicit List(const std::vector<Tensor>& tensors) : size_(tensors.size()) {
      if (size_ > kFew) many_.resize(size_);
      fermata_tensor* to = size_ > kFew ? many_.data() : few_;
      for (const Tensor& t : tensors)
        *to++ = {t.data, t.dtype, static_cast<std::int32_t>(t.sizes.size()), t.sizes.data()};
    }
    const fermata_tensor* data() const { return size_ > kFew ? many_.data() : few_; }
    std::size_t size() const { return size_; }

   private:
    static constexpr std::size_t kFew = 8;
    std::size_t size_;
    fermata_tensor few_[kFew];
    std::vector<fermata_tensor> many_;
  };
  struct Free {
    void operator()(fermata_program* p) const { fermata_program_free(p); }
  };
  std::unique_ptr<fermata_program, Free> program_;
};

}  // namespace fermata::run
