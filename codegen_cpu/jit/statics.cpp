// Nothing static in this plugin is destroyed: at the end of a process a thread may still be compiling, and LLVM would
// then read tables that are gone. A static object with a destructor registers it by this function, which the plugin
// has to itself, and which forgets it.
extern "C" __attribute__((visibility("hidden"))) int __cxa_atexit(void (*)(void*), void*, void*) noexcept { return 0; }
