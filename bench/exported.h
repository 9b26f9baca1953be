// A function as an exported program: libfermata_run runs it beside the engine.
#pragma once

#include <fermata/fermata.h>
#include <fermata/program.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "fermata/export.h"

namespace bench {

/// A program of a function, in a file that goes with it.
class Exported {
 public:
  template <class F, class... A> Exported(const fermata::ExportOptions& options, const F& f, const A&... arguments) {
    summary_ = fermata::export_program(path_, options, f, arguments...);
    program_.emplace(path_);
  }
  ~Exported() { std::filesystem::remove(path_); }
  Exported(const Exported&) = delete;
  Exported& operator=(const Exported&) = delete;
  const std::string& path() const { return path_; }
  const fermata::ExportSummary& summary() const { return summary_; }
  const fermata::run::Program& program() const { return *program_; }

 private:
  const std::string path_ =
      (std::filesystem::temp_directory_path() / ("bench." + std::to_string(::getpid()) + ".fermata")).string();
  fermata::ExportSummary summary_;
  std::optional<fermata::run::Program> program_;
};

/// Tensors as a program takes them. Both count dtypes alike (frontend/run/c_interface.cpp).
class Views {
 public:
  explicit Views(const std::vector<fermata::Tensor>& tensors) : kept_(tensors.size()) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const fermata::Tensor& t = tensors[i];
      const fermata::Shape shape = t.shape();
      const void* const data =
          fermata::detail::read_only_elements(t, t.dtype(), kept_[i], fermata::Location::current());
      list.push_back({const_cast<void*>(data), static_cast<fermata_dtype>(t.dtype()), {shape.begin(), shape.end()}});
    }
  }
  std::vector<fermata::run::Tensor> list;

 private:
  std::vector<fermata::Tensor> kept_;
};

inline std::vector<fermata::Tensor> tensors(const fermata::run::Results& results) {
  std::vector<fermata::Tensor> all;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const fermata::run::Tensor t = results[i];
    all.push_back(fermata::from_buffer(t.data, static_cast<fermata::DType>(t.dtype), fermata::Shape(t.sizes)));
  }
  return all;
}

}  // namespace bench
