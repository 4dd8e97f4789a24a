// tests/support/model_folder.h: Hugging Face folders of published shapes, of any family: with all the names and shapes
// of the published tensors and a hole in place of their data, which is enough to look at a model; or made small and
// with random weights, to run it. Both have a byte-level tokenizer of a few hundred tokens.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "core/models/architecture.h"
#include "core/models/op_maker.h"
#include "core/models/read_config.h"
#include "core/models/shapes.h"
#include "core/text/byte_alphabet.h"

namespace foresay::testing {

struct FolderTokenizer {
    std::int32_t words = 40;       // tokens besides the 256 bytes
    std::string prefix = "word";   // of their texts
    std::int32_t other_words = 0;  // the last so many of them have another text
    std::string end = "<|endoftext|>";
};

struct ModelFolder {
    std::string shape;   // a published one
    bool small = false;  // a few narrow layers with random weights
    FolderTokenizer tokenizer = {};
};

namespace folder_detail {

inline const core::Architecture& family_of(const std::string& shape) {
    return core::architecture(core::published_shape(shape).architecture);
}

// The keys of a small model that does what the shape's layers do.
inline void make_small(nlohmann::json& json) {
    const auto at_most = [&](const char* key, std::int64_t most) {
        if (json.contains(key)) json[key] = std::min<std::int64_t>(json[key].get<std::int64_t>(), most);
    };
    const std::int64_t head_dim = json.value(
        "head_dim", json["hidden_size"].get<std::int64_t>() / json["num_attention_heads"].get<std::int64_t>());
    const bool alike = json["num_key_value_heads"] == json["num_attention_heads"];
    if (!json.contains("num_kv_shared_layers")) at_most("num_hidden_layers", 8);
    json["head_dim"] = head_dim;
    json["hidden_size"] = 128;
    json["num_attention_heads"] = 4;
    json["num_key_value_heads"] = alike ? 4 : 2;
    json["intermediate_size"] = 96;
    json["vocab_size"] = 320;
    at_most("num_global_key_value_heads", 2);
    at_most("sliding_window", 16);
    at_most("moe_intermediate_size", 64);
    at_most("hidden_size_per_layer_input", 32);
    for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts"}) at_most(key, 8);
    for (const char* key : {"num_experts_per_tok", "top_k_experts"}) at_most(key, 4);
}

inline nlohmann::json tokenizer_json(const FolderTokenizer& tokenizer) {
    nlohmann::json vocab = nlohmann::json::object();
    std::int32_t id = 0;
    for (int byte = 0; byte < 256; ++byte) {
        std::string spelled;
        core::append_spelling(std::string(1, static_cast<char>(byte)), spelled);
        vocab[spelled] = id++;
    }
    for (std::int32_t i = 0; i < tokenizer.words; ++i) {
        const bool other = i >= tokenizer.words - tokenizer.other_words;
        vocab[(other ? "other" : tokenizer.prefix) + std::to_string(i)] = id++;
    }
    const nlohmann::json end = {{"id", id},        {"content", tokenizer.end}, {"single_word", false},
                                {"lstrip", false}, {"rstrip", false},          {"normalized", false},
                                {"special", true}};
    vocab[tokenizer.end] = id;
    return {{"version", "1.0"},
            {"added_tokens", nlohmann::json::array({end})},
            {"normalizer", nullptr},
            {"pre_tokenizer",
             {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}}},
            {"post_processor", nullptr},
            {"decoder", {{"type", "ByteLevel"}}},
            {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}};
}

struct Tensor {
    std::vector<std::int64_t> shape;
    bool norm = false;
};

// The tensors as the family's folders store them, by name.
inline std::map<std::string, Tensor> tensors(const core::ModelConfig& config) {
    const core::Architecture& family = core::architecture(config.architecture);
    std::map<std::string, Tensor> all;
    for (const core::TensorUse& use : core::tensors_of(config)) {
        const core::TensorName& name = use.name;
        if (name.is_head() && config.tied_head) continue;
        const core::HfName hf = core::hf_name(family, name.part, name.kind);
        check(!hf.hf.empty(), "a tensor without a name in folders");
        std::string own(hf.hf);
        const bool exact = own.ends_with('!');
        if (exact) own.pop_back();
        const std::size_t place = own.find("{e}");
        const bool together = name.expert >= 0 && place == std::string::npos;
        if (place != std::string::npos) own.replace(place, 3, std::to_string(name.expert));
        if (name.layer >= 0) own = "layers." + std::to_string(name.layer) + "." + own;
        own = (name.is_head() ? "" : "model.") + own + (exact ? "" : "." + std::string(name.kind));
        const std::int64_t parts = hf.form == core::HfForm::whole ? 1 : 2;
        const bool bias = name.kind == "bias";
        std::vector<std::int64_t> shape = {use.shape.rows * (bias ? 1 : parts), use.shape.cols * (bias ? parts : 1)};
        if (hf.transposed) std::swap(shape[0], shape[1]);
        if (together) shape.insert(shape.begin(), name.experts);
        // Vectors, and biases of experts, have as many dimensions as they need.
        if (shape.front() == 1 && !together) shape.erase(shape.begin());
        all[own] = {std::move(shape), name.part.find("norm") != std::string_view::npos && !bias};
    }
    return all;
}

}  // namespace folder_detail

// Writes the folder, and returns its path.
inline std::filesystem::path write_model_folder(const std::filesystem::path& path, const ModelFolder& wanted) {
    namespace fs = std::filesystem;
    using nlohmann::json;
    fs::create_directories(path);
    const core::Architecture& family = folder_detail::family_of(wanted.shape);
    const auto shape = std::ranges::find(family.shapes, wanted.shape, &core::PublishedShape::name);
    const std::string separator = family.shape_keys.empty() ? "" : ", ";
    json keys = json::parse("{" + std::string(family.shape_keys) + separator + std::string(shape->keys) + "}");
    if (wanted.small) folder_detail::make_small(keys);
    keys["architectures"] = {std::string(family.hf_names.front())};
    const std::string text = keys.dump(2);
    std::ofstream(path / "config.json") << text;
    std::ofstream(path / "tokenizer.json") << folder_detail::tokenizer_json(wanted.tokenizer).dump();
    std::ofstream(path / "tokenizer_config.json") << json{{"eos_token", wanted.tokenizer.end}}.dump();

    // The configuration as a model of this folder has it, without the folder.
    class NoTensors final : public core::ModelSource {
    public:
        kernels::TensorView tensor(const core::TensorName&, core::TensorShape) override { return {}; }
        bool has(const core::TensorName&) const override { return false; }
        std::int64_t weight_bytes() override { return 0; }
    };
    const core::JsonConfig document = core::JsonConfig::parse(text, "config.json");
    const NoTensors none;
    core::Keys reader(document, none);
    core::ModelConfig config = core::read_config(reader, family);
    config.shape.vocab = static_cast<std::int32_t>(document.get_int("vocab_size"));

    json header = json::object();
    std::int64_t bytes = 0;
    const std::map<std::string, folder_detail::Tensor> tensors = folder_detail::tensors(config);
    for (const auto& [name, tensor] : tensors) {
        std::int64_t values = 1;
        for (const std::int64_t size : tensor.shape) values *= size;
        header[name] = {{"dtype", "BF16"}, {"shape", tensor.shape}, {"data_offsets", {bytes, bytes + 2 * values}}};
        bytes += 2 * values;
    }
    const std::string head = header.dump();
    const fs::path file = path / "model.safetensors";
    std::ofstream out(file, std::ios::binary);
    const std::uint64_t length = head.size();
    out.write(reinterpret_cast<const char*>(&length), sizeof length);
    out << head;
    if (!wanted.small) {
        out.close();
        fs::resize_file(file, sizeof length + head.size() + static_cast<std::uint64_t>(bytes));
        return path;
    }
    std::minstd_rand random(7);
    for (const auto& [name, tensor] : tensors) {
        std::int64_t values = 1;
        for (const std::int64_t size : tensor.shape) values *= size;
        const float scale = 1.7f / std::sqrt(static_cast<float>(tensor.shape.back()));
        std::vector<std::uint16_t> data(static_cast<std::size_t>(values));
        for (std::uint16_t& value : data) {
            const float uniform = static_cast<float>(random() >> 7 & 0xffffu) / 32768.0f - 1.0f;
            const float number = tensor.norm ? 1.0f : scale * uniform;
            std::uint32_t bits;
            std::memcpy(&bits, &number, sizeof bits);
            value = static_cast<std::uint16_t>(bits >> 16);
        }
        out.write(reinterpret_cast<const char*>(data.data()), static_cast<std::streamsize>(2 * data.size()));
    }
    return path;
}

}  // namespace foresay::testing
