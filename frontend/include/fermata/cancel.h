// Cancellation: a computation stops soon after another thread requests it.
//
//   std::stop_source source;            // another thread calls source.request_stop()
//   fm::StopGuard guard(source.get_token());
//   try { y.sync(); } catch (const fm::Cancelled&) { ... }   // y is pending as before
#pragma once

#include "runtime/cancellation.h"
