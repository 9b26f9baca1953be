// See fibers.h. Switching is a dozen instructions on x86-64 and swapcontext() elsewhere.
#include "codegen_cuda/host/fibers.h"

#include <sys/mman.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#include <memory>
#include <new>
#include <vector>

#include "codegen_cuda/host/prelude.h"

#if defined(__SANITIZE_ADDRESS__)
#define FERMATA_FIBERS_ASAN 1
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#define FERMATA_FIBERS_TSAN 1
#include <sanitizer/tsan_interface.h>
#endif

namespace fermata::gpu {
namespace {

constexpr std::size_t kStack = std::size_t{256} << 10;
constexpr unsigned kWarp = 32;

struct Fiber {
  enum class State : std::uint8_t { ready, at_barrier, in_exchange, done };
  State state = State::ready;
  unsigned number = 0;
  unsigned exchanges = 0;
  unsigned char* stack = nullptr;
#if defined(__x86_64__)
  void* stack_pointer = nullptr;
#else
  ucontext_t registers{};
#endif
#if FERMATA_FIBERS_ASAN
  void* fake_stack = nullptr;
#endif
#if FERMATA_FIBERS_TSAN
  void* tsan = nullptr;
#endif
};

/// What lanes have given to an exchange: two in turn, as fast lanes may start the next while slow ones read.
struct Warp {
  std::uint64_t given[2][kWarp];
  std::uint32_t arrived[2];
};

struct Scheduler {
  HostContext* context = nullptr;
  void (*entry)(void**) = nullptr;
  void** parameters = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Warp> warps;
  Fiber* current = nullptr;
  unsigned threads = 0, done = 0, waiting = 0;
#if defined(__x86_64__)
  void* stack_pointer = nullptr;
#else
  ucontext_t registers{};
#endif
#if FERMATA_FIBERS_ASAN
  void* fake_stack = nullptr;
  const void* stack_bottom = nullptr;
  std::size_t stack_size = 0;
#endif
#if FERMATA_FIBERS_TSAN
  void* tsan = nullptr;
#endif
};
Scheduler* scheduler = nullptr;  // one block runs at a time, under the executor's lock

#if defined(__x86_64__)
extern "C" void fermata_switch_fiber(void** from, void* to);
asm(R"(
.text
.type fermata_switch_fiber,@function
fermata_switch_fiber:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size fermata_switch_fiber,.-fermata_switch_fiber
)");
#endif

/// From a fiber back to its resumer.
void give_way() {
  [[maybe_unused]] Fiber& f = *scheduler->current;
#if FERMATA_FIBERS_ASAN
  __sanitizer_start_switch_fiber(&f.fake_stack, scheduler->stack_bottom, scheduler->stack_size);
#endif
#if FERMATA_FIBERS_TSAN
  __tsan_switch_to_fiber(scheduler->tsan, 0);
#endif
#if defined(__x86_64__)
  fermata_switch_fiber(&f.stack_pointer, scheduler->stack_pointer);
#else
  swapcontext(&f.registers, &scheduler->registers);
#endif
#if FERMATA_FIBERS_ASAN
  __sanitizer_finish_switch_fiber(f.fake_stack, &scheduler->stack_bottom, &scheduler->stack_size);
#endif
}

void fiber_main() {
#if FERMATA_FIBERS_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &scheduler->stack_bottom, &scheduler->stack_size);
#endif
  scheduler->entry(scheduler->parameters);
  scheduler->current->state = Fiber::State::done;
  ++scheduler->done;
  for (;;) give_way();
}

/// The fiber starts anew at its next turn, wherever it was.
void prepare(Fiber& f) {
  if (f.stack == nullptr) {
    void* const memory =
        mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    f.stack = static_cast<unsigned char*>(memory);
  }
#if FERMATA_FIBERS_TSAN
  if (f.tsan == nullptr) f.tsan = __tsan_create_fiber(0);
#endif
#if defined(__x86_64__)
  // Stacks start at different places of a page: tops that all map to one set of the cache would evict each other.
  auto* top = reinterpret_cast<std::uint64_t*>(f.stack + kStack - 64 - f.number % 61 * 192);
  *--top = 0;  // where fiber_main() would return to, which it does not
  *--top = reinterpret_cast<std::uint64_t>(&fiber_main);
  for (int i = 0; i < 6; ++i) *--top = 0;
  f.stack_pointer = top;
#else
  getcontext(&f.registers);
  f.registers.uc_stack.ss_sp = f.stack, f.registers.uc_stack.ss_size = kStack;
  makecontext(&f.registers, &fiber_main, 0);
#endif
  f.state = Fiber::State::ready, f.exchanges = 0;
}

void set_thread(HostContext& c, unsigned number) {
  c.thread[0] = number % c.block_size[0];
  c.thread[1] = number / c.block_size[0] % c.block_size[1];
  c.thread[2] = number / c.block_size[0] / c.block_size[1];
}

void take_turn(Fiber& f) {
  scheduler->current = &f;
  set_thread(*scheduler->context, f.number);
#if FERMATA_FIBERS_ASAN
  __sanitizer_start_switch_fiber(&scheduler->fake_stack, f.stack, kStack);
#endif
#if FERMATA_FIBERS_TSAN
  __tsan_switch_to_fiber(f.tsan, 0);
#endif
#if defined(__x86_64__)
  fermata_switch_fiber(&scheduler->stack_pointer, f.stack_pointer);
#else
  swapcontext(&scheduler->registers, &f.registers);
#endif
#if FERMATA_FIBERS_ASAN
  __sanitizer_finish_switch_fiber(scheduler->fake_stack, nullptr, nullptr);
#endif
}

/// One turn for each thread that can go on, in order; false if there was none.
bool round_of_turns(Scheduler& s, Turns turns) {
  bool any = false;
  for (unsigned k = 0; k < s.threads; ++k) {
    Fiber& f = *s.fibers[turns == Turns::forward ? k : s.threads - 1 - k];
    if (f.state == Fiber::State::ready) take_turn(f), any = true;
  }
  // All threads of the block, so one that has ended keeps the others waiting: a device may let that pass, or not.
  if (s.waiting == s.threads && s.threads != 0) {
    for (unsigned k = 0; k < s.threads; ++k) s.fibers[k]->state = Fiber::State::ready;
    s.waiting = 0, any = true;
  }
  return any;
}

}  // namespace

void fiber_barrier() {
  scheduler->current->state = Fiber::State::at_barrier;
  ++scheduler->waiting;
  give_way();
}

const std::uint64_t* fiber_exchange(std::uint64_t value) {
  Fiber& f = *scheduler->current;
  Warp& warp = scheduler->warps[f.number / kWarp];
  const unsigned lane = f.number % kWarp, turn = f.exchanges++ & 1u;
  warp.given[turn][lane] = value;
  warp.arrived[turn] |= 1u << lane;
  if (warp.arrived[turn] == ~0u) {  // the last one wakes the others and goes on
    warp.arrived[turn] = 0;
    for (unsigned i = 0; i < kWarp; ++i) scheduler->fibers[f.number / kWarp * kWarp + i]->state = Fiber::State::ready;
    return warp.given[turn];
  }
  f.state = Fiber::State::in_exchange;
  give_way();
  return warp.given[turn];
}

bool run_block(HostContext& context, void (*entry)(void**), void** parameters, Turns turns) {
  static Scheduler* const s = new Scheduler;  // stacks are kept for the next block
  scheduler = s;
  s->context = &context, s->entry = entry, s->parameters = parameters;
  s->threads = context.block_size[0] * context.block_size[1] * context.block_size[2];
  s->done = s->waiting = 0;
  while (s->fibers.size() < s->threads) {
    s->fibers.push_back(std::make_unique<Fiber>());
    s->fibers.back()->number = static_cast<unsigned>(s->fibers.size() - 1);
  }
  s->warps.assign((s->threads + kWarp - 1) / kWarp, Warp{});
  for (unsigned k = 0; k < s->threads; ++k) prepare(*s->fibers[k]);
#if FERMATA_FIBERS_TSAN
  s->tsan = __tsan_get_current_fiber();
#endif
  while (s->done < s->threads)
    if (!round_of_turns(*s, turns)) return false;
  return true;
}

}  // namespace fermata::gpu
