// Objects that each thread has for itself, for as long as it runs code.
//
// A thread_local object with a destructor is gone while other thread-local objects, and in the main thread static ones,
// are still destroyed, and destructors of programs compute. One of these is made again then. It goes when the thread
// has ended; what the main thread makes after that stays.
#pragma once

extern "C" {
[[gnu::visibility("hidden")]] extern void* __dso_handle;  // of the library that this is compiled into
int __cxa_thread_atexit(void (*end)(void*), void* object, void* library) noexcept;  // as in the ABI of C++
}

namespace fermata {

/// To be declared `static constinit thread_local`. A pointer, because a library that is opened by dlopen may have
/// little storage of threads.
template <class T> class PerThread {
 public:
  constexpr PerThread() = default;
  PerThread(const PerThread&) = delete;
  PerThread& operator=(const PerThread&) = delete;

  T& get() {
    if (object_ == nullptr) [[unlikely]]
      make();
    return *object_;
  }

 private:
  /// Not inline: scripts/check_statics.py knows it by its name.
  [[gnu::noinline]] void make() {
    object_ = new T();
    // What is registered while a thread ends is called, too.
    __cxa_thread_atexit(&end, this, &__dso_handle);
  }
  static void end(void* self) {
    auto& mine = *static_cast<PerThread*>(self);
    delete mine.object_;
    mine.object_ = nullptr;
  }

  T* object_ = nullptr;
};

}  // namespace fermata
