// Quantised safetensors: the values of each format computed by hand, their packing, and folders that lie.
#include "core/weights/formats/formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/quant/bf16.h"
#include "kernels/quant/f16.h"
#include "tests/support/allocated.h"
#include "tests/weights/expect_error.h"
#include "tests/weights/folder_image.h"
#include "tests/weights/temporary_directory.h"

namespace foresay::core {
namespace {

using namespace testing;
using kernels::kHead;
using kernels::Packing;
using kernels::QuantType;
using kernels::ScaleForm;
using test::bytes_allocated_by;

// The matrix "m" of a folder. The image must live as long.
class Opened {
public:
    explicit Opened(FolderImage image) : image_(std::move(image)), dir_(image_.open()), all_(open_matrices(dir_)) {}
    const StoredMatrix& matrix() const { return *all_.at("m"); }
    float value(std::int64_t row, std::int64_t input) const {
        std::vector<float> values(static_cast<std::size_t>(matrix().cols()));
        matrix().values(row, values);
        return values[static_cast<std::size_t>(input)];
    }

private:
    FolderImage image_;
    SafetensorsDir dir_;
    Matrices all_;
};

std::uint32_t word(const FolderImage& image, const std::string& tensor, std::size_t at) {
    std::uint32_t value;
    std::memcpy(&value, image.tensors.at(tensor).bytes.data() + 4 * at, sizeof value);
    return value;
}
float half(const FolderImage& image, const std::string& tensor, std::size_t at) {
    std::uint16_t value;
    std::memcpy(&value, image.tensors.at(tensor).bytes.data() + 2 * at, sizeof value);
    return image.tensors.at(tensor).type == "BF16" ? kernels::bf16_to_f32(value) : kernels::f16_to_f32(value);
}
template <class Value>
void set(FolderImage& image, const std::string& tensor, std::size_t at, Value value) {
    std::memcpy(image.tensors.at(tensor).bytes.data() + sizeof value * at, &value, sizeof value);
}

// That a matrix becomes packed rows, and of which kind.
void expect_packed(const Opened& opened, ScaleForm form, const std::vector<std::uint8_t>& kinds,
                   QuantType plain = QuantType::f32) {
    const Packing* const packing = opened.matrix().packing();
    ASSERT_NE(packing, nullptr) << opened.matrix().encoding();
    EXPECT_EQ(opened.matrix().packed(), QuantType::packed);
    EXPECT_EQ(packing->form, form);
    EXPECT_EQ(packing->kinds, kinds);
    EXPECT_EQ(packing->plain, plain);
}

// Every row of a matrix, packed, holds the numbers that values() gives; also when only every second row is taken.
void expect_packs(const StoredMatrix& matrix) {
    const auto cols = static_cast<std::size_t>(matrix.cols());
    for (const std::int64_t step : {1, 2}) {
        const std::int64_t rows = matrix.rows() / step;
        kernels::TensorView view{matrix.packed(), rows, matrix.cols(), nullptr, matrix.packing()};
        std::vector<std::byte> bytes(static_cast<std::size_t>(view.bytes()), std::byte{0xa5});
        matrix.pack({.first = step - 1, .step = step, .count = rows}, bytes.data());
        view.data = bytes.data();
        std::vector<float> expected(cols), found(cols);
        for (std::int64_t row = 0; row < rows; ++row) {
            matrix.values(step - 1 + row * step, expected);
            kernels::dequantize_row(view, row, found);
            for (std::size_t i = 0; i < cols; ++i) {
                ASSERT_EQ(std::bit_cast<std::uint32_t>(found[i]), std::bit_cast<std::uint32_t>(expected[i]))
                    << matrix.encoding() << " row " << row << " input " << i;
            }
            if (view.packing == nullptr) continue;
            // And so for a backend that has no packed rows.
            std::vector<std::byte> plain(
                static_cast<std::size_t>(kernels::row_bytes(view.packing->plain, matrix.cols())));
            kernels::unpack_to_plain(*view.packing, view.data + row * view.row_bytes(), matrix.cols(), plain.data());
            kernels::dequantize_row({view.packing->plain, 1, matrix.cols(), plain.data()}, 0, found);
            EXPECT_EQ(found, expected) << matrix.encoding() << " row " << row;
        }
    }
}

TEST(Formats, GptqAddsOneToItsZerosInTheFirstVersion) {
    for (const int bits : {2, 3, 4, 8}) {
        FolderImage image = gptq_image(bits);
        const Opened first(image);
        image.config.insert(image.config.size() - 2, R"(,"checkpoint_format":"gptq_v2")");
        const Opened second(image);
        const auto mask = (1u << bits) - 1u;
        // Input 33 is in group 1; its code begins at bit 33 B of the column.
        const std::size_t at = static_cast<std::size_t>(33 * bits) / 32,
                          shift = static_cast<std::size_t>(33 * bits) % 32;
        const auto code = static_cast<int>(word(image, "m.qweight", at * kOut + 5) >> shift & mask);
        const auto zero = static_cast<int>(
            word(image, "m.qzeros", static_cast<std::size_t>(kOut * bits / 32 + 5 * bits / 32)) >> (5 * bits % 32) &
            mask);
        const float scale = half(image, "m.scales", kOut + 5);
        if (5 * bits % 32 + bits > 32) continue;
        EXPECT_EQ(first.value(5, 33), static_cast<float>(code - zero - 1) * scale) << bits;
        EXPECT_EQ(second.value(5, 33), static_cast<float>(code - zero) * scale) << bits;
        expect_packs(first.matrix());
        expect_packs(second.matrix());
        EXPECT_EQ(first.matrix().encoding(), "GPTQ, " + std::to_string(bits) + " bits, groups of 32");
    }
}

TEST(Formats, GptqTakesTheSmallestTypeThatHoldsTheNumbers) {
    EXPECT_EQ(Opened(gptq_image(2)).matrix().packed(), QuantType::q4_0);
    expect_packed(Opened(gptq_image(4)), ScaleForm::f16_zero, {4 | kHead, 4 | kHead}, QuantType::q8_0);
    FolderImage symmetric = gptq_image(4);
    for (std::size_t i = 0; i < 2 * kOut / 8; ++i) set(symmetric, "m.qzeros", i, 0x77777777u);
    EXPECT_EQ(Opened(symmetric).matrix().packed(), QuantType::q4_0);
    EXPECT_EQ(Opened(symmetric).matrix().code_range().least, -8);
    EXPECT_EQ(Opened(symmetric).matrix().code_range().greatest, 7);
    expect_packs(Opened(symmetric).matrix());
    // Zeros of 256 and codes of 255.
    expect_packed(Opened(gptq_image(8)), ScaleForm::f16_zero, {8 | kHead, 8 | kHead});
    // bfloat16 scales that float16 has, and one that it has not.
    symmetric.tensors["m.scales"].type = "BF16";
    for (std::size_t i = 0; i < 2 * kOut; ++i) set(symmetric, "m.scales", i, static_cast<std::uint16_t>(0x3c01 + i));
    EXPECT_EQ(Opened(symmetric).matrix().packed(), QuantType::q4_0);
    set(symmetric, "m.scales", 7, static_cast<std::uint16_t>(0x3001));
    expect_packed(Opened(symmetric), ScaleForm::f32_zero, {4 | kHead, 4 | kHead});
    expect_packs(Opened(symmetric).matrix());
}

TEST(Formats, GptqInAnOrderOfActivityIsPutIntoTheOrderOfItsGroups) {
    FolderImage image = gptq_image(4);
    const Opened plain(image);
    // Inputs 3 and 40 change groups.
    set(image, "m.g_idx", 3, std::int32_t{1});
    set(image, "m.g_idx", 40, std::int32_t{0});
    const Opened ordered(image);
    EXPECT_EQ(ordered.matrix().encoding(), "GPTQ, 4 bits, groups of 32, act-order");
    expect_packed(ordered, ScaleForm::f16_zero, {4 | kHead, 4 | kHead});
    // Inputs in the order of their groups, and within a group in their own.
    const std::vector<std::int32_t>& order = ordered.matrix().packing()->order;
    ASSERT_EQ(order.size(), std::size_t{kIn});
    EXPECT_EQ(order[3], 4);
    EXPECT_EQ(order[31], 40);
    EXPECT_EQ(order[32], 3);
    EXPECT_EQ(order[33], 32);
    EXPECT_EQ(plain.matrix().packing()->order.size(), 0u);
    EXPECT_EQ(ordered.value(9, 4), plain.value(9, 4));
    const auto code = static_cast<int>(word(image, "m.qweight", 9) >> 12 & 15u);
    const auto zero = static_cast<int>(word(image, "m.qzeros", 4 + 1) >> 4 & 15u) + 1;
    EXPECT_EQ(ordered.value(9, 3), static_cast<float>(code - zero) * half(image, "m.scales", kOut + 9));
    expect_packs(ordered.matrix());
}

TEST(Formats, AwqHasItsOwnOrderOfNibbles) {
    const FolderImage image = awq_image();
    const Opened opened(image);
    constexpr int kOutputOf[8] = {0, 2, 4, 6, 1, 3, 5, 7};
    for (int p = 0; p < 8; ++p) {
        const std::int64_t row = 8 + kOutputOf[p];
        const auto code = static_cast<int>(word(image, "m.qweight", 50 * 4 + 1) >> (4 * p) & 15u);
        const auto zero = static_cast<int>(word(image, "m.qzeros", 4 + 1) >> (4 * p) & 15u);
        const float scale = half(image, "m.scales", static_cast<std::size_t>(kOut + row));
        EXPECT_EQ(opened.value(row, 50), static_cast<float>(code - zero) * scale);
    }
    expect_packs(opened.matrix());
}

TEST(Formats, CompressedTensorsPacksAlongTheInputs) {
    FolderImage image = packed_image();
    const auto code = static_cast<int>(word(image, "m.weight_packed", 6 * 8 + 5) >> 12 & 15u);  // input 43
    const auto zero = static_cast<int>(word(image, "m.weight_zero_point", 1) >> 24 & 15u);      // output 6, group 1
    const float scale = half(image, "m.weight_scale", 6 * 2 + 1);
    const Opened opened(image);
    EXPECT_EQ(opened.value(6, 43), static_cast<float>(code - zero) * scale);
    expect_packs(opened.matrix());
    image.tensors.erase("m.weight_zero_point");
    const Opened symmetric(image);
    EXPECT_EQ(symmetric.value(6, 43), static_cast<float>(code - 8) * scale);
    EXPECT_EQ(symmetric.matrix().packed(), QuantType::q4_0);
    expect_packs(symmetric.matrix());
}

TEST(Formats, CompressedTensorsMayHaveAnOrderOfActivity) {
    FolderImage image = packed_image();
    std::vector<std::int32_t> groups;
    for (std::int32_t i = 0; i < kIn; ++i) groups.push_back(1 - i % 2);
    image.tensors["m.weight_g_idx"] = image_tensor("I32", {kIn}, groups);
    const Opened opened(image);
    const auto code = static_cast<int>(word(image, "m.weight_packed", 6 * 8 + 5) >> 12 & 15u);  // input 43, group 0
    const auto zero = static_cast<int>(word(image, "m.weight_zero_point", 0) >> 24 & 15u);      // output 6, group 0
    EXPECT_EQ(opened.value(6, 43), static_cast<float>(code - zero) * half(image, "m.weight_scale", 6 * 2));
    const Packing* const packing = opened.matrix().packing();
    ASSERT_NE(packing, nullptr);
    ASSERT_EQ(packing->order.size(), std::size_t{kIn});
    EXPECT_EQ(packing->order[0], 1) << "the odd inputs are group 0";
    EXPECT_EQ(packing->order[32], 0);
    expect_packs(opened.matrix());
}

TEST(Formats, CompressedTensorsInt8IsSigned) {
    FolderImage image = int8_image();
    image.tensors["m.weight"].bytes[3 * kIn + 7] = static_cast<char>(-128);
    const Opened opened(image);
    EXPECT_EQ(opened.value(3, 7), -128.0f * half(image, "m.weight_scale", 3));
    EXPECT_EQ(opened.matrix().packed(), QuantType::q8_0);
    expect_packs(opened.matrix());
}

TEST(Formats, Fp8BlocksMayBeRagged) {
    FolderImage image = fp8_image();
    image.tensors["m.weight"].bytes[30 * kIn + 41] = 0x3c;                    // 1.5
    image.tensors["m.weight"].bytes[2 * kIn + 39] = static_cast<char>(0x81);  // the smallest number, negative
    const Opened opened(image);
    EXPECT_EQ(opened.value(30, 41), 1.5f * 1.7f);
    EXPECT_EQ(opened.value(2, 39), -std::ldexp(1.0f, -9) * 0.5f);
    EXPECT_EQ(opened.matrix().encoding(), "FP8, blocks of 24 x 40");
    EXPECT_EQ(opened.matrix().packed(), QuantType::f32) << "a scale changes within 32 inputs";
    expect_packs(opened.matrix());
    // A scale per output, and one for all.
    image.tensors.erase("m.weight_scale_inv");
    image.tensors["m.weight_scale"] = image_tensor("BF16", {kOut, 1}, std::vector<std::uint16_t>(kOut, 0x4040));
    EXPECT_EQ(Opened(image).value(30, 41), 4.5f);
    expect_packed(Opened(image), ScaleForm::e4m3, {8 | kHead, 8});
    expect_packs(Opened(image).matrix());
    image.tensors["m.weight_scale"] = image_tensor("F32", {}, std::vector<float>{0.25f});
    EXPECT_EQ(Opened(image).value(30, 41), 0.375f);
    expect_packs(Opened(image).matrix());
}

TEST(Formats, Nvfp4DividesOrMultiplies) {
    FolderImage image = nvfp4_image();
    image.tensors["m.weight_packed"].bytes[4 * kIn / 2 + 10] = static_cast<char>(0xd5);  // 3, then -3
    image.tensors["m.weight_scale"].bytes[4 * 4 + 1] = 0x48;                             // 4
    const Opened divides(image);
    EXPECT_EQ(divides.value(4, 20), 3.0f * (4.0f / 384.0f));
    EXPECT_EQ(divides.value(4, 21), -3.0f * (4.0f / 384.0f));
    expect_packed(divides, ScaleForm::f32_table, {4 | kHead});
    expect_packs(divides.matrix());
    // The same as ModelOpt writes it.
    image.config = R"({"quantization_config":{"quant_method":"modelopt","quant_algo":"NVFP4"}})";
    auto codes = image.tensors.extract("m.weight_packed");
    codes.key() = "m.weight";
    image.tensors.insert(std::move(codes));
    image.tensors.erase("m.weight_global_scale");
    image.tensors["m.weight_scale_2"] = image_tensor("F32", {}, std::vector<float>{0.01f});
    EXPECT_EQ(Opened(image).value(4, 20), 3.0f * (4.0f * 0.01f));
}

TEST(Formats, Mxfp4StaysMxfp4) {
    FolderImage image = mxfp4_image();
    image.tensors["m.weight_packed"].bytes[4 * kIn / 2 + 20] = static_cast<char>(0xd5);
    const Opened opened(image);
    EXPECT_EQ(opened.value(4, 40), std::ldexp(3.0f, 120 - 127));
    EXPECT_EQ(opened.value(4, 41), std::ldexp(-3.0f, 120 - 127));
    EXPECT_EQ(opened.matrix().packed(), QuantType::mxfp4);
    expect_packs(opened.matrix());
}

TEST(Formats, MlxHasMinimaAndSettingsForSingleModules) {
    FolderImage image = mlx_image();
    const auto code = static_cast<float>(word(image, "m.weight", 9 * 8 + 5) >> 8 & 15u);  // input 42
    const std::size_t group = 9 * 2 + 1;
    const Opened opened(image);
    EXPECT_EQ(opened.value(9, 42), code * half(image, "m.scales", group) + half(image, "m.biases", group));
    expect_packed(opened, ScaleForm::f16_minimum, {4 | kHead, 4 | kHead});
    expect_packs(opened.matrix());
    image.config = R"({"quantization":{"group_size":64,"bits":4,"m":{"group_size":32,"bits":2}}})";
    image.tensors["m.weight"] = image_tensor("U32", {kOut, kIn / 16}, some_words(kOut * kIn / 16, 12));
    EXPECT_EQ(Opened(image).matrix().encoding(), "MLX, 2 bits, groups of 32");
    expect_packs(Opened(image).matrix());
    // A minimum that float16 does not have.
    image.tensors["m.biases"].type = "BF16";
    set(image, "m.biases", 5, static_cast<std::uint16_t>(0x0101));
    EXPECT_EQ(Opened(image).matrix().packing()->form, ScaleForm::f32_minimum);
    expect_packs(Opened(image).matrix());
}

// Three experts as one stack are those that single matrices would be.
TEST(Formats, MlxStacksExperts) {
    constexpr std::int64_t kExperts = 3;
    const auto expert = [](std::uint64_t e) {
        FolderImage image = mlx_image();
        image.tensors["m.weight"] = image_tensor("U32", {kOut, kIn / 8}, some_words(kOut * kIn / 8, 40 + e));
        const auto at = static_cast<std::uint16_t>(e);
        image.tensors["m.scales"] = image_tensor("BF16", {kOut, 2}, halves(kOut * 2, std::uint16_t(0x3c00 + at)));
        image.tensors["m.biases"] = image_tensor("BF16", {kOut, 2}, halves(kOut * 2, std::uint16_t(0xbd00 + at)));
        return image;
    };
    const auto stack = [&](const std::string& name) {
        FolderImage image = mlx_image();
        for (const char* part : {"weight", "scales", "biases"}) {
            const std::string own = std::string("m.") + part;
            ImageTensor all = expert(0).tensors.at(own);
            for (std::uint64_t e = 1; e < kExperts; ++e) all.bytes += expert(e).tensors.at(own).bytes;
            all.shape.insert(all.shape.begin(), kExperts);
            image.tensors.erase(own);
            image.tensors[name + "." + part] = all;
        }
        return image;
    };
    FolderImage image = stack("a.switch_mlp.up_proj");
    const SafetensorsDir dir = image.open();
    const Matrices all = open_matrices(dir);
    ASSERT_EQ(all.size(), std::size_t{kExperts});
    for (std::uint64_t e = 0; e < kExperts; ++e) {
        const StoredMatrix& matrix = *all.at("a.experts." + std::to_string(e) + ".up_proj");
        const Opened single(expert(e));
        EXPECT_EQ(matrix.encoding(), single.matrix().encoding());
        EXPECT_EQ(matrix.stored_bytes(), single.matrix().stored_bytes());
        std::vector<float> row(kIn);
        for (std::int64_t r = 0; r < kOut; ++r) {
            matrix.values(r, row);
            for (std::int64_t i = 0; i < kIn; ++i) {
                ASSERT_EQ(row[static_cast<std::size_t>(i)], single.value(r, i)) << e << ", " << r << ", " << i;
            }
        }
        expect_packs(matrix);
    }
    // Mixtral's names.
    for (const auto& [part, own] : {std::pair("gate_proj", "w1"), {"down_proj", "w2"}, {"up_proj", "w3"}}) {
        FolderImage mixtral = stack(std::string("b.block_sparse_moe.switch_mlp.") + part);
        EXPECT_TRUE(open_matrices(mixtral.open()).contains(std::string("b.block_sparse_moe.experts.2.") + own));
    }
    image.tensors["a.switch_mlp.up_proj.scales"].shape = {kExperts - 1, kOut, 3};
    expect_error([&] { open_matrices(image.open()); },
                 "'a.switch_mlp.up_proj.scales' of MLX should be 3 x 32 x 2 but is 2 x 32 x 3");
    image = stack("a.experts.up_proj");
    expect_error([&] { open_matrices(image.open()); }, "has three dimensions, which is read of experts called switch_");
    image = stack("a.switch_mlp.up_proj");
    set(image, "a.switch_mlp.up_proj.scales", 2 * kOut * 2 + 5, std::uint16_t{0x7fc0});
    expect_error([&] { open_matrices(image.open()); }, "has the scale nan at [2, 2, 1]");
    image.tensors.clear();
    image.tensors["a.switch_mlp.x.weight"] = image_tensor("U32", {5000, 1, 1}, some_words(5000, 1));
    expect_error([&] { open_matrices(image.open()); }, "has 5000 experts, which no model has");
}

TEST(Formats, Exl2ChangesItsBitsAndItsOrder) {
    const FolderImage image = exl2_image();
    const Opened opened(image);
    // Input 50 stands in place 13: group 0, bits 52 to 55 of the column. Nibble of output 11 in word 1.
    const auto four = static_cast<int>(word(image, "m.q_weight", 1 * kOut + 11) >> 20 & 15u);
    const auto root = static_cast<float>((word(image, "m.q_scale", 1) >> 12 & 15u) + 1);
    EXPECT_EQ(opened.value(11, 50), static_cast<float>(four - 8) * (root * root / 256.0f));
    // Input 20 in place 43, which is 11 of group 1: bits 33 to 35 of words from 4 on.
    const auto three = static_cast<int>(word(image, "m.q_weight", 5 * kOut + 11) >> 1 & 7u);
    const float largest = kernels::f16_to_f32(kernels::f32_to_f16(kernels::f16_to_f32(0x3555) / 256.0f));
    const auto other = static_cast<float>((word(image, "m.q_scale", 4 + 1) >> 12 & 15u) + 1);
    const float scale = kernels::f16_to_f32(kernels::f32_to_f16(other * other * largest));
    EXPECT_EQ(opened.value(11, 20), static_cast<float>(three - 4) * scale);
    EXPECT_EQ(opened.matrix().encoding(), "EXL2");
    EXPECT_EQ(opened.matrix().packed(), QuantType::q4_0) << "this order leaves groups together";
    FolderImage mixed = image;
    std::swap_ranges(mixed.tensors["m.q_invperm"].bytes.begin() + 4 * 3,
                     mixed.tensors["m.q_invperm"].bytes.begin() + 4 * 4,
                     mixed.tensors["m.q_invperm"].bytes.begin() + 4 * 40);
    expect_packed(Opened(mixed), ScaleForm::f16_zero, {4 | kHead, 3 | kHead});
    expect_packs(Opened(mixed).matrix());
    expect_packs(opened.matrix());
    // The order and its inverse.
    FolderImage both = mixed;
    std::vector<std::int32_t> inputs(kIn);
    for (std::size_t i = 0; i < kIn; ++i) inputs[word(mixed, "m.q_invperm", i)] = static_cast<std::int32_t>(i);
    both.tensors["m.q_perm"] = image_tensor("I32", {kIn}, inputs);
    EXPECT_EQ(Opened(both).value(11, 20), Opened(mixed).value(11, 20));
    // The order given the other way round: here it is its own inverse.
    FolderImage inverse = image;
    auto order = inverse.tensors.extract("m.q_invperm");
    order.key() = "m.q_perm";
    inverse.tensors.insert(std::move(order));
    EXPECT_EQ(Opened(inverse).value(11, 20), opened.value(11, 20));
}

struct Lie {
    std::string what;
    FolderImage image;
    std::function<void(FolderImage&)> tell;
    std::string sentence;
};

void drop(FolderImage& image, const std::string& tensor) { image.tensors.erase(tensor); }
void retype(FolderImage& image, const std::string& tensor, const char* type) { image.tensors[tensor].type = type; }
void words(FolderImage& image, const std::string& tensor, std::vector<std::int64_t> shape) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    image.tensors[tensor] = image_tensor("I32", std::move(shape), some_words(static_cast<std::size_t>(count), 1));
}
void config(FolderImage& image, const std::string& members) {
    image.config = R"({"quantization_config":{)" + members + "}}";
}

std::vector<Lie> lies() {
    const auto gptq = gptq_image();
    const auto exl2 = exl2_image();
    return {
        {"no scales", gptq, [](auto& f) { drop(f, "m.scales"); }, "'m.qweight' of GPTQ needs 'm.scales'"},
        {"no zeros", gptq, [](auto& f) { drop(f, "m.qzeros"); }, "'m.qweight' of GPTQ needs 'm.qzeros'"},
        {"no codes", gptq, [](auto& f) { drop(f, "m.qweight"); },
         "tensor 'm.qzeros' needs 'm.qweight', which is missing"},
        {"no codes of EXL2", exl2, [](auto& f) { drop(f, "m.q_weight"); }, "'m.q_groups' needs 'm.q_weight'"},
        {"float codes", gptq, [](auto& f) { retype(f, "m.qweight", "F32"); }, "'m.qweight' of GPTQ should be I32"},
        {"codes of one dimension", gptq, [](auto& f) { f.tensors["m.qweight"].shape = {256}; },
         "should have two dimensions"},
        {"too many zeros", gptq,
         [](auto& f) {
             words(f, "m.qzeros", {2, 5});
         },
         "none of 2, 3, 4 and 8 bits"},
        {"other bits than said", gptq, [](auto& f) { config(f, R"("quant_method":"gptq","bits":8)"); },
         "holds 4 bits and the configuration says 8"},
        {"scales of other groups", gptq,
         [](auto& f) {
             f.tensors["m.scales"] = image_tensor("F16", {4, kOut}, halves(4 * kOut));
         },
         "'m.scales' of GPTQ should be 2 x 32 but is 4 x 32"},
        {"groups of another size than said", gptq,
         [](auto& f) { config(f, R"("quant_method":"gptq","bits":4,"group_size":16)"); },
         "'m.scales' of GPTQ has 2 groups for 64 inputs and the configuration says group_size 16"},
        {"groups where one was said", gptq,
         [](auto& f) { config(f, R"("quant_method":"gptq","bits":4,"group_size":-1)"); },
         "has 2 groups for 64 inputs and the configuration says group_size -1"},
        {"groups of none", gptq, [](auto& f) { config(f, R"("quant_method":"gptq","bits":4,"group_size":0)"); },
         "the configuration says group_size 0"},
        {"a short order", gptq, [](auto& f) { words(f, "m.g_idx", {63}); }, "'m.g_idx' of GPTQ should be 64 but is 63"},
        {"a group that is none", gptq, [](auto& f) { set(f, "m.g_idx", 5, std::int32_t{2}); },
         "puts input 5 into group 2 of 2"},
        {"a negative group", gptq, [](auto& f) { set(f, "m.g_idx", 5, std::int32_t{-1}); },
         "puts input 5 into group -1 of 2"},
        {"an overfull group", gptq, [](auto& f) { set(f, "m.g_idx", 5, std::int32_t{1}); },
         "puts more than 32 inputs into group 1"},
        {"a layout for kernels", gptq,
         [](auto& f) { config(f, R"("quant_method":"gptq","checkpoint_format":"marlin")"); },
         "'m.qweight' is laid out for 'marlin' (checkpoint_format), which is not read; use a file in the format gptq"},
        {"AWQ for other kernels", awq_image(), [](auto& f) { config(f, R"("quant_method":"awq","version":"gemv")"); },
         "'m.qweight' is laid out for AWQ's version 'gemv', which is not read; use a file of the version gemm"},
        {"AWQ in 3 bits", awq_image(), [](auto& f) { config(f, R"("quant_method":"awq","bits":3)"); },
         "AWQ in 3 bits (tensor 'm.qweight') is not read"},
        {"AWQ's groups", awq_image(), [](auto& f) { config(f, R"("quant_method":"awq","group_size":48)"); },
         "groups of 48 do not divide"},
        {"AWQ's group 0", awq_image(), [](auto& f) { config(f, R"("quant_method":"awq","group_size":0)"); },
         "groups of 0 do not divide"},
        {"AWQ's zeros", awq_image(),
         [](auto& f) {
             words(f, "m.qzeros", {2, 5});
         },
         "'m.qzeros' of AWQ should be 2 x 4 but is 2 x 5"},
        {"no shape", packed_image(), [](auto& f) { drop(f, "m.weight_shape"); }, "needs 'm.weight_shape'"},
        {"another shape", packed_image(), [](auto& f) { set(f, "m.weight_shape", 0, std::int64_t{31}); },
         "'m.weight_shape' of compressed-tensors does not agree"},
        {"a huge shape", packed_image(), [](auto& f) { set(f, "m.weight_shape", 1, std::int64_t{1} << 60); },
         "does not agree"},
        {"a width of no bits", packed_image(), [](auto& f) { set(f, "m.weight_shape", 1, std::int64_t{5000}); },
         "has a number of words that no number of bits explains"},
        {"an order with an overfull group", packed_image(),
         [](auto& f) { f.tensors["m.weight_g_idx"] = image_tensor("I32", {kIn}, std::vector<std::int32_t>(kIn, 1)); },
         "'m.weight_g_idx' of compressed-tensors does not put each input into one of 2 groups of equal size"},
        {"groups that do not divide", packed_image(),
         [](auto& f) {
             f.tensors["m.weight_scale"] = image_tensor("F16", {kOut, 3}, halves(kOut * 3));
         },
         "groups that divide 64 inputs"},
        {"zeros along the rows", packed_image(),
         [](auto& f) {
             words(f, "m.weight_zero_point", {kOut, 2});
         },
         "should be 4 x 2 but is 32 x 2"},
        {"int8 without a scale", int8_image(), [](auto& f) { drop(f, "m.weight_scale"); }, "needs 'm.weight_scale'"},
        {"a matrix in two formats", packed_image(),
         [](auto& f) { f.tensors["m.weight"] = int8_image().tensors["m.weight"]; },
         "the matrix 'm' is there twice, in compressed-tensors, 4 bits, groups of 32 and, as 'm.weight', in "
         "compressed-tensors, int-quantized; get the files again"},
        {"FP8 without a scale", fp8_image(), [](auto& f) { drop(f, "m.weight_scale_inv"); }, "needs 'm.weight_scale'"},
        {"FP8's blocks", fp8_image(), [](auto& f) { config(f, R"("quant_method":"fp8","weight_block_size":[128,0])"); },
         "blocks of an impossible size"},
        {"FP8's scales", fp8_image(), [](auto& f) { config(f, R"("quant_method":"fp8")"); },
         "'m.weight_scale_inv' of FP8 should be 1 x 1 but is 2 x 2"},
        {"FP8's scale beyond all weights", fp8_image(), [](auto& f) { set(f, "m.weight_scale_inv", 3, 1e31f); },
         "'m.weight_scale_inv' of FP8 has the scale 1e+31 at [1, 1], which makes weights that no model has"},
        {"FP8's scale without end", fp8_image(),
         [](auto& f) { set(f, "m.weight_scale_inv", 0, -std::numeric_limits<float>::infinity()); },
         "has the scale -inf"},
        {"NVFP4's factor beyond all weights", nvfp4_image(), [](auto& f) { set(f, "m.weight_global_scale", 0, 1e-9f); },
         "'m.weight_global_scale' of NVFP4 has the scale 1e+09, which makes weights that no model has"},
        {"NVFP4's factor of 0", nvfp4_image(), [](auto& f) { set(f, "m.weight_global_scale", 0, 0.0f); },
         "has the scale inf"},
        {"NVFP4 without its factor", nvfp4_image(), [](auto& f) { drop(f, "m.weight_global_scale"); },
         "'m.weight_packed' of NVFP4 needs 'm.weight_global_scale'"},
        {"NVFP4's scales", nvfp4_image(),
         [](auto& f) {
             f.tensors["m.weight_scale"] = image_tensor("F8_E4M3", {kOut, 5}, some_e4m3(kOut * 5, 1));
         },
         "should be 32 x 4 but is 32 x 5"},
        {"two factors", nvfp4_image(),
         [](auto& f) {
             f.tensors["m.weight_global_scale"] = image_tensor("F32", {2}, std::vector<float>{1.0f, 2.0f});
         },
         "should be a single number"},
        {"MXFP4's scales", mxfp4_image(), [](auto& f) { f.tensors["m.weight_scale"].shape = {2 * kOut}; },
         "'m.weight_scale' of MXFP4 should be 32 x 2 but is 64"},
        {"MLX without biases", mlx_image(), [](auto& f) { drop(f, "m.biases"); }, "'m.weight' of MLX needs 'm.biases'"},
        {"MLX in 7 bits", mlx_image(), [](auto& f) { f.config = R"({"quantization":{"bits":7}})"; },
         "is in 7 bits and groups of 64"},
        {"MLX in another mode", mlx_image(), [](auto& f) { f.config = R"({"quantization":{"mode":"nvfp4"}})"; },
         "is in MLX's mode 'nvfp4', which is not read"},
        {"MLX's groups", mlx_image(), [](auto& f) { f.config = R"({"quantization":{"group_size":48}})"; },
         "has inputs that the groups do not divide"},
        {"groups that are no pairs", exl2,
         [](auto& f) { f.tensors["m.q_groups"] = image_tensor("I16", {3}, halves(3)); }, "should hold pairs"},
        {"a first word that is not 0", exl2, [](auto& f) { set(f, "m.q_groups", 1, std::uint16_t{1}); },
         "gives group 0 the words from 1 to 4 of 7"},
        {"offsets that run back", exl2, [](auto& f) { set(f, "m.q_groups", 3, std::uint16_t{0}); },
         "gives group 0 the words from 0 to 0 of 7"},
        {"offsets beyond the end", exl2, [](auto& f) { set(f, "m.q_groups", 3, std::uint16_t{9}); },
         "gives group 0 the words from 0 to 9 of 7"},
        {"7 bits", exl2, [](auto& f) { set(f, "m.q_groups", 0, std::uint16_t{7}); }, "gives a group 7 bits"},
        {"words that codes do not fill", exl2, [](auto& f) { set(f, "m.q_groups", 0, std::uint16_t{6}); },
         "words that its codes do not fill"},
        {"more inputs than there are", exl2, [](auto& f) { set(f, "m.q_groups", 0, std::uint16_t{2}); },
         "leaves 0 inputs to the last group"},
        {"words left over", exl2, [](auto& f) { set(f, "m.q_groups", 2, std::uint16_t{2}); },
         "leaves 32 inputs to the last group"},
        {"an order that is none", exl2, [](auto& f) { set(f, "m.q_invperm", 4, std::int32_t{7}); },
         "names the place 7 twice"},
        {"an order beyond the inputs", exl2, [](auto& f) { set(f, "m.q_invperm", 4, std::int32_t{-7}); },
         "is no order of 64 inputs"},
        {"two orders that differ", exl2,
         [](auto& f) { f.tensors["m.q_perm"] = image_tensor("I32", {kIn}, std::vector<std::int32_t>(kIn, 0)); },
         "'m.q_perm' of EXL2 has input 0 in place 0, where q_invperm has input 63"},
        {"scales of other outputs", exl2,
         [](auto& f) {
             words(f, "m.q_scale", {2, 5});
         },
         "'m.q_scale' of EXL2 should be 2 x 4 but is 2 x 5"},
        {"no order at all", exl2, [](auto& f) { drop(f, "m.q_invperm"); }, "needs 'm.q_invperm'"},
    };
}

TEST(HostileFormats, AreRefusedWithASentence) {
    for (Lie& lie : lies()) {
        SCOPED_TRACE(lie.what);
        EXPECT_NO_THROW(open_matrices(lie.image.open()));
        lie.tell(lie.image);
        const SafetensorsDir folder = lie.image.open();
        // Nothing is allocated because a header says so.
        const std::size_t bytes =
            bytes_allocated_by([&] { expect_error([&] { open_matrices(folder); }, lie.sentence); });
        EXPECT_LE(bytes, 100'000u);
    }
}

// Numbers that are none are found where all weights are checked (core/weights/finite.h): the packed rows have them too.
TEST(HostileFormats, NanScalesStayVisible) {
    const auto expect_nan = [](FolderImage image, const std::string& tensor, auto bits) {
        set(image, tensor, 3, bits);
        const Opened opened(image);
        const StoredMatrix& matrix = opened.matrix();
        std::vector<float> row(static_cast<std::size_t>(matrix.cols()));
        bool found = false;
        for (std::int64_t r = 0; r < matrix.rows(); ++r) {
            kernels::TensorView view{matrix.packed(), 1, matrix.cols(), nullptr, matrix.packing()};
            std::vector<std::byte> bytes(static_cast<std::size_t>(view.bytes()));
            matrix.pack({.first = r, .count = 1}, bytes.data());
            view.data = bytes.data();
            kernels::dequantize_row(view, 0, row);
            for (const float value : row) found = found || !std::isfinite(value);
        }
        EXPECT_TRUE(found) << tensor;
    };
    expect_nan(fp8_image(), "m.weight", std::uint8_t{0x7f});
    expect_nan(nvfp4_image(), "m.weight_scale", std::uint8_t{0x7f});
    expect_nan(mxfp4_image(), "m.weight_scale", std::uint8_t{0xff});
}

// Scales that are no numbers, or that no model has, are refused with their place before anything is packed.
TEST(HostileFormats, ScalesOfNoModelAreRefusedWithTheirPlace) {
    const auto refused = [](FolderImage image, const std::string& tensor, auto bits, const std::string& sentence) {
        set(image, tensor, 3, bits);
        expect_error([&] { open_matrices(image.open()); }, "tensor '" + tensor + "' of " + sentence);
    };
    const std::uint16_t nan = 0x7e00, infinity = 0xfc00, nan_bf16 = 0x7fc0, huge_bf16 = 0x714a;
    refused(gptq_image(), "m.scales", nan, "GPTQ has the scale nan at [0, 3], which makes weights that no model has");
    refused(awq_image(), "m.scales", infinity, "AWQ has the scale -inf at [0, 3], which");
    refused(packed_image(), "m.weight_scale", nan, "compressed-tensors has the scale nan at [1, 1], which");
    refused(int8_image(), "m.weight_scale", infinity, "compressed-tensors has the scale -inf at [3, 0], which");
    refused(mlx_image(), "m.scales", nan_bf16, "MLX has the scale nan at [1, 1], which");
    refused(mlx_image(), "m.biases", huge_bf16, "MLX has the bias 1.00026e+30 at [1, 1], which");
    refused(fp8_image(), "m.weight_scale_inv", 0x7fc00000u, "FP8 has the scale nan at [1, 1], which");
    FolderImage exl2 = exl2_image();
    set(exl2, "m.q_scale_max", 1, nan);
    expect_error([&] { open_matrices(exl2.open()); }, "'m.q_scale_max' of EXL2 has the scale nan at [1], which");
    FolderImage absurd = gptq_image();
    absurd.tensors["m.scales"].type = "BF16";
    refused(absurd, "m.scales", huge_bf16, "GPTQ has the scale 1.00026e+30 at [0, 3], which");
    // The largest that are possible, and 0.
    for (const std::uint16_t bits : {0x7bff, 0xfbff, 0x8000}) {
        FolderImage image = gptq_image();
        set(image, "m.scales", 3, bits);
        EXPECT_NO_THROW(open_matrices(image.open()));
    }
    absurd = gptq_image();
    absurd.tensors["m.scales"].type = "BF16";
    set(absurd, "m.scales", 3, std::uint16_t{0x477f});
    EXPECT_NO_THROW(open_matrices(absurd.open()));
    refused(absurd, "m.scales", std::uint16_t{0x4780}, "GPTQ has the scale 65536 at [0, 3]");
    // Beyond the first 1,024 numbers, which are looked at together.
    FolderImage large = packed_image();
    std::vector<std::uint16_t> ones(kOut * kIn, 0x3c00);
    ones[1500] = nan;
    large.tensors["m.weight_scale"] = image_tensor("F16", {kOut, kIn}, ones);
    large.tensors.erase("m.weight_zero_point");
    expect_error([&] { open_matrices(large.open()); }, "has the scale nan at [23, 28]");
}

TEST(RefusedFormats, NameMethodTensorAndAlternative) {
    for (const RefusedMethod& refused : refused_methods()) {
        FolderImage image = gptq_image();
        config(image, R"("quant_method":")" + std::string(refused.method) + "\"");
        expect_error([&] { open_matrices(image.open()); }, "folder: weights in " + std::string(refused.name) +
                                                               ", such as 'm.g_idx', are not read; use " +
                                                               std::string(refused.instead));
    }
    FolderImage image = gptq_image();
    config(image, R"("quant_method":"later")");
    expect_error([&] { open_matrices(image.open()); }, "weights in the format 'later' (quant_method)");
    config(image, R"("bits":4)");
    expect_error([&] { open_matrices(image.open()); }, "quantization_config does not say how (quant_method)");
}

// What changes the numbers of compressed-tensors without a tensor that says so.
TEST(RefusedFormats, CompressedTensorsThatComputeOtherwise) {
    const auto with = [](const std::string& members) {
        FolderImage image = packed_image();
        config(image, R"("quant_method":"compressed-tensors",)" + members);
        return image;
    };
    const auto refused = [&](const std::string& members, const std::string& sentence) {
        expect_error([&] { open_matrices(with(members).open()); }, "folder: weights in compressed-tensors" + sentence);
    };
    refused(R"("format":"marlin-24")",
            "' format 'marlin-24', such as 'm.weight_packed', are not read; use a folder in");
    refused(R"("format":"mystery")", "' format 'mystery', such as");
    refused(R"("format":"mixed-precision","config_groups":{"a.b":{"format":"marlin-24"}})", "' format 'marlin-24'");
    refused(R"("sparsity_config":{"format":"sparse-24-bitmask"})",
            "' sparse format 'sparse-24-bitmask' (sparsity_config), such as 'm.weight_packed', are not read; use a");
    const auto transform = [](const std::string& location) {
        return R"("transform_config":{"config_groups":{"R4":{"type":"hadamard","apply":[)"
               R"({"targets":["a"],"location":"weight_input"},{"targets":["b"],"location":")" +
               location + R"("}]}}})";
    };
    refused(transform("input"), " with a transform that runs with the model (transform_config, 'R4' at 'input'), such");
    refused(transform("k_cache"), " with a transform that runs with the model (transform_config, 'R4' at 'k_cache')");
    for (const std::string& members :
         {transform("weight_output"), std::string(R"("transform_config":{},"sparsity_config":{})"),
          std::string(R"("transform_config":null,"sparsity_config":{"format":"dense"},"format":"pack-quantized")"),
          std::string(R"("format":"mixed-precision","config_groups":{"g":{"format":"int-quantized"}})")}) {
        EXPECT_NO_THROW(open_matrices(with(members).open())) << members;
    }
}

TEST(HostileFormats, AHugeGroupSizeIsOneGroupAtMost) {
    FolderImage image = gptq_image(4, kIn);
    config(image, R"("quant_method":"gptq","bits":4,"group_size":9223372036854775807)");
    EXPECT_EQ(Opened(image).matrix().encoding(), "GPTQ, 4 bits, one group");
    image = fp8_image();
    config(image, R"("quant_method":"fp8","weight_block_size":[9223372036854775807,9223372036854775807])");
    expect_error([&] { open_matrices(image.open()); }, "should be 1 x 1 but is 2 x 2");
}

// Tools wrote their settings into files of their own before config.json had a place for them.
TEST(Formats, SettingsMayLieInAFileOfTheirOwn) {
    const TemporaryDirectory directory;
    directory.write("config.json", "{}");
    directory.write("gptq_model-2bit-32g.safetensors", gptq_image(2).file());
    expect_error([&] { open_matrices(SafetensorsDir::open(directory.path())); },
                 "the tensor 'm.qweight' is quantised in GPTQ, and no file says with which settings (bits, group_size");
    directory.write("quantize_config.json", R"({"bits":2,"group_size":32,"checkpoint_format":"gptq_v2"})");
    const SafetensorsDir dir = SafetensorsDir::open(directory.path());
    const Matrices all = open_matrices(dir);
    const Opened first(gptq_image(2));
    std::vector<float> row(kIn);
    all.at("m")->values(7, row);
    const auto zero = static_cast<float>(word(gptq_image(2), "m.qzeros", 0) >> 14 & 3u);
    const auto code = static_cast<float>(word(gptq_image(2), "m.qweight", 7) & 3u);
    const float scale = half(gptq_image(2), "m.scales", 7);
    EXPECT_EQ(row[0], (code - zero) * scale) << "zeros of the second version";
    EXPECT_EQ(first.value(7, 0), (code - zero - 1.0f) * scale);

    FolderImage fp8 = fp8_image();
    fp8.tensors["m.weight_scale"] = image_tensor("F32", {}, std::vector<float>{0.25f});
    fp8.tensors.erase("m.weight_scale_inv");
    const TemporaryDirectory other;
    other.write("config.json", "{}");
    other.write("model.safetensors", fp8.file());
    other.write("hf_quant_config.json", R"({"producer":{"name":"modelopt"},"quantization":{"quant_algo":"FP8"}})");
    const SafetensorsDir second = SafetensorsDir::open(other.path());
    EXPECT_EQ(open_matrices(second).at("m")->encoding(), "FP8, one scale");
}

TEST(Formats, AutoAwqHasSettingsOfItsOwnNames) {
    const TemporaryDirectory directory;
    directory.write("config.json", "{}");
    directory.write("model.safetensors", awq_image().file());
    directory.write("quant_config.json", R"({"zero_point":true,"q_group_size":32,"w_bit":4,"version":"GEMM"})");
    const SafetensorsDir dir = SafetensorsDir::open(directory.path());
    const Matrices all = open_matrices(dir);
    EXPECT_EQ(all.at("m")->encoding(), "AWQ, 4 bits, groups of 32");
    std::vector<float> row(kIn);
    all.at("m")->values(9, row);
    EXPECT_EQ(row[50], Opened(awq_image()).value(9, 50));
    directory.write("quant_config.json", R"({"q_group_size":64,"w_bit":4,"version":"GEMM"})");
    expect_error([&] { open_matrices(SafetensorsDir::open(directory.path())); }, "'m.qzeros' of AWQ should be 1 x 4");
    directory.write("quant_config.json", R"({"q_group_size":32,"w_bit":3,"version":"GEMM"})");
    expect_error([&] { open_matrices(SafetensorsDir::open(directory.path())); }, "AWQ in 3 bits");
    directory.write("quant_config.json", R"({"q_group_size":32,"w_bit":4,"version":"GEMV"})");
    expect_error([&] { open_matrices(SafetensorsDir::open(directory.path())); }, "AWQ's version 'GEMV'");
    // Another tool's file of that name.
    directory.write("quant_config.json", R"({"quant_method":"later"})");
    expect_error([&] { open_matrices(SafetensorsDir::open(directory.path())); }, "the format 'later' (quant_method)");
}

TEST(Formats, TensorsThatSayAllNeedNoSettings) {
    for (FolderImage image : {exl2_image(), awq_image()}) {
        const Opened stated(image);
        image.config = "{}";
        const Opened bare(image);
        EXPECT_EQ(bare.matrix().encoding(), stated.matrix().encoding());
        for (std::int64_t i = 0; i < kIn; ++i) EXPECT_EQ(bare.value(9, i), stated.value(9, i));
    }
}

TEST(RefusedFormats, SettingsThatAreMissingAreNamed) {
    const auto refused = [](FolderImage image, const std::string& sentence) {
        image.config = "{}";
        expect_error([&] { open_matrices(image.open()); }, sentence + ", and no file says with which settings (");
    };
    refused(gptq_image(), "folder: the tensor 'm.qweight' is quantised in GPTQ");
    refused(packed_image(), "the tensor 'm.weight_packed' is quantised in compressed-tensors");
    refused(mlx_image(), "the tensor 'm.weight' is quantised in MLX");
    refused(fp8_image(), "the tensor 'm.weight' is quantised in FP8, FP4 or int8");
    refused(int8_image(), "the tensor 'm.weight' is quantised in FP8, FP4 or int8");
}

// Whatever the configuration calls them.
TEST(RefusedFormats, LayoutsAreKnownByTheirTensors) {
    const auto renamed = [](FolderImage image, const std::string& from, const std::string& to) {
        auto tensor = image.tensors.extract(from);
        tensor.key() = to;
        image.tensors.insert(std::move(tensor));
        return image;
    };
    const auto refused = [](FolderImage image, const std::string& sentence) {
        expect_error([&] { open_matrices(image.open()); }, "folder: weights in " + sentence);
    };
    const FolderImage marlin = renamed(renamed(gptq_image(), "m.qweight", "m.B"), "m.scales", "m.s");
    refused(marlin, "GPTQ laid out for marlin, such as 'm.B', are not read; use a file in the format gptq or gptq_v2");
    FolderImage quip = renamed(gptq_image(), "m.qweight", "m.Qidxs");
    refused(quip, "QuIP#, such as 'm.Qidxs', are not read; use the original weights, or a file in GPTQ");
    quip.config = R"({"quip_params":{"codebook":"E8P12"}})";
    refused(quip, "QuIP#, such as 'm.Qidxs', are not read");
    refused(renamed(exl2_image(), "m.q_weight", "m.trellis"), "EXL3, such as 'm.trellis', are not read; use an EXL2");
    FolderImage scaled = nvfp4_image();
    scaled.tensors["m.pre_quant_scale"] = image_tensor("BF16", {kIn}, halves(kIn));
    refused(scaled,
            "ModelOpt's AWQ, whose inputs have scales of their own, such as 'm.pre_quant_scale', are not read; "
            "use a file that ModelOpt wrote in FP8 or NVFP4");
    FolderImage four = gptq_image();
    config(four, R"("quant_method":"modelopt","quant_algo":"W4A16_AWQ")");
    refused(four, "ModelOpt's 'W4A16_AWQ' (quant_algo), such as 'm.g_idx', are not read");
}

// An expression out of a file is never run: the tensors say how a module is stored.
TEST(HostileFormats, ExpressionsAreNotRun) {
    FolderImage image = gptq_image();
    config(image, R"("quant_method":"gptq","bits":8,"group_size":16,"dynamic":{"(a+)+$":{"bits":2}})");
    EXPECT_EQ(Opened(image).matrix().encoding(), "GPTQ, 4 bits, groups of 32");
}

}  // namespace
}  // namespace foresay::core
