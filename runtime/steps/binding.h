// The context of steps while they are bound to sizes, and while they run.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/node.h"
#include "runtime/plan.h"
#include "runtime/steps/started_calls.h"
#include "runtime/storage.h"

namespace fermata {

/// A source bound to sizes. The offset is in elements.
struct BoundSource {
  Shape sizes, strides;
  std::int64_t offset = 0;
};

struct Binding {
  const Plan& plan;
  std::span<const Node* const> records;
  std::vector<std::size_t>& slot_bytes;  // set to 0 for slots that the bound steps do not need
  std::uint32_t step = 0;                // the number of the step that is being bound

  std::span<const std::int64_t> sizes_of(std::uint32_t record) const { return records[record]->sizes(); }
  std::span<const std::int64_t> sizes_of_slot(std::uint32_t slot) const { return sizes_of(plan.slots[slot].record); }
  BoundSource resolve(const PlanSource& source) const;
};

struct Run {
  const Plan& plan;
  // Per slot: its address, the buffer that a call may retain, and the owner of what a boxed call was given or has made.
  // Positions, and slots without a buffer yet, have no address.
  std::vector<void*>& data;
  std::vector<Storage*>& buffers;
  std::vector<StoragePtr>& owners;
  std::span<std::uint64_t> scalars;
  StartedCalls started{};

  void* address(std::uint32_t slot, std::int64_t byte_offset) const {
    return data[slot] == nullptr ? nullptr : static_cast<std::byte*>(data[slot]) + byte_offset;
  }
};

}  // namespace fermata
