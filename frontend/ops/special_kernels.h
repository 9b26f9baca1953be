// The operators of fermata/special.h that are loops over elements.
#pragma once

namespace fermata {

void register_special_kernels();

}  // namespace fermata
