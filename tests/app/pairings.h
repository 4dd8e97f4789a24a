// tests/app/pairings.h: the pairings of configs/ as their models are published: shapes, and what their files say of
// tokenizers.
#pragma once

#include <map>
#include <string>

#include "core/models/shapes.h"

namespace foresay::testing {

enum class Family { qwen2, llama3, deepseek, codellama };

struct Pairing {
    Family family;
    kernels::ModelShape target, draft;
    bool tied_draft = false;  // the draft's head is its embedding table
};

// By the name of the file.
inline const std::map<std::string, Pairing>& pairings() {
    const auto shape = [](const char* name) { return core::published_shape(name).shape; };
    // As published: layers, width, heads, key-value heads, head width, feed-forward, rows of the vocabulary.
    static const kernels::ModelShape deepseek_33b{62, 7168, 56, 8, 128, 19200, 32256};
    static const kernels::ModelShape deepseek_7b{32, 4096, 32, 32, 128, 11008, 32256};
    static const kernels::ModelShape deepseek_1b{24, 2048, 16, 16, 128, 5504, 32256};
    static const kernels::ModelShape codellama_34b{48, 8192, 64, 8, 128, 22016, 32000};
    static const kernels::ModelShape codellama_7b{32, 4096, 32, 32, 128, 11008, 32000};
    static const std::map<std::string, Pairing> table = {
        {"codellama-34b-python.toml", {Family::codellama, codellama_34b, codellama_7b}},
        {"qwen2.5-coder-32b.toml", {Family::qwen2, shape("qwen2.5-coder-32b"), shape("qwen2.5-coder-0.5b"), true}},
        {"qwen2.5-coder-32b-with-1.5b.toml",
         {Family::qwen2, shape("qwen2.5-coder-32b"), shape("qwen2.5-coder-1.5b"), true}},
        {"qwen2.5-coder-7b.toml", {Family::qwen2, shape("qwen2.5-coder-7b"), shape("qwen2.5-coder-0.5b"), true}},
        {"llama-3.1-70b.toml", {Family::llama3, shape("llama-3.1-70b"), shape("llama-3.2-1b"), true}},
        {"llama-3.1-8b.toml", {Family::llama3, shape("llama-3.1-8b"), shape("llama-3.2-1b"), true}},
        {"deepseek-coder-33b.toml", {Family::deepseek, deepseek_33b, deepseek_1b}},
        {"deepseek-coder-6.7b.toml", {Family::deepseek, deepseek_7b, deepseek_1b}},
    };
    return table;
}

// Those whose models are published shapes of any family, by the name of the file. An empty draft: n-gram lookup alone.
struct ShapePairing {
    std::string target, draft;
    std::int32_t draft_vocab = 0;  // rows of the draft, where it has been given another vocabulary; 0: the shape's
};

inline const std::map<std::string, ShapePairing>& shape_pairings() {
    static const std::map<std::string, ShapePairing> table = {
        {"qwen3-8b.toml", {"qwen3-8b", "qwen3-0.6b"}},
        {"qwen3-14b.toml", {"qwen3-14b", "qwen3-0.6b"}},
        {"qwen3-32b.toml", {"qwen3-32b", "qwen3-0.6b"}},
        {"qwen3-30b-a3b.toml", {"qwen3-30b-a3b", "qwen3-0.6b"}},
        {"gemma-3-12b.toml", {"gemma-3-12b", "gemma-3-270m"}},
        {"gemma-3-27b.toml", {"gemma-3-27b", "gemma-3-1b"}},
        {"gemma-2-27b.toml", {"gemma-2-27b", "gemma-2-2b"}},
        {"mistral-small-24b.toml", {"mistral-small-24b", "qwen2.5-coder-0.5b", 131072}},
        {"ministral-3-14b.toml", {"ministral-3-14b", "ministral-3-3b"}},
        {"phi-3-medium.toml", {"phi-3-medium", "phi-3-mini"}},
        {"glm-4-32b.toml", {"glm-4-32b", "glm-4-9b"}},
        {"granite-3.3-8b.toml", {"granite-3.3-8b", "granite-3.3-2b"}},
        {"gemma-4-31b.toml", {"gemma-4-31b", "gemma-4-e2b"}},
        {"gpt-oss-20b.toml", {"gpt-oss-20b", ""}},
        {"mixtral-8x7b.toml", {"mixtral-8x7b", ""}},
        {"smollm3-3b.toml", {"smollm3-3b", ""}},
        {"glm-4.5-air.toml", {"glm-4.5-air", ""}},
    };
    return table;
}

}  // namespace foresay::testing
