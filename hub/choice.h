// hub/choice.h: which files of a repository make up a model.
//
// A GGUF file, with all of its parts if it is split; or a folder of safetensors with its configuration and tokenizer.
// Projectors for images (mmproj) and importance matrices (imatrix) are no models. Other formats are never fetched.
// Errors:   Error that lists what there is when nothing, or more than one model, fits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace foresay::hub {

struct HubFile {
    std::string path;       // in the repository
    std::int64_t size = 0;  // bytes
    std::string oid;        // its checksum (hub/digest.h)
};

struct ModelFiles {
    bool gguf = false;
    std::string quant;           // as in the file's name; "" for safetensors
    std::vector<HubFile> files;  // parts of a split file in order
    std::string path;            // what to open: the first GGUF file; empty: the folder
    std::string choice;          // that names this model and no other one of the repository: "Q4_K_M"
    std::int64_t bytes() const;
};

// All models of a repository, GGUF files first, by name. A split file that lacks parts is left out, and named in
// `incomplete` if that is given. For safetensors with an index, `files` are those besides the shards: add_shards().
std::vector<ModelFiles> models_in(const std::vector<HubFile>& files, std::vector<std::string>* incomplete = nullptr);

// The model that `choice` names, or the preferred one if it is empty. `where` is named in errors.
ModelFiles choose(const std::vector<HubFile>& files, const std::string& choice, const std::string& where);

inline constexpr std::string_view kIndexName = "model.safetensors.index.json";
// The index of a folder of safetensors, which names its shards; null if it has none.
const HubFile* index_of(const ModelFiles& model);
// Adds the shards that `index` (JSON) names, in alphabetical order.
void add_shards(ModelFiles& model, const std::vector<HubFile>& files, std::string_view index, const std::string& where);

// The quantisation in the name of a GGUF file, in upper case: "Q4_K_M", "UD-Q4_K_XL", "BF16"; empty if it has none.
std::string quant_of(std::string_view path);

}  // namespace foresay::hub
