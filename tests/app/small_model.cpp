#include "tests/app/small_model.h"

#include <fstream>
#include <random>
#include <vector>

#include "core/text/byte_alphabet.h"
#include "tests/weights/gguf_image.h"

namespace foresay::testing {

namespace {

using core::GgufType;
using core::testing::GgufImageBuilder;
using core::testing::raw;

constexpr int kScale = 32;  // of the vocabulary
constexpr int kWidth = 256, kFeedForward = 512;
constexpr std::uint32_t kF32 = 0, kQ8_0 = 8, kQ4_K = 12, kQ6_K = 14;
constexpr int kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6;  // GGUF's token types

struct Special {
    std::vector<std::string> control;
    std::string pre, bos, eos, chat_template;
};

const Special& special_of(Family family) {
    static const Special qwen2 = {{"<|endoftext|>", "<|im_start|>", "<|im_end|>"},
                                  "qwen2",
                                  "<|endoftext|>",
                                  "<|im_end|>",
                                  "{% for message in messages %}<|im_start|>{{ message.role }}"};
    static const Special llama3 = {
        {"<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
        "llama-bpe",
        "<|begin_of_text|>",
        "<|eot_id|>",
        "<|start_header_id|>{{ role }}<|end_header_id|><|eot_id|>"};
    static const Special deepseek = {{"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"},
                                     "deepseek-coder",
                                     "<｜begin▁of▁sentence｜>",
                                     "<｜end▁of▁sentence｜>",
                                     ""};
    static const Special codellama = {{"<s>", "</s>"}, "", "<s>", "</s>", ""};
    switch (family) {
        case Family::qwen2:
            return qwen2;
        case Family::llama3:
            return llama3;
        case Family::deepseek:
            return deepseek;
        case Family::codellama:
            break;
    }
    return codellama;
}

// Tokens and their types; what fills them up is never met in a text.
struct Vocabulary {
    std::vector<std::string> tokens;
    std::vector<std::int32_t> types;

    void add(std::string token, int type) {
        tokens.push_back(std::move(token));
        types.push_back(type);
    }
    std::uint32_t id(const std::string& token) const {
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            if (tokens[i] == token) return static_cast<std::uint32_t>(i);
        }
        return ~std::uint32_t{0};
    }
};

// How many rows are tokens: Qwen2.5 has 151,936 or 152,064 rows for 151,665 tokens, DeepSeek-Coder 32,256 for 32,022.
int tokens_of(Family family, int rows) {
    if (family == Family::qwen2) return 151665 / kScale;
    if (family == Family::deepseek) return 32022 / kScale;
    return rows / kScale;
}

Vocabulary byte_level(const Special& special, int tokens, int rows) {
    Vocabulary out;
    for (int byte = 0; byte < 256; ++byte) {
        std::string spelled;
        core::append_spelling(std::string(1, static_cast<char>(byte)), spelled);
        out.add(spelled, kNormal);
    }
    for (const char* merged : {"de", "re", "def", "in"}) out.add(merged, kNormal);
    const int words = tokens - static_cast<int>(special.control.size());
    while (static_cast<int>(out.tokens.size()) < words) out.add("word" + std::to_string(out.tokens.size()), kNormal);
    for (const std::string& token : special.control) out.add(token, kControl);
    while (static_cast<int>(out.tokens.size()) < rows)
        out.add("[PAD" + std::to_string(out.tokens.size()) + "]", kUnused);
    return out;
}

Vocabulary sentence_piece(int rows) {
    Vocabulary out;
    out.add("<unk>", kUnknown);
    out.add("<s>", kControl);
    out.add("</s>", kControl);
    for (int byte = 0; byte < 256; ++byte) {
        const char* digits = "0123456789ABCDEF";
        out.add(std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">", kByte);
    }
    for (const char* piece : {"▁", "d", "e", "f", "de", "def", "▁def"}) out.add(piece, kNormal);
    while (static_cast<int>(out.tokens.size()) < rows) out.add("word" + std::to_string(out.tokens.size()), kNormal);
    return out;
}

class Weights {
public:
    // Rows of random blocks with one scale that suits all: values are some hundredths.
    std::string blocks(std::uint32_t type, std::size_t values) {
        const std::string scale = type == kQ6_K ? raw<std::uint16_t>(0x0400) : raw<std::uint16_t>(0x1000);  // f16
        std::string out;
        for (std::size_t done = 0; done < values; done += type == kQ8_0 ? 32 : 256) {
            if (type == kQ8_0) out += scale + noise(32);
            if (type == kQ4_K) out += scale + scale + noise(140);
            if (type == kQ6_K) out += noise(208) + scale;
        }
        return out;
    }
    static std::string ones(std::size_t count) {
        std::string out;
        for (std::size_t i = 0; i < count; ++i) out += raw(1.0f);
        return out;
    }

private:
    std::string noise(std::size_t bytes) {
        std::string out(bytes, '\0');
        for (char& byte : out) byte = static_cast<char>(random_() >> 7);
        return out;
    }
    std::minstd_rand random_{7};
};

void write_metadata(GgufImageBuilder& b, Family family, const kernels::ModelShape& published, const Special& special) {
    const std::string name = family == Family::qwen2 ? "qwen2" : "llama";
    const auto number = [&](const std::string& key, std::int32_t value) {
        b.scalar<std::uint32_t>(name + "." + key, GgufType::u32, static_cast<std::uint32_t>(value));
    };
    b.text("general.architecture", name).text("general.name", "a small model");
    number("block_count", 1);
    number("embedding_length", kWidth);
    number("feed_forward_length", kFeedForward);
    number("attention.head_count", published.heads);
    number("attention.head_count_kv", published.kv_heads);
    number("attention.key_length", published.head_dim);
    number("attention.value_length", published.head_dim);
    number("context_length", family == Family::llama3 ? 131072 : family == Family::qwen2 ? 32768 : 16384);
    b.scalar<float>(name + ".attention.layer_norm_rms_epsilon", GgufType::f32, 1e-5f);
    const float base = family == Family::llama3 ? 500000.0f : family == Family::deepseek ? 100000.0f : 1000000.0f;
    b.scalar<float>(name + ".rope.freq_base", GgufType::f32, base);
    if (family == Family::deepseek) {
        b.text(name + ".rope.scaling.type", "linear");
        b.scalar<float>(name + ".rope.scaling.factor", GgufType::f32, 4.0f);
    }
    const int rows = published.vocab / kScale;
    const Vocabulary words = family == Family::codellama
                                 ? sentence_piece(rows)
                                 : byte_level(special, tokens_of(family, published.vocab), rows);
    b.text("tokenizer.ggml.model", family == Family::codellama ? "llama" : "gpt2");
    b.texts("tokenizer.ggml.tokens", words.tokens);
    b.array<std::int32_t>("tokenizer.ggml.token_type", GgufType::i32, words.types);
    if (family == Family::codellama) {
        std::vector<float> scores(words.tokens.size());
        for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = -static_cast<float>(i);
        b.array<float>("tokenizer.ggml.scores", GgufType::f32, scores);
        b.scalar<std::uint32_t>("tokenizer.ggml.unknown_token_id", GgufType::u32, 0);
    } else {
        b.text("tokenizer.ggml.pre", special.pre);
        b.texts("tokenizer.ggml.merges", {"d e", "r e", "de f", "i n"});
    }
    b.scalar<std::uint32_t>("tokenizer.ggml.bos_token_id", GgufType::u32, words.id(special.bos));
    b.scalar<std::uint32_t>("tokenizer.ggml.eos_token_id", GgufType::u32, words.id(special.eos));
    if (!special.chat_template.empty()) b.text("tokenizer.chat_template", special.chat_template);
}

}  // namespace

void write_small_model(const std::filesystem::path& path, Family family, const kernels::ModelShape& published,
                       bool tied, bool q8) {
    GgufImageBuilder b;
    write_metadata(b, family, published, special_of(family));
    Weights weights;
    const std::uint32_t type = q8 ? kQ8_0 : kQ4_K;
    // `in` and `out`: features of the input and of the output.
    const auto matrix = [&](const std::string& name, int in, int out, std::uint32_t as) {
        const std::size_t values = static_cast<std::size_t>(in) * static_cast<std::size_t>(out);
        b.tensor(name, {static_cast<std::uint64_t>(in), static_cast<std::uint64_t>(out)}, as,
                 weights.blocks(as, values));
    };
    const auto vector = [&](const std::string& name, int count) {
        b.tensor(name, {static_cast<std::uint64_t>(count)}, kF32, Weights::ones(static_cast<std::size_t>(count)));
    };
    const int q = published.heads * published.head_dim, kv = published.kv_heads * published.head_dim;
    matrix("token_embd.weight", kWidth, published.vocab / kScale, type);
    vector("output_norm.weight", kWidth);
    if (!tied) matrix("output.weight", kWidth, published.vocab / kScale, q8 ? kQ8_0 : kQ6_K);
    if (family == Family::llama3) vector("rope_freqs.weight", published.head_dim / 2);
    const std::string layer = "blk.0.";
    vector(layer + "attn_norm.weight", kWidth);
    matrix(layer + "attn_q.weight", kWidth, q, type);
    matrix(layer + "attn_k.weight", kWidth, kv, type);
    matrix(layer + "attn_v.weight", kWidth, kv, type);
    if (family == Family::qwen2) {
        vector(layer + "attn_q.bias", q);
        vector(layer + "attn_k.bias", kv);
        vector(layer + "attn_v.bias", kv);
    }
    matrix(layer + "attn_output.weight", q, kWidth, type);
    vector(layer + "ffn_norm.weight", kWidth);
    matrix(layer + "ffn_gate.weight", kWidth, kFeedForward, type);
    matrix(layer + "ffn_up.weight", kWidth, kFeedForward, type);
    matrix(layer + "ffn_down.weight", kFeedForward, kWidth, type);
    std::ofstream(path, std::ios::binary) << b.build();
}

}  // namespace foresay::testing
