// Cancelling: what a thread computes ends soon after somebody asks for it.
//
//   std::stop_source source;            // another thread calls source.request_stop()
//   fm::StopGuard guard(source.get_token());
//   try { y.sync(); } catch (const fm::Cancelled&) { ... }   // y is pending as before
#pragma once

#include "runtime/cancellation.h"
