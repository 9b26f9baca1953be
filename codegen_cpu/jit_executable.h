// A loaded object that can be started, and its variants that write past the caches.
//
// Which stores a launch should stream depends on its sizes, so it is decided at the launch; a variant is compiled when
// a launch first wants it. There is one object per set of streamed stores, and nearly always one set.
#pragma once

#include <memory>
#include <string_view>

#include "ir/kernel.h"
#include "runtime/executable.h"

namespace fermata {

/// Stores of a kernel, by index, that go past the caches. A kernel that streams must get all of these at addresses that
/// are equal modulo a cache line in every row.
using StreamedStores = std::uint64_t;

/// What a launch should stream: results of at least stream_threshold() bytes that are written in order, in a kernel that
/// reads too, and that are not written where they were read.
StreamedStores stores_to_stream(const Kernel& kernel, const KernelLaunch& launch);

/// Makes an object ready to run. Throws ObjectError if it is damaged or of another version of this library.
std::shared_ptr<const Executable> executable_from_object(std::string_view object);
/// The same for the object of a kernel, compiled for `target`, that gets streaming variants when they pay.
std::shared_ptr<const Executable> streaming_executable(std::string_view object, const Kernel& kernel,
                                                       std::string_view target);

}  // namespace fermata
