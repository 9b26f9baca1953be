// Functions that frontend/engine/context.cpp calls when the library is loaded, besides kernel registration.
#pragma once

namespace fermata {

/// FERMATA_MODE=eager: threads that do not set a mode run eagerly.
bool eager_by_default();
/// Whether this thread has set its mode.
extern constinit thread_local bool mode_chosen;
/// The operator fermata::to.
void register_device_operators();
/// The operators of nextafter().
void register_next_after();
/// The operators of fermata/special.h.
void register_special_functions();
/// The operator of nms() and non_max_suppression().
void register_suppression();
/// The operators of cumulative_logsumexp() and linear_recurrence().
void register_recurrences();
/// The operators behind linalg::eig(), eigvals() and lu_factor().
void register_general_factors();
/// The operator of linalg::ldl().
void register_ldl();
/// The operator of linalg::solve_banded().
void register_banded();
/// FERMATA_WARN.
void warn_from_environment();
/// FERMATA_CHECK_NAN, FERMATA_CHECK_MODES.
void check_values_from_environment();
/// FERMATA_CALLERS.
void show_callers_from_environment();
/// FERMATA_PROFILE: collects events until the process ends.
void profile_process();
/// The kernels of the composite ops, for every backend.
void register_composites();

}  // namespace fermata
