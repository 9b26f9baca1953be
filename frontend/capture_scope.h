// The scope of a function that is being captured by compile(fn): reading a value in it is an error, and what it touches
// without taking it as an argument is noted.
#pragma once

namespace fermata {

class CaptureScope;
extern constinit thread_local CaptureScope* capture_scope;
inline bool in_capture_scope() { return capture_scope != nullptr; }

}  // namespace fermata
