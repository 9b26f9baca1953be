// Dispatch keys as one 64-bit set, which selects the kernel of a call.
//
// Backends take bits 0 to 7, functionalities the bits above in order of priority. "Highest functionality, then highest
// backend" is two bit scans, and the pair is the index of a flat row of the kernel table.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fermata {

// clang-format off
// Each list once: FERMATA_BACKENDS(name, printed name) and FERMATA_FUNCTIONALITIES(name, printed name, per backend).
#define FERMATA_BACKENDS(X) \
  X(cpu, "CPU") X(cuda, "CUDA") X(meta, "Meta") X(private_use1, "PrivateUse1") X(private_use2, "PrivateUse2") \
  X(private_use3, "PrivateUse3")
#define FERMATA_FUNCTIONALITIES(X)                                                                             \
  X(dense, "Dense", true) X(quantized, "Quantized", true) X(sparse_coo, "SparseCOO", true)                      \
  X(sparse_csr, "SparseCSR", true) X(backend_select, "BackendSelect", false) X(capture, "Capture", false)       \
  X(ad_inplace_or_view, "ADInplaceOrView", false) X(autograd, "Autograd", true) X(tracer, "Tracer", false)      \
  X(autocast, "Autocast", false) X(batched, "Batched", false) X(user1, "User1", false) X(user2, "User2", false)
// clang-format on

enum class BackendKey : std::uint8_t {
#define FERMATA_KEY(name, text) name,
  FERMATA_BACKENDS(FERMATA_KEY)
#undef FERMATA_KEY
};
enum class Functionality : std::uint8_t {
#define FERMATA_KEY(name, text, per_backend) name,
  FERMATA_FUNCTIONALITIES(FERMATA_KEY)
#undef FERMATA_KEY
};
inline constexpr std::string_view kBackendNames[] = {
#define FERMATA_KEY(name, text) text,
    FERMATA_BACKENDS(FERMATA_KEY)
#undef FERMATA_KEY
};
inline constexpr std::string_view kFunctionalityNames[] = {
#define FERMATA_KEY(name, text, per_backend) text,
    FERMATA_FUNCTIONALITIES(FERMATA_KEY)
#undef FERMATA_KEY
};
inline constexpr std::size_t kBackendCount = std::size(kBackendNames);
inline constexpr std::size_t kFunctionalityCount = std::size(kFunctionalityNames);

struct DispatchKeySet {
  std::uint64_t bits = 0;
  constexpr DispatchKeySet() = default;
  constexpr explicit DispatchKeySet(std::uint64_t raw) : bits(raw) {}
  constexpr DispatchKeySet(BackendKey b) : bits(1ull << static_cast<unsigned>(b)) {}
  constexpr DispatchKeySet(Functionality f) : bits(256ull << static_cast<unsigned>(f)) {}
  constexpr DispatchKeySet operator|(DispatchKeySet o) const { return DispatchKeySet(bits | o.bits); }
  constexpr DispatchKeySet operator&(DispatchKeySet o) const { return DispatchKeySet(bits & o.bits); }
  constexpr DispatchKeySet operator-(DispatchKeySet o) const { return DispatchKeySet(bits & ~o.bits); }
  constexpr bool operator==(const DispatchKeySet&) const = default;
  constexpr bool has(DispatchKeySet o) const { return (bits & o.bits) == o.bits; }
  /// The highest backend plus one, 0 for none.
  constexpr std::size_t column() const { return static_cast<std::size_t>(std::bit_width(bits & 0xff)); }
  /// Row (functionality, 0 for none) times 8 plus column (backend, 0 for none).
  constexpr std::size_t cell() const {
    return static_cast<std::size_t>(std::bit_width(bits >> 8) * 8 + std::bit_width(bits & 0xff));
  }
  /// The highest backend; the CPU if there is none.
  constexpr BackendKey backend() const {
    return static_cast<BackendKey>((bits & 0xff) == 0 ? 0 : std::bit_width(bits & 0xff) - 1);
  }
  /// The keys strictly below a functionality, for redispatch.
  constexpr DispatchKeySet below(Functionality f) const {
    return DispatchKeySet(bits & ((256ull << static_cast<unsigned>(f)) - 1));
  }
};
constexpr std::size_t cell_of(Functionality f, BackendKey b) {
  return (static_cast<std::size_t>(f) + 1) * 8 + static_cast<std::size_t>(b) + 1;
}
constexpr std::size_t cell_of(Functionality f) { return (static_cast<std::size_t>(f) + 1) * 8; }
inline constexpr std::size_t kCells = 16 * 8;

/// The keys of a tensor's data, as opposed to modes and wrappers; results inherit them.
inline constexpr DispatchKeySet kDataKeys = DispatchKeySet(std::uint64_t{0xff}) | Functionality::dense |
                                            Functionality::quantized | Functionality::sparse_coo |
                                            Functionality::sparse_csr;

/// The keys of a result: those of the operands, on the backend that computed it.
constexpr DispatchKeySet data_keys(DispatchKeySet call, BackendKey backend) {
  return ((call & kDataKeys) - DispatchKeySet(std::uint64_t{0xff})) | backend;
}

/// Keys of tensors composed of other tensors; calls on them are not recorded as a whole.
inline constexpr DispatchKeySet kCompoundKeys =
    DispatchKeySet(Functionality::quantized) | Functionality::sparse_coo | Functionality::sparse_csr;

/// The initial keys of every thread. Ops without a kernel for one of these skip it at no cost.
inline constexpr DispatchKeySet kDefaultKeys =
    DispatchKeySet(Functionality::capture) | Functionality::ad_inplace_or_view | Functionality::backend_select;

/// The keys that the thread adds to and removes from every call. Constant-initialized and trivially destructible, so
/// that an access is one load relative to the thread pointer, without a guard test on the hot path.
struct ThreadKeys {
  DispatchKeySet included, excluded;
};
extern constinit thread_local ThreadKeys thread_keys;

/// Includes and excludes keys for a scope; guards nest, and restore on exceptions.
class KeyGuard {
 public:
  KeyGuard(DispatchKeySet include, DispatchKeySet exclude) : saved_(thread_keys) {
    thread_keys = {saved_.included | include, saved_.excluded | exclude};
  }
  ~KeyGuard() { thread_keys = saved_; }
  KeyGuard(const KeyGuard&) = delete;
  KeyGuard& operator=(const KeyGuard&) = delete;

 private:
  ThreadKeys saved_;
};

}  // namespace fermata
