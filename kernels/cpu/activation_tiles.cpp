#include "kernels/cpu/activation_tiles.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/panels.h"

namespace foresay::kernels::cpu {
namespace {

using std::int64_t;

// The most padding rows of a tile: one of 13 rows takes 16 places.
constexpr int kMaxPadding = 3;
constexpr int kWidestTile = 16;

// Bytes that a row needs per group of 32 inputs: for all arrays of ActivationTile but `values`, and for `values`.
constexpr int64_t kCodeBytes = 32 + 2 * sizeof(float) + 4 * sizeof(std::int32_t);
constexpr int64_t kValueBytes = kGroupInputs * sizeof(float);

// Inputs rounded up to whole blocks of the panels: 256 for K types, whose rows are multiples of 256, else 64.
int padded(int inputs) { return static_cast<int>(round_up(inputs, inputs % 256 == 0 ? 256 : 64)); }

}  // namespace

void ActivationTiles::reserve(int max_rows, int64_t max_inputs, int max_groups) {
    max_inputs_ = round_up(max_inputs, 256);
    max_places_ = max_rows + kMaxPadding * max_groups + kWidestTile;
    memory_ = Arena::allocate_alone(max_places_ * (max_inputs_ / kGroupInputs) * (kCodeBytes + kValueBytes) + 64 * 16);
    const auto most = static_cast<std::size_t>(max_rows);
    tiles_.reserve(most);
    first_row_.reserve(most);
    tile_of_row_.reserve(most);
}

void ActivationTiles::set_groups(std::span<const int> sizes, const IsaKernels& isa) {
    tiles_.clear();
    first_row_.clear();
    tile_of_row_.clear();
    const int64_t groups = max_inputs_ / kGroupInputs;
    auto* base = memory_.data;
    auto* values = base + max_places_ * groups * kCodeBytes;
    int64_t place = 0;
    int row = 0, end = 0;
    for (const int size : sizes) {
        end += size;
        while (row < end) {
            ActivationTile tile;
            tile.rows = std::min(end - row, isa.max_tile);
            tile.stride = isa.tile_stride(tile.rows);
            // The arrays of a tile are contiguous.
            std::byte* at = base + place * groups * kCodeBytes;
            const int64_t cells = groups * tile.stride;
            tile.q = reinterpret_cast<std::int8_t*>(at);
            tile.scale = reinterpret_cast<float*>(at + cells * 32);
            tile.sum = tile.scale + cells;
            tile.minus8 = reinterpret_cast<std::int32_t*>(tile.sum + cells);
            tile.minus128 = tile.minus8 + cells;
            tile.minus32 = tile.minus128 + cells;
            tile.values = reinterpret_cast<float*>(values + place * groups * kValueBytes);
            place += tile.stride;
            first_row_.push_back(row);
            tile_of_row_.insert(tile_of_row_.end(), static_cast<std::size_t>(tile.rows),
                                static_cast<int>(tiles_.size()));
            tiles_.push_back(tile);
            row += tile.rows;
        }
    }
}

void ActivationTiles::fill(const IsaKernels& isa, int row, const float* x, int inputs, bool codes, bool floats,
                           std::span<const std::int32_t> order) {
    if (codes && !order.empty()) {
        constexpr int kPart = 8 * kScaleInputs;
        float part[kPart];
        for (int begin = 0; begin < inputs; begin += kPart) {
            const int count = std::min(kPart, inputs - begin);
            for (int i = 0; i < count; ++i) part[i] = x[order[static_cast<std::size_t>(begin + i)]];
            fill_part(isa, row, part, inputs, begin, count);
        }
        codes = false;
        if (!floats) return;
    }
    const auto index = static_cast<std::size_t>(tile_of_row_[static_cast<std::size_t>(row)]);
    isa.fill_tile(x, inputs, padded(inputs), codes, floats, tiles_[index], row - first_row_[index]);
}

void ActivationTiles::fill_codes(const IsaKernels& isa, int row, const float* x, int inputs, int begin, int end) {
    fill_part(isa, row, x + begin, inputs, begin, end - begin);
}

void ActivationTiles::fill_part(const IsaKernels& isa, int row, const float* x, int inputs, int begin, int count) {
    const auto index = static_cast<std::size_t>(tile_of_row_[static_cast<std::size_t>(row)]);
    ActivationTile part = tiles_[index];
    const int64_t groups = static_cast<int64_t>(begin / kGroupInputs) * part.stride;
    part.q += kGroupInputs * groups;
    part.scale += static_cast<int64_t>(begin / kScaleInputs) * part.stride;
    part.sum += groups;
    part.minus8 += groups;
    part.minus128 += groups;
    part.minus32 += 2 * groups;
    const int padded_end = begin + count == inputs ? padded(inputs) : begin + count;
    isa.fill_tile(x, count, padded_end - begin, true, false, part, row - first_row_[index]);
}

}  // namespace foresay::kernels::cpu
