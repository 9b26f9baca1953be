// The allocator of one device: stream-ordered, caching, with a limit.
//
// A freed block stays with its stream and can be reused immediately, because work on a stream is ordered. A block used
// by another stream moves to that stream after an event. FERMATA_CUDA_MEMORY_LIMIT limits the memory taken from the
// driver. If an allocation fails, all cached blocks are released and it is retried.
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
  const void* recording = nullptr;  // the recording during which it was allocated
};

class Allocator {
 public:
  Allocator(Device& device, std::size_t limit);
  /// OutOfMemoryError FM3002.
  Block* allocate(std::size_t bytes, Stream& stream);
  void release(Block* block);
  /// Makes a stream wait for another stream's use of the buffer at an address. Cheap while there is one stream.
  void use(Address address, Stream& stream);

  /// Whether the address lies in one of its buffers.
  bool has(Address address);

  /// Blocks allocated and released before end_recording() stay with the recording.
  void begin_recording(const void* recording) { recording_ = recording; }
  std::vector<Block*> end_recording();

  struct Counts {
    std::size_t live, cached, limit;
  };
  Counts counts();
  std::size_t set_limit(std::size_t bytes);
  std::size_t trim();
  /// If off, every block is allocated from and returned to the driver, so the host executor can check buffer bounds.
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
  std::map<Address, Block*> blocks_;  // blocks in use
  const void* recording_ = nullptr;
  std::vector<Block*> recorded_;
};

}  // namespace fermata::gpu
