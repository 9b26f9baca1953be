// See distributed_value.h.
#include "runtime/distributed_value.h"

namespace fermata {
namespace {

void give_back_value(Storage* s) { delete static_cast<DistributedValue*>(s->owner); }

}  // namespace

StoragePtr make_distributed_storage(std::unique_ptr<DistributedValue> value) {
  return StoragePtr(Storage::adopt(nullptr, 0, &give_back_value, value.release()));
}

const DistributedValue* distributed_value(const Storage& storage) {
  return storage.give_back == &give_back_value ? static_cast<const DistributedValue*>(storage.owner) : nullptr;
}

}  // namespace fermata
