// core/models/config_keys.h: the keys of a model's configuration, in a GGUF file or in config.json, read by one pair of
// names. Every key that is read is noted, so that a key that nothing reads can be refused.
//
// Names:    `gguf` comes without the architecture ("attention.head_count"), `hf` is a path in config.json
//           ("rope_parameters.rope_theta"). An empty name: the format has no such key. In config.json of a model with
//           more than text, the keys are those of text_config, and of the document where text_config lacks one.
// Threads:  one caller at a time.
// Errors:   getters throw Error when a required key is missing, has another type or is out of range; the message names
//           the file and the key.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/models/model_source.h"
#include "core/weights/gguf.h"
#include "core/weights/json_config.h"

namespace foresay::core {

class Keys {
public:
    // `source` answers has_tensor() and values(); its configuration need not be complete.
    Keys(const GgufFile& file, const ModelSource& source);
    Keys(const JsonConfig& json, const ModelSource& source);

    bool gguf() const { return gguf_ != nullptr; }
    const std::string& path() const;  // for messages
    // The key as the file spells it.
    std::string spelled(std::string_view gguf, std::string_view hf) const;
    // Throws "PATH: KEY WHAT".
    [[noreturn]] void refuse(std::string_view gguf, std::string_view hf, const std::string& what) const;

    bool has(std::string_view gguf, std::string_view hf);
    std::int32_t count(std::string_view gguf, std::string_view hf);  // 0 .. 2^31 - 1
    std::int32_t count_or(std::string_view gguf, std::string_view hf, std::int32_t fallback);
    float number(std::string_view gguf, std::string_view hf);  // finite
    float number_or(std::string_view gguf, std::string_view hf, float fallback);
    // Positive and finite; the epsilon of a norm: above 0 and at most 0.1.
    float positive_or(std::string_view gguf, std::string_view hf, float fallback);
    float epsilon_or(std::string_view gguf, std::string_view hf, float fallback);
    bool flag_or(std::string_view gguf, std::string_view hf, bool fallback);
    std::string text_or(std::string_view gguf, std::string_view hf, std::string_view fallback);
    // One entry per layer: an array of the right length, or one value for all.
    std::vector<std::int32_t> counts(std::string_view gguf, std::string_view hf, std::size_t size);
    std::vector<float> numbers(std::string_view gguf, std::string_view hf, std::size_t size);
    std::vector<bool> flags(std::string_view gguf, std::string_view hf, std::size_t size);
    std::vector<std::int32_t> list(std::string_view hf);  // of any length; absent: empty
    std::vector<std::string> texts(std::string_view hf, std::size_t size);
    bool is_array(std::string_view gguf, std::string_view hf);
    bool is_object(std::string_view hf);
    std::vector<std::string> members(std::string_view hf);

    // Keys that change no number, or that say again what others say.
    void ignore(std::initializer_list<std::string_view> keys);
    // A key that must have this value if it is there.
    void expect_flag(std::string_view gguf, std::string_view hf, bool expected, const char* why);

    bool has_tensor(std::int32_t layer, std::string_view part, std::string_view kind = "weight") const {
        return source_.has({.layer = layer, .part = part, .kind = kind});
    }
    // A vector in a GGUF file; empty: there is none.
    std::vector<float> vector(std::string_view part, std::size_t size) const;

    // Throws Error naming the first key that nothing has read, is not known to be harmless, and could change numbers.
    void refuse_unknown() const;

private:
    std::string find(std::string_view gguf, std::string_view hf);  // notes the key; empty: it is absent
    std::string require(std::string_view gguf, std::string_view hf);
    std::int32_t narrow(std::int64_t value, const std::string& key) const;
    template <class T>
    std::vector<T> per_layer(std::vector<T> values, const std::string& key, std::size_t size) const;

    const GgufFile* gguf_ = nullptr;
    const JsonConfig* json_ = nullptr;
    const ModelSource& source_;
    std::string prefix_;  // of GGUF keys, "llama."
    std::set<std::string, std::less<>> read_;
};

}  // namespace foresay::core
