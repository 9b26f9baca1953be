// A program that a debugger stops in: see debugger_test.cpp.
#include <fermata/fermata.h>

namespace fm = fermata;

[[gnu::noinline]] void stop_here(const fm::Tensor& ready, const fm::Tensor& pending, const fm::Tensor& half,
                                 const fm::Tensor& view, const fm::Tensor& undefined) {
  static_cast<void>(ready), static_cast<void>(pending), static_cast<void>(half);
  static_cast<void>(view), static_cast<void>(undefined);
  asm volatile("" ::: "memory");
}

int main() {
  fm::set_compile_policy(fm::CompilePolicy::immediate);
  const fm::Tensor ready = fm::tensor({{1.5f, -2.0f, 3.0f}, {4.0f, 5.0f, 6.0f}}).sync();
  const fm::Tensor made = (fm::exp(ready) * 2 + 1).sync();
  const fm::Tensor half = ready.to(fm::DType::bf16).sync();
  const fm::Tensor view = fm::transpose(ready).sync();
  const fm::Tensor pending = ready + made;
  stop_here(ready, pending, half, view, fm::Tensor());
}
