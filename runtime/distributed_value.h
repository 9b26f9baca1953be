// Values that are divided among processes: leaves with the type of the whole value, whose storage holds only the part
// of this process.
//
// A walk notes if it contains one, and its sync then goes to the partitioner. Consumers that need all elements in one
// buffer gather them.
#pragma once

#include <memory>

#include "runtime/storage.h"

namespace fermata {

/// The data behind such a storage, defined in frontend/distributed.
struct DistributedValue {
  virtual ~DistributedValue() = default;
  /// Whether another value of the same type is divided in the same way.
  virtual bool is_divided_like(const DistributedValue& other) const = 0;
  /// How it is divided, without what is there of it.
  virtual std::shared_ptr<const DistributedValue> division() const = 0;
};

StoragePtr make_distributed_storage(std::unique_ptr<DistributedValue> value);
/// Null unless the storage is of a divided value.
const DistributedValue* distributed_value(const Storage& storage);

}  // namespace fermata
