// Which form of attention runs where. Needs no device.

#include "kernels/cuda/attention/attention_choice.h"

#include <gtest/gtest.h>

#include "kernels/cuda/attention/attention.h"

namespace foresay::test {
namespace {

namespace cuda = kernels::cuda;
using kernels::RowClass;

kernels::ModelShape shape_of_8b() {
    kernels::ModelShape shape;
    shape.heads = 32;
    shape.kv_heads = 8;
    shape.head_dim = 128;
    return shape;
}

// Decode rows of one sequence, four to a tile.
cuda::AttendWork rows_after(std::int32_t positions, std::int32_t rows) {
    const std::int32_t tiles = (rows + 3) / 4;
    return {RowClass::decode, rows, std::min(tiles, 4), std::int64_t{tiles} * (positions + rows), positions + rows - 1};
}

TEST(AttentionChoice, DecodeRowsTakeFlashAttentionWhereTheyAreManyAndFar) {
    const auto worth = [](std::int32_t positions, std::int32_t rows) {
        return cuda::flash_worth(shape_of_8b(), rows_after(positions, rows));
    };
    // Times of both forms: docs/experiments/attention.md.
    for (const std::int32_t positions : {64, 4096, 32768}) {
        EXPECT_FALSE(worth(positions, 1).f16 || worth(positions, 1).q8) << positions;
        EXPECT_FALSE(worth(positions, 4).f16 || worth(positions, 4).q8) << positions;
    }
    for (const std::int32_t rows : {8, 16, 32}) {
        EXPECT_FALSE(worth(64, rows).f16) << rows;
        EXPECT_TRUE(worth(32768, rows).f16) << rows;
    }
    EXPECT_FALSE(worth(4096, 16).f16);
    EXPECT_TRUE(worth(4096, 32).f16);
    EXPECT_FALSE(worth(4096, 32).q8);
    EXPECT_TRUE(worth(32768, 8).q8);
    EXPECT_FALSE(worth(32768, 12).q8);
    EXPECT_TRUE(worth(32768, 16).q8);
}

// Many sequences of one row each, in more rows than a launch of the decode kernel has.
TEST(AttentionChoice, ManySequencesTakeItWhereTheyHaveManyPositionsTogether) {
    const auto worth = [](std::int32_t sequences, std::int32_t positions) {
        const cuda::AttendWork work{RowClass::decode, sequences, 1, std::int64_t{sequences} * positions, positions};
        return cuda::flash_worth(shape_of_8b(), work);
    };
    EXPECT_FALSE(worth(16, 32768).f16);
    EXPECT_FALSE(worth(64, 128).f16);
    EXPECT_TRUE(worth(64, 1024).f16);
    EXPECT_FALSE(worth(64, 32768).q8);
    EXPECT_TRUE(worth(17, 2048).f16);
}

TEST(AttentionChoice, PrefillRowsTakeItByPositionAlone) {
    for (const std::int32_t rows : {1, 20, 2048}) {
        for (const std::int32_t positions : {0, 30, 100, 5000}) {
            const cuda::AttendWork work{RowClass::prefill, rows, 1, 0, positions + rows - 1};
            EXPECT_EQ(cuda::flash_worth(shape_of_8b(), work).f16, positions + rows >= 64)
                << rows << " after " << positions;
        }
    }
}

TEST(AttentionChoice, WindowsLeaveTooLittle) {
    cuda::AttendCall call;
    call.window = 1024;
    EXPECT_FALSE(cuda::takes_flash_decode(call, {}, {true, true}));
    call.window = 32;
    EXPECT_FALSE(cuda::takes_flash_prefill(call, {}, {true, true}));
}

}  // namespace
}  // namespace foresay::test
