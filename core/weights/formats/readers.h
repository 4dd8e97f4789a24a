// core/weights/formats/readers.h: the readers of formats.cpp, each in a file of its own.
#pragma once

#include "core/weights/formats/formats.h"

namespace foresay::core {

const MatrixFormat& gptq_format();
const MatrixFormat& awq_format();
const MatrixFormat& packed_format();
const MatrixFormat& int8_format();
const MatrixFormat& fp8_format();
const MatrixFormat& fp4_format();
const MatrixFormat& mlx_format();
const MatrixFormat& exl2_format();

}  // namespace foresay::core
