// kernels/cpu/isa/table.h: the functions of one instruction set, for the files of this folder.
#pragma once

#include "kernels/cpu/isa/vec.h"
#include "kernels/cpu/isa_kernels.h"

namespace foresay::kernels::cpu::FORESAY_ISA {

int tile_stride(int rows);
void linear(const PanelRange& w, const ActivationTile& x, float* y, std::int64_t y_stride, Store store);
void gated(const PanelRange& gate, const PanelRange& up, const ActivationTile& x, float* y, std::int64_t y_stride,
           bool gelu);
void fill_tile(const float* x, int inputs, int padded_inputs, bool codes, bool floats, ActivationTile& tile, int m);
void rms_norm(const float* x, const float* weight, float eps, int n, float* y);
void layer_norm(const float* x, const float* weight, const float* bias, float eps, int n, float* y);
void activate(float* gate, const float* up, const float* gate_bias, const float* up_bias, int n, RowActivation kind,
              float limit);
void attend(const AttendTask& task);
void rotate(float* head, const float* cos, const float* sin, int pairs, bool adjacent);
void to_half(const float* x, int n, std::uint16_t* out);
float to_kv_codes(const float* x, int n, std::int8_t* codes);
float to_low_kv_codes(const float* x, int n, int bits, std::uint8_t* codes);
void rotate_for_cache(float* x, int n);
std::uint64_t read(const void* data, std::int64_t bytes);

}  // namespace foresay::kernels::cpu::FORESAY_ISA
