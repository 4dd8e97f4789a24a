#include "core/models/config_keys.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "core/models/plausible.h"
#include "core/weights/quote.h"

namespace foresay::core {
namespace {

constexpr std::string_view kTextConfig = "text_config.";

// GGUF keys of an architecture that say nothing about the numbers, or say again what tensors say.
constexpr std::string_view kHarmlessGguf[] = {"vocab_size", "tensor_data_layout", "attention.causal",
                                              "rope.scaling.finetuned", "expert_group_scale"};

// Keys of config.json that change no logit of a row: training, generation, provenance, other modalities, and what the
// tensors themselves say.
constexpr std::string_view kHarmlessJson[] = {
    "architectures",
    "auto_map",
    "model_type",
    "torch_dtype",
    "dtype",
    "transformers_version",
    "use_cache",
    "initializer_range",
    "vocab_size",
    "pretraining_tp",
    "tie_word_embeddings",
    "max_window_layers",
    "license",
    "name_or_path",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "router_z_loss_coef",
    "aux_loss_alpha",
    "seq_aux",
    "ep_size",
    "problem_type",
    "id2label",
    "label2id",
    "is_encoder_decoder",
    "tokenizer_class",
    "text_config",
    "vision_config",
    "audio_config",
    "projector_hidden_act",
    "multimodal_projector_bias",
    "spatial_merge_size",
    "vision_feature_layer",
    "mm_tokens_per_image",
    "vision_soft_tokens_per_image",
    "unsloth_version",
    "unsloth_fixed",
    "task_specific_params",
    "finetuning_task",
    "chunk_size_feed_forward",
    "vocab_size_per_layer_input",
    "video_fps",
    "bos_token",
    "eos_token",
    "eot_token",
    "cache_implementation",
    "mtp_num_hidden_layers",
    "initializer_factor",
    "layer_norm_type",
    "model_parallel_size",
    "train_seq_len",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "torchscript",
    "pruned_heads",
    "prefix",
    "seq_length",
    "model_max_length",
    "is_llama_config",
    "attn_implementation",
    "use_return_dict",
    "temperature",
    "top_k",
    "top_p",
    "do_sample",
    "max_length",
    "min_length",
    "num_beams",
    "num_return_sequences",
    "repetition_penalty",
    "length_penalty",
    "no_repeat_ngram_size",
    "early_stopping",
};
constexpr std::string_view kHarmlessEndings[] = {"token_id", "token_index", "token_ids", "dropout",
                                                 "_pdrop",   "_drop",       "_prob",     "_coef"};
constexpr std::string_view kHarmlessBeginnings[] = {"_", "output_", "quantization", "unsloth_"};

bool harmless(std::string_view key) {
    if (std::ranges::find(kHarmlessJson, key) != std::end(kHarmlessJson)) return true;
    return std::ranges::any_of(kHarmlessEndings, [&](std::string_view end) { return key.ends_with(end); }) ||
           std::ranges::any_of(kHarmlessBeginnings, [&](std::string_view begin) { return key.starts_with(begin); });
}

std::string top(std::string_view key) { return std::string(key.substr(0, key.find('.'))); }

}  // namespace

Keys::Keys(const GgufFile& file, const ModelSource& source)
    : gguf_(&file), source_(source), prefix_(std::string(file.get_string("general.architecture")) + ".") {}

Keys::Keys(const JsonConfig& json, const ModelSource& source) : json_(&json), source_(source) {}

const std::string& Keys::path() const { return gguf_ != nullptr ? gguf_->path() : json_->path(); }

std::string Keys::spelled(std::string_view gguf, std::string_view hf) const {
    return gguf_ != nullptr ? prefix_ + std::string(gguf) : std::string(hf);
}

void Keys::refuse(std::string_view gguf, std::string_view hf, const std::string& what) const {
    throw Error(path() + ": " + spelled(gguf, hf) + " " + what);
}

std::string Keys::find(std::string_view gguf, std::string_view hf) {
    if (gguf_ != nullptr) {
        if (gguf.empty()) return {};
        std::string key = prefix_ + std::string(gguf);
        read_.insert(key);
        return gguf_->has(key) ? key : std::string();
    }
    if (hf.empty()) return {};
    read_.insert(top(hf));
    std::string inner = std::string(kTextConfig) + std::string(hf);
    if (json_->has(inner)) return inner;
    return json_->has(hf) ? std::string(hf) : std::string();
}

std::string Keys::require(std::string_view gguf, std::string_view hf) {
    const std::string key = find(gguf, hf);
    if (!key.empty()) return key;
    const std::string name = spelled(gguf, hf);
    throw Error(path() + ": " + quote(name) + " is missing; the file is incomplete or of another architecture");
}

std::int32_t Keys::narrow(std::int64_t value, const std::string& key) const {
    if (value < 0 || value > 0x7fffffff) {
        throw Error(path() + ": " + key + " is " + std::to_string(value) +
                    ", which is out of range; the file is damaged, get it again");
    }
    return static_cast<std::int32_t>(value);
}

bool Keys::has(std::string_view gguf, std::string_view hf) { return !find(gguf, hf).empty(); }

std::int32_t Keys::count(std::string_view gguf, std::string_view hf) {
    const std::string key = require(gguf, hf);
    return narrow(gguf_ != nullptr ? gguf_->get_int(key) : json_->get_int(key), key);
}

std::int32_t Keys::count_or(std::string_view gguf, std::string_view hf, std::int32_t fallback) {
    return has(gguf, hf) ? count(gguf, hf) : fallback;
}

float Keys::number(std::string_view gguf, std::string_view hf) {
    const std::string key = require(gguf, hf);
    const auto value = static_cast<float>(gguf_ != nullptr ? gguf_->get_float(key) : json_->get_float(key));
    if (!std::isfinite(value)) throw Error(path() + ": " + key + " is not a finite number");
    return value;
}

float Keys::number_or(std::string_view gguf, std::string_view hf, float fallback) {
    return has(gguf, hf) ? number(gguf, hf) : fallback;
}

float Keys::positive_or(std::string_view gguf, std::string_view hf, float fallback) {
    return has(gguf, hf) ? plausible_positive(number(gguf, hf), path(), spelled(gguf, hf)) : fallback;
}

float Keys::epsilon_or(std::string_view gguf, std::string_view hf, float fallback) {
    return has(gguf, hf) ? plausible_epsilon(number(gguf, hf), path(), spelled(gguf, hf)) : fallback;
}

bool Keys::flag_or(std::string_view gguf, std::string_view hf, bool fallback) {
    const std::string key = find(gguf, hf);
    if (key.empty()) return fallback;
    return gguf_ != nullptr ? gguf_->get_bool(key) : json_->get_bool(key);
}

std::string Keys::text_or(std::string_view gguf, std::string_view hf, std::string_view fallback) {
    const std::string key = find(gguf, hf);
    if (key.empty()) return std::string(fallback);
    return gguf_ != nullptr ? std::string(gguf_->get_string(key)) : json_->get_string(key);
}

template <class T>
std::vector<T> Keys::per_layer(std::vector<T> values, const std::string& key, std::size_t size) const {
    if (values.size() < size || size == 0) {
        throw Error(path() + ": " + key + " has " + std::to_string(values.size()) + " entries, the model needs " +
                    std::to_string(size));
    }
    values.resize(size);
    return values;
}

std::vector<std::int32_t> Keys::counts(std::string_view gguf, std::string_view hf, std::size_t size) {
    const std::string key = require(gguf, hf);
    if (!is_array(gguf, hf)) return std::vector<std::int32_t>(size, count(gguf, hf));
    std::vector<std::int32_t> values;
    for (const std::int64_t value : gguf_ != nullptr ? gguf_->get_ints(key) : json_->get_ints(key)) {
        values.push_back(narrow(value, key));
    }
    return per_layer(std::move(values), key, size);
}

std::vector<float> Keys::numbers(std::string_view gguf, std::string_view hf, std::size_t size) {
    const std::string key = require(gguf, hf);
    std::vector<float> values;
    if (gguf_ != nullptr) {
        values = gguf_->get_floats(key);
    } else {
        for (const double value : json_->get_floats(key)) values.push_back(static_cast<float>(value));
    }
    if (values.size() != size) {
        throw Error(path() + ": " + key + " has " + std::to_string(values.size()) + " entries, the model needs " +
                    std::to_string(size));
    }
    for (const float value : values) {
        if (!std::isfinite(value)) throw Error(path() + ": " + key + " holds a number that is not finite");
    }
    return values;
}

std::vector<bool> Keys::flags(std::string_view gguf, std::string_view hf, std::size_t size) {
    const std::string key = require(gguf, hf);
    std::vector<bool> values;
    if (gguf_ != nullptr) {
        const GgufEntry& entry = *gguf_->find(key);
        if (entry.element == GgufType::boolean) {
            values = gguf_->get_bools(key);
        } else {
            for (const std::int64_t value : gguf_->get_ints(key)) values.push_back(value != 0);
        }
    } else {
        for (const std::int64_t value : json_->get_ints(key)) values.push_back(value != 0);
    }
    return per_layer(std::move(values), key, size);
}

std::vector<std::int32_t> Keys::list(std::string_view hf) {
    const std::string key = find({}, hf);
    std::vector<std::int32_t> values;
    if (key.empty()) return values;
    for (const std::int64_t value : json_->get_ints(key)) values.push_back(narrow(value, key));
    return values;
}

std::vector<std::string> Keys::texts(std::string_view hf, std::size_t size) {
    const std::string key = require({}, hf);
    return per_layer(json_->get_strings(key), key, size);
}

bool Keys::is_array(std::string_view gguf, std::string_view hf) {
    const std::string key = find(gguf, hf);
    if (key.empty()) return false;
    return gguf_ != nullptr ? gguf_->find(key)->type == GgufType::array : json_->is_array(key);
}

bool Keys::is_object(std::string_view hf) {
    const std::string key = find({}, hf);
    return !key.empty() && json_->is_object(key);
}

std::vector<std::string> Keys::members(std::string_view hf) {
    const std::string key = find({}, hf);
    return key.empty() ? std::vector<std::string>() : json_->members(key);
}

void Keys::ignore(std::initializer_list<std::string_view> keys) {
    for (const std::string_view key : keys) read_.insert(gguf_ != nullptr ? prefix_ + std::string(key) : top(key));
}

void Keys::expect_flag(std::string_view gguf, std::string_view hf, bool expected, const char* why) {
    if (flag_or(gguf, hf, expected) != expected) refuse(gguf, hf, why);
}

std::vector<float> Keys::vector(std::string_view part, std::size_t size) const {
    if (gguf_ == nullptr) return {};
    const std::string name = TensorName{.part = part}.text();
    const kernels::TensorView view = gguf_->tensors().get_optional(name);
    if (view.empty()) return {};
    if (view.rows != 1 || view.cols != static_cast<std::int64_t>(size)) {
        throw Error(path() + ": the tensor " + name + " should be 1 x " + std::to_string(size) + " but is " +
                    std::to_string(view.rows) + " x " + std::to_string(view.cols));
    }
    std::vector<float> values(size);
    kernels::dequantize_row(view, 0, values);
    for (const float value : values) {
        if (!(value > 0.0f) || !std::isfinite(value)) {
            throw Error(path() + ": the tensor " + name + " holds a factor that is not positive");
        }
    }
    return values;
}

void Keys::refuse_unknown() const {
    const auto unknown = [&](const std::string& key) {
        throw Error(path() + ": " + quote(key) +
                    " is not known for this architecture and could change the results; use a newer foresay, or remove "
                    "the key if it has no effect");
    };
    if (gguf_ != nullptr) {
        for (const GgufEntry& entry : gguf_->metadata()) {
            if (!entry.key.starts_with(prefix_) || read_.contains(entry.key)) continue;
            const std::string_view own = entry.key.substr(prefix_.size());
            if (std::ranges::find(kHarmlessGguf, own) == std::end(kHarmlessGguf)) unknown(std::string(entry.key));
        }
        return;
    }
    for (const std::string_view object : {std::string_view(), kTextConfig.substr(0, kTextConfig.size() - 1)}) {
        for (const std::string& key : json_->members(object)) {
            if (read_.contains(key) || harmless(key)) continue;
            const std::string whole = object.empty() ? key : std::string(object) + "." + key;
            if (!json_->is_off(whole)) unknown(whole);
        }
    }
}

}  // namespace foresay::core
