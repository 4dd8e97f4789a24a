#include "tests/edits/scripted_model.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <stdexcept>

#include "core/text/byte_alphabet.h"
#include "tests/weights/gguf_image.h"

namespace foresay::testing {

namespace {

using core::GgufType;
using core::testing::GgufImageBuilder;
using core::testing::raw;

constexpr std::size_t kWidth = 256, kFeedForward = 256, kHeads = 4, kHead = 64, kRows = 544;
constexpr std::uint32_t kF32 = 0, kQ8_0 = 8;
constexpr int kNormal = 1, kControl = 3, kUnused = 5;  // GGUF's token types

// A matrix of blocks of 32 values with the scale 1. Each entry is (row, column) of a value 64; all others are 0.
std::string blocks(std::size_t columns, std::size_t rows,
                   const std::vector<std::pair<std::size_t, std::size_t>>& ones) {
    constexpr std::size_t kBlock = 34;  // bytes: the scale and 32 values
    std::string out;
    for (std::size_t i = 0; i < columns * rows / 32; ++i) out += raw<std::uint16_t>(0x3c00) + std::string(32, '\0');
    for (const auto& [row, column] : ones) {
        const std::size_t value = row * columns + column;
        out[value / 32 * kBlock + 2 + value % 32] = 64;
    }
    return out;
}

}  // namespace

std::vector<std::string> tokens_of(const std::string& text) {
    std::vector<std::string> tokens;
    const auto known = [&](const std::string& token) {
        return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
    };
    for (std::size_t at = 0; at < text.size();) {
        std::size_t length = std::min<std::size_t>(6, text.size() - at);
        while (at + length < text.size() && (known(text.substr(at, length)) || text.size() - at - length == 1 ||
                                             (static_cast<unsigned char>(text[at + length]) & 0xc0) == 0x80)) {
            ++length;
        }
        tokens.push_back(text.substr(at, length));
        at += length;
    }
    return tokens;
}

void write_scripted_model(const std::filesystem::path& path, const ScriptedModel& script) {
    if (script.answer.size() > kWidth - 6) throw std::runtime_error("the answer has too many tokens");
    if (std::set(script.answer.begin(), script.answer.end()).size() != script.answer.size()) {
        throw std::runtime_error("the answer has a token twice");
    }
    std::vector<std::string> tokens;
    std::vector<std::int32_t> types;
    const auto add = [&](std::string token, int type) {
        tokens.push_back(std::move(token));
        types.push_back(type);
        return static_cast<std::uint32_t>(tokens.size() - 1);
    };
    for (int byte = 0; byte < 256; ++byte) {
        std::string spelled;
        core::append_spelling(std::string(1, static_cast<char>(byte)), spelled);
        add(spelled, kNormal);
    }
    const std::uint32_t bos = add("<|endoftext|>", kControl);
    add("<|im_start|>", kControl);
    const std::uint32_t end = script.converses ? add("<|im_end|>", kControl) : bos;
    std::vector<std::pair<std::size_t, std::size_t>> embedding, head;
    const std::size_t first = tokens.size();
    for (const std::string& token : script.answer) {
        std::string spelled;
        core::append_spelling(token, spelled);
        add(spelled, kNormal);
    }
    while (tokens.size() < kRows) add("[PAD" + std::to_string(tokens.size()) + "]", kUnused);
    // A token of the answer has a column of its own, and its successor answers to it; all other tokens share column 0.
    for (std::size_t row = 0; row < kRows; ++row) {
        const bool scripted = row >= first && row < first + script.answer.size();
        embedding.emplace_back(row, scripted ? row - first + 1 : 0);
        if (scripted) head.emplace_back(row, row - first);
    }
    head.emplace_back(end, script.answer.size());

    GgufImageBuilder b;
    const auto number = [&](const std::string& key, std::size_t value) {
        b.scalar<std::uint32_t>("llama." + key, GgufType::u32, static_cast<std::uint32_t>(value));
    };
    b.text("general.architecture", "llama").text("general.name", "a scripted model");
    number("block_count", 1);
    number("embedding_length", kWidth);
    number("feed_forward_length", kFeedForward);
    number("attention.head_count", kHeads);
    number("attention.head_count_kv", kHeads);
    number("attention.key_length", kHead);
    number("attention.value_length", kHead);
    number("context_length", 16384);
    b.scalar<float>("llama.attention.layer_norm_rms_epsilon", GgufType::f32, 1e-5f);
    b.scalar<float>("llama.rope.freq_base", GgufType::f32, 10000.0f);
    b.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "qwen2");
    b.texts("tokenizer.ggml.tokens", tokens);
    b.array<std::int32_t>("tokenizer.ggml.token_type", GgufType::i32, types);
    b.texts("tokenizer.ggml.merges", {});
    b.scalar<std::uint32_t>("tokenizer.ggml.bos_token_id", GgufType::u32, bos);
    b.scalar<std::uint32_t>("tokenizer.ggml.eos_token_id", GgufType::u32, end);
    if (script.converses) b.text("tokenizer.chat_template", script.chat_template);
    const auto matrix = [&](const std::string& name, std::size_t in, std::size_t out, const auto& ones) {
        b.tensor(name, {in, out}, kQ8_0, blocks(in, out, ones));
    };
    const auto norm = [&](const std::string& name) {
        std::string ones;
        for (std::size_t i = 0; i < kWidth; ++i) ones += raw(1.0f);
        b.tensor(name, {kWidth}, kF32, ones);
    };
    const std::vector<std::pair<std::size_t, std::size_t>> none;
    matrix("token_embd.weight", kWidth, kRows, embedding);
    norm("output_norm.weight");
    matrix("output.weight", kWidth, kRows, head);
    norm("blk.0.attn_norm.weight");
    for (const char* name : {"q", "k", "v"})
        matrix(std::string("blk.0.attn_") + name + ".weight", kWidth, kWidth, none);
    matrix("blk.0.attn_output.weight", kWidth, kWidth, none);
    norm("blk.0.ffn_norm.weight");
    matrix("blk.0.ffn_gate.weight", kWidth, kFeedForward, none);
    matrix("blk.0.ffn_up.weight", kWidth, kFeedForward, none);
    matrix("blk.0.ffn_down.weight", kFeedForward, kWidth, none);
    std::ofstream(path, std::ios::binary) << b.build();
}

}  // namespace foresay::testing
