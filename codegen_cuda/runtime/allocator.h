// Memory of one device: stream-ordered, caching, limited.
//
// A block that is given back is kept for its stream and may be handed out again at once: what is enqueued later runs
// later. A block that another stream uses moves there, after an event. FERMATA_CUDA_MEMORY_LIMIT bounds what is taken
// from the driver. Where there is no more, everything kept is given back and the request is tried again before it
// fails.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

#include "codegen_cuda/api/abi.h"

namespace fermata::gpu {

class Device;
struct Stream;

struct Block {
  Address address = 0;
  std::size_t bytes = 0;
  Device* device = nullptr;
  Stream* stream = nullptr;
  const void* recording = nullptr;  // it was allocated while this recorded
};

class Allocator {
 public:
  Allocator(Device& device, std::size_t limit);
  /// OutOfMemoryError FM3002.
  Block* allocate(std::size_t bytes, Stream& stream);
  void release(Block* block);
  /// Makes a stream wait for what another one does with the buffer at an address. Cheap while there is one stream.
  void use(Address address, Stream& stream);

  /// Whether bytes lie in a buffer of its own.
  bool has(Address address);

  /// Blocks that are allocated and released until then stay with the recording.
  void begin_recording(const void* recording) { recording_ = recording; }
  std::vector<Block*> end_recording();

  struct Counts {
    std::size_t live, cached, limit;
  };
  Counts counts();
  std::size_t set_limit(std::size_t bytes);
  std::size_t trim();
  /// Off, every block is taken from the driver and given back: the host executor then sees each buffer's ends.
  bool set_caching(bool on);
  void forget_stream(Stream& from, Stream& to);

 private:
  std::size_t rounded(std::size_t bytes) const;
  Block* find(Address address) const;
  Block* take_kept(std::size_t bytes, Stream& stream);
  bool take_new(std::size_t bytes, Address& address);
  static void give_to_driver(Block* block);
  std::size_t trim_locked();

  Device& device_;
  std::mutex mutex_;
  std::size_t limit_, live_ = 0, cached_ = 0;
  bool caching_;
  std::map<Stream*, std::multimap<std::size_t, Block*>> kept_;
  std::map<Address, Block*> blocks_;  // all that are handed out
  const void* recording_ = nullptr;
  std::vector<Block*> recorded_;
};

}  // namespace fermata::gpu
