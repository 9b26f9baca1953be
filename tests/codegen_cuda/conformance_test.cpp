// Every row of the coverage table (frontend/coverage/*.def) on CUDA: in both modes, in several dtypes and layouts, with
// its derivative and vmap, against the CPU; every kernel by NVRTC as well.
//
// Calls are started in groups, so that their kernels are compiled together. FERMATA_CUDA_CONFORMANCE=all tries every
// dtype in every layout; otherwise each dtype has one layout, and dtypes are those that kernels differ most between.
#include <gtest/gtest.h>

#include <cstdlib>

#include "frontend/coverage/coverage.h"
#include "tests/codegen_cuda/cuda_case.h"
#include "tests/codegen_cuda/nvrtc_check.h"

namespace fermata {
namespace {

using coverage::Function;
using coverage::Results;

bool tries_all() {
  const char* const text = std::getenv("FERMATA_CUDA_CONFORMANCE");
  return text != nullptr && std::string_view(text) == "all";
}

/// The same values, lying differently in memory.
Tensor laid_out(const Tensor& x, std::size_t layout) {
  switch (layout % 4) {
    case 1: {
      std::vector<std::int64_t> order;
      for (std::int64_t i = x.rank(); i-- > 0;) order.push_back(i);
      return permute(copy(permute(x, order)), order);
    }
    case 2: return flip(copy(flip(x)));
    case 3: return select(copy(stack({zeros_like(x), x}, -1)), -1, 1);
    default: return x;
  }
}

/// What the CPU's numbers may differ by: products and transcendental functions of complex numbers are libraries'.
double allowed(DType dtype) {
  switch (dtype) {
    case DType::f16: return 4e-3;
    case DType::bf16: return 3e-2;
    case DType::f32:
    case DType::c64: return 2e-5;
    case DType::f64:
    case DType::c128: return 1e-11;
    default: return 0;
  }
}

struct Cell {
  std::string name;
  std::function<Results(std::span<const Tensor>)> call;
  std::vector<Tensor> inputs;  // on the CPU
  DType dtype;
};

/// The sum of what is floating in the results, with weights that differ.
Tensor weighted(const Results& results) {
  Tensor total;
  for (const Tensor& r : results) {
    if (!is_floating(r.dtype())) continue;
    const Tensor flat = reshape(r, -1);
    const Tensor part = sum(flat * astype(sin(iota({flat.size(0)}, 0, device(flat)) * 1.7 + 0.3), flat.dtype()));
    total = total.defined() ? total + part : part;
  }
  return total;
}

Results gradients_of(const Function& f, std::span<const Tensor> inputs) {
  std::vector<Tensor> marked(inputs.begin(), inputs.end()), leaves;
  for (Tensor& x : marked)
    if (is_floating(x.dtype())) x = copy(x), x.requires_grad(true), leaves.push_back(x);
  if (leaves.empty()) return {};
  const Tensor y = weighted(f.call(marked));
  return y.defined() && y.requires_grad() ? gradients(y, leaves) : Results{};
}

Results batched(const Function& f, std::span<const Tensor> inputs) {
  std::vector<Tensor> both;
  for (const Tensor& x : inputs) both.push_back(stack({x, flip(x)}));
  return both.empty() ? Results{} : vmap([&f](const std::vector<Tensor>& x) { return f.call(x); })(both);
}

/// Whether the CPU takes the call: what it refuses, by dtype or for its derivative, is no cell.
bool accepted(const Cell& cell) {
  try {
    for (const Tensor& r : cell.call(cell.inputs)) r.sync();
    return true;
  } catch (const Error&) { return false; }
}

std::vector<Cell> cells_of(const Function& f, std::size_t row) {
  std::vector<Cell> cells;
  const std::vector<coverage::Input> inputs = coverage::parse_inputs(f.inputs);
  const DType main = coverage::main_dtype(f);
  const auto add = [&](std::string what, DType dtype, std::size_t layout,
                       std::function<Results(std::span<const Tensor>)> call) {
    Cell cell{fmt::format("{} {} layout {}{}", f.name, name(dtype), layout % 4, what), std::move(call), {}, dtype};
    for (const Tensor& x : coverage::sample_inputs(inputs, dtype)) cell.inputs.push_back(laid_out(x, layout));
    if (accepted(cell)) cells.push_back(std::move(cell));
  };
  std::vector<DType> dtypes = {main};
  for (std::size_t t = 0; t < kDTypeCount; ++t) {
    const auto dtype = static_cast<DType>(t);
    const bool differs = dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::i32 || dtype == DType::u8;
    if (dtype != main && !is_quantized(dtype) && (differs || tries_all())) dtypes.push_back(dtype);
  }
  for (std::size_t i = 0; i < dtypes.size(); ++i)
    for (std::size_t layout = 0; layout < (tries_all() ? 4u : 1u); ++layout)
      add("", dtypes[i], row + i + layout, f.call);
  add(", derivative", main, 0, [&f](std::span<const Tensor> x) { return gradients_of(f, x); });
  add(", vmap", main, 0, [&f](std::span<const Tensor> x) { return batched(f, x); });
  return cells;
}

class CudaConformance : public ::testing::TestWithParam<Mode> {
 protected:
  void SetUp() override {
    std::string failure_reason;
    if (!gpu::usable(&failure_reason)) GTEST_SKIP() << failure_reason;
  }

 private:
  const test::CompiledSources sources_;
};

Results on_device(const Cell& cell) {
  std::vector<Tensor> moved;
  for (const Tensor& x : cell.inputs) moved.push_back(x.to(cuda()));
  manual_seed(7);
  Results results = cell.call(moved);
  flush(results);
  return results;
}

double allowed(const Results& wanted) {
  double most = 0;
  for (const Tensor& r : wanted) most = std::max(most, allowed(r.dtype()));
  return most;
}

/// What is wrong with a cell, or "".
std::string complaint(const Cell& cell, const Results& got) {
  manual_seed(7);
  const Results wanted = cell.call(cell.inputs);
  for (const Tensor& r : got)
    if (device(r) != cuda()) return "a result is not on the device";
  const double apart = coverage::difference(got, wanted);
  return apart <= allowed(wanted) ? "" : fmt::format("differs by {}, {} is allowed", apart, allowed(wanted));
}

TEST_P(CudaConformance, EveryRowAgreesWithTheCpu) {
  constexpr std::size_t kTogether = 400;
  const ModeGuard guard(GetParam());
  std::vector<Cell> cells;
  std::size_t rows = 0, compared = 0, on_host = 0;
  for (const Function& f : coverage::functions()) {
    if (f.call == nullptr || f.inputs.empty()) continue;
    for (Cell& cell : cells_of(f, rows)) cells.push_back(std::move(cell));
    ++rows;
  }
  for (std::size_t first = 0; first < cells.size(); first += kTogether) {
    const std::span<const Cell> some = std::span(cells).subspan(first, std::min(kTogether, cells.size() - first));
    std::vector<Results> results(some.size());
    bool broken = false;  // after an error nothing that has been started runs: each on its own, then
    for (std::size_t i = 0; i < some.size(); ++i) try {
        results[i] = on_device(some[i]);
      } catch (const DeviceError& error) {
        if (error.code() != 1402) ADD_FAILURE() << some[i].name << ": " << error.what();
        ++on_host;  // it hands out memory of the CPU
      } catch (const Error& error) {
        ADD_FAILURE() << some[i].name << ": " << error.what();
        broken = true;
      }
    for (std::size_t i = 0; i < some.size(); ++i) try {
        if (results[i].empty()) continue;
        if (broken) results[i] = on_device(some[i]);
        EXPECT_EQ(complaint(some[i], results[i]), "") << some[i].name;
        ++compared;
      } catch (const Error& error) {
        ADD_FAILURE() << some[i].name << ": " << error.what();
        broken = true;
      }
  }
  std::printf("%zu cells of %zu rows\n", compared, rows);
  EXPECT_GT(compared, 2 * rows);
  EXPECT_LT(on_host, compared / 20);
}
INSTANTIATE_TEST_SUITE_P(Modes, CudaConformance, ::testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& info) { return info.param == Mode::eager ? "eager" : "compiled"; });

}  // namespace
}  // namespace fermata
