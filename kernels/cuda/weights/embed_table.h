// kernels/cuda/weights/embed_table.h: an embedding table in device memory, as its file has it or unpacked.
#pragma once

#include <cstddef>

#include "kernels/cuda/device/device.h"
#include "kernels/cuda/weights/panels.h"
#include "kernels/quant_type.h"

namespace foresay::kernels::cuda {

// Copies the table, as kept_type() (panels.h) says. A view with a shape and without data stands for random values,
// which are made on the device.
DeviceBuffer<std::byte> embed_table(const TensorView& table);

}  // namespace foresay::kernels::cuda
