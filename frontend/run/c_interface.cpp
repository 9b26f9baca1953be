// See fermata/run.h.
#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

#include <fermata/run.h>
#include "frontend/run/cpu_program.h"
#include "ir/error.h"
#include "ir/per_thread.h"
#include "runtime/thread_pool.h"

using namespace fermata;

static_assert(FERMATA_BOOL == static_cast<int>(DType::boolean) && FERMATA_F32 == static_cast<int>(DType::f32) &&
              FERMATA_C128 == static_cast<int>(DType::c128) && FERMATA_F8E4M3FN == static_cast<int>(DType::f8e4m3fn) &&
              FERMATA_F8E8M0FNU == static_cast<int>(DType::f8e8m0fnu));

struct fermata_program {
  explicit fermata_program(std::unique_ptr<LoadedProgram> p) : program(std::move(p)) {
    for (const ProgramInput& in : program->file().inputs) {
      std::vector<std::int64_t>& s = sizes.emplace_back();
      for (const SizeExpression& x : in.sizes) s.push_back(x.is_constant() ? x.offset : -1);
    }
  }
  std::unique_ptr<LoadedProgram> program;
  std::vector<std::vector<std::int64_t>> sizes;  // of the inputs, -1 where any
};
struct fermata_results {
  std::vector<DenseResult> tensors;
};

namespace {

constexpr int kNoMemory = 3001, kInternal = 9001;
/// At one place for all errors of a thread, so that printf("%d %s", fermata_program_run(...), fermata_last_error()) is
/// right in whichever order a compiler evaluates its arguments.
using ErrorText = std::array<char, 4096>;
ErrorText& last_error() {
  static constinit thread_local PerThread<ErrorText> text;
  return text.get();
}

int failed(int code, const char* text) {
  try {
    ErrorText& kept = last_error();
    const std::size_t length = std::min(std::strlen(text), kept.size() - 1);
    *std::copy_n(text, length, kept.data()) = '\0';
  } catch (...) {}  // no memory: no text
  return code;
}

/// 0, or the number of the error that f throws.
template <class F> int guarded(F&& f) {
  try {
    f();
    return 0;
  } catch (const Error& error) { return failed(error.code(), error.what()); } catch (const std::bad_alloc&) {
    return failed(kNoMemory, "FM3001 OutOfMemoryError: out of memory");
  } catch (const std::exception& error) { return failed(kInternal, error.what()); } catch (...) {
    return failed(kInternal, "unknown error");
  }
}

[[noreturn]] void refuse(const std::string& what) {
  throw ValueError(2211, format_error(2211, "ValueError", what, {}, {}));
}

/// What a caller gives, as the library takes it. Most programs have few inputs, which need no allocation.
class Views {
 public:
  Views(const fermata_tensor* tensors, std::size_t count);
  operator std::span<const DenseView>() const { return {many_.empty() ? few_.data() : many_.data(), count_}; }

 private:
  std::size_t count_;
  std::array<DenseView, 8> few_;
  std::vector<DenseView> many_;
};

Views::Views(const fermata_tensor* tensors, std::size_t count) : count_(count) {
  if (tensors == nullptr && count != 0) refuse("the list of tensors is null");
  if (count > few_.size()) many_.resize(count);
  DenseView* const views = many_.empty() ? few_.data() : many_.data();
  for (std::size_t i = 0; i < count; ++i) {
    const fermata_tensor& t = tensors[i];
    const bool is_small = t.dtype >= FERMATA_F8E4M3FN && t.dtype <= FERMATA_F8E8M0FNU;
    if (t.dtype < FERMATA_BOOL || (t.dtype > FERMATA_C128 && !is_small)) refuse("a tensor has an unknown dtype");
    if (t.rank < 0 || t.rank > static_cast<std::int32_t>(kMaxRank) || (t.rank > 0 && t.sizes == nullptr))
      refuse("a tensor has an invalid rank, or no sizes");
    views[i] = {t.data, static_cast<DType>(t.dtype), {t.sizes, static_cast<std::size_t>(t.rank)}};
  }
}

template <class List> const char* name_of(const List& list, std::size_t i) {
  return i < list.size() ? list[i].name.c_str() : nullptr;
}

int run(fermata_program* p, const fermata_tensor* inputs, std::size_t count, fermata_results** results, bool stay) {
  return guarded([&] {
    if (p == nullptr || results == nullptr) refuse("the program or the results pointer is null");
    *results = nullptr;
    auto made = std::make_unique<fermata_results>();
    made->tensors = p->program->run(Views(inputs, count), {}, stay);
    *results = made.release();
  });
}

}  // namespace

extern "C" {

const char* fermata_last_error(void) {
  try {
    return last_error().data();
  } catch (...) { return ""; }
}
const char* fermata_run_version(void) { return FERMATA_VERSION; }
int fermata_set_threads(int threads) {
  return guarded([&] {
    if (threads < 1) refuse("the number of threads must be at least 1");
    set_thread_count(threads);
  });
}

int fermata_program_load(const char* path, fermata_program** program) {
  return fermata_program_load_on(path, "", program);
}
int fermata_program_load_on(const char* path, const char* device, fermata_program** program) {
  return guarded([&] {
    if (path == nullptr || device == nullptr || program == nullptr)
      refuse("the path, device or program pointer is null");
    *program = nullptr;
    *program = new fermata_program(load_program(path, device));
  });
}
void fermata_program_free(fermata_program* program) { delete program; }

size_t fermata_program_input_count(const fermata_program* p) { return p->program->file().inputs.size(); }
size_t fermata_program_output_count(const fermata_program* p) { return p->program->file().outputs.size(); }
const char* fermata_program_input_name(const fermata_program* p, size_t input) {
  return name_of(p->program->file().inputs, input);
}
const char* fermata_program_output_name(const fermata_program* p, size_t output) {
  return name_of(p->program->file().outputs, output);
}
fermata_tensor fermata_program_input(const fermata_program* p, size_t input) {
  if (input >= p->sizes.size()) return {nullptr, FERMATA_F32, 0, nullptr};
  return {nullptr, static_cast<std::int32_t>(p->program->file().inputs[input].dtype),
          static_cast<std::int32_t>(p->sizes[input].size()), p->sizes[input].data()};
}
const char* fermata_program_target(const fermata_program* p) { return p->program->target().c_str(); }
int fermata_program_verify(const fermata_program* p) {
  return guarded([&] { p->program->verify(); });
}
void fermata_program_seed(fermata_program* p, uint64_t seed) { p->program->seed(seed); }

int fermata_program_run(fermata_program* p, const fermata_tensor* inputs, size_t input_count,
                        fermata_results** results) {
  return run(p, inputs, input_count, results, false);
}
int fermata_program_run_on_device(fermata_program* p, const fermata_tensor* inputs, size_t input_count,
                                  fermata_results** results) {
  return run(p, inputs, input_count, results, true);
}
int fermata_program_run_into(fermata_program* p, const fermata_tensor* inputs, size_t input_count,
                             const fermata_tensor* outputs, size_t output_count) {
  return guarded([&] {
    if (p == nullptr) refuse("the program is null");
    if (output_count != p->program->file().outputs.size()) refuse("the number of outputs does not match the program");
    p->program->run(Views(inputs, input_count), Views(outputs, output_count));
  });
}

int fermata_program_set_stream(fermata_program* p, void* stream) {
  return guarded([&] {
    if (p == nullptr) refuse("the program is null");
    if (!p->program->set_stream(stream)) refuse("a program on the CPU has no stream");
  });
}
int fermata_program_wait(fermata_program* p) {
  return guarded([&] {
    if (p == nullptr) refuse("the program is null");
    p->program->wait();
  });
}

size_t fermata_results_count(const fermata_results* results) { return results->tensors.size(); }
fermata_tensor fermata_results_get(const fermata_results* results, size_t output) {
  if (output >= results->tensors.size()) return {nullptr, FERMATA_F32, 0, nullptr};
  const DenseResult& r = results->tensors[output];
  return {r.data, static_cast<std::int32_t>(r.type.dtype), static_cast<std::int32_t>(r.type.shape.rank()),
          r.type.shape.data()};
}
int fermata_results_copy(const fermata_results* results, size_t output, void* to) {
  return guarded([&] {
    if (results == nullptr || output >= results->tensors.size() || to == nullptr)
      refuse("there is no such result, or its pointer is null");
    const DenseResult& result = results->tensors[output];
    result.copy(result, to);
  });
}
void fermata_results_free(fermata_results* results) { delete results; }

}  // extern "C"
