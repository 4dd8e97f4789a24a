// core/weights/formats/refusals.h: what folders of quantised safetensors may hold that foresay does not read, and the
// sentence that refuses it: the format, a tensor, and what to use instead.
//
// Cost:     reads names of tensors and settings.
#pragma once

#include "core/weights/formats/module_tensors.h"

namespace foresay::core {

// Throws Error for a method, a layout or a setting that is not read. Passes a folder that says nothing.
void check_readable(const Folder& folder);

}  // namespace foresay::core
