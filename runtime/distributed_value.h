// Values that are sharded over processes: leaves with the type of the whole value, whose storage holds only the part
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
  /// Whether another value of the same type is sharded in the same way.
  virtual bool is_divided_like(const DistributedValue& other) const = 0;
  /// Its sharding, without elements.
  virtual std::shared_ptr<const DistributedValue> division() const = 0;
};

StoragePtr make_distributed_storage(std::unique_ptr<DistributedValue> value);
/// Null unless the storage holds a sharded value.
const DistributedValue* distributed_value(const Storage& storage);

}  // namespace fermata
