// tests/support/gguf_of_folder.h: the GGUF image of a Hugging Face folder with tiny weights, as llama.cpp's converter
// writes it: its keys, its names, its order of rows. They are written down here on their own, and not taken from the
// readers, so that a test of these two can find a mistake.
//
// Precision: vectors, norms and routers are F32, everything else BF16; both hold the folder's numbers exactly.
// Source:   llama.cpp, conversion/*.py and gguf-py/gguf/constants.py.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

namespace foresay::test {

// The metadata of an image, to be changed by tests. Keys are whole: "llama.block_count".
class GgufKeys {
public:
    using Value = std::variant<std::uint32_t, float, bool, std::string, std::vector<std::int32_t>, std::vector<bool>,
                               std::vector<float>>;

    explicit GgufKeys(std::string architecture) : architecture_(std::move(architecture)) {
        values["general.architecture"] = architecture_;
    }
    const std::string& architecture() const { return architecture_; }
    std::string prefixed(const std::string& key) const { return architecture_ + "." + key; }
    // A key of the architecture.
    void set(const std::string& key, Value value) { values[prefixed(key)] = std::move(value); }
    void erase(const std::string& key) { values.erase(prefixed(key)); }

    std::map<std::string, Value> values;

private:
    std::string architecture_;
};

struct ConvertOptions {
    bool tensor_per_expert = false;  // as in the first files of Mixtral
    bool joined_experts = false;     // gate and up of the experts in one tensor
};

// A tensor by its GGUF name, outermost dimension first.
struct GgufTensor {
    std::vector<std::int64_t> shape;
    std::vector<float> values;
};

// The keys that the converter writes for the config.json, in either dialect.
GgufKeys gguf_keys(const nlohmann::json& config);
std::map<std::string, GgufTensor> gguf_tensors(const std::filesystem::path& folder, const nlohmann::json& config,
                                               const ConvertOptions& options = {});
// The image of a file.
std::string gguf_image(const GgufKeys& keys, const std::map<std::string, GgufTensor>& tensors = {});

nlohmann::json read_json(const std::filesystem::path& file);

}  // namespace foresay::test
