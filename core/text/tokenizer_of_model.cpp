// Finds the tokenizer of a model: in its GGUF file, or beside its safetensors.
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "core/models/model_source.h"
#include "core/text/tokenizer.h"
#include "core/weights/gguf.h"
#include "core/weights/model_file.h"

namespace foresay::core {

namespace fs = std::filesystem;

std::optional<Tokenizer> Tokenizer::of_optional(const ModelSource& model) {
    if (const GgufFile* gguf = model.gguf()) {
        if (!has_tokenizer(*gguf)) return std::nullopt;
        return from_gguf(*gguf);
    }
    const fs::path folder = model.folder();
    if (folder.empty() || !has_tokenizer(folder)) return std::nullopt;
    return from_directory(folder);
}

Tokenizer Tokenizer::of(const ModelSource& model) {
    std::optional<Tokenizer> tokenizer = of_optional(model);
    if (!tokenizer) {
        const fs::path folder = model.folder();
        throw Error(model.path() + " has no tokenizer" +
                    (folder.empty() ? "" : "; put its tokenizer.json into " + folder.string()));
    }
    return *std::move(tokenizer);
}

Tokenizer Tokenizer::open(const fs::path& path) {
    std::error_code ignored;
    if (fs::is_directory(path, ignored)) return from_directory(path);
    for (const char* extension : {".json", ".model", ".tiktoken"})
        if (path.extension() == extension) return from_file(path);
    if (detect_model_format(path) == ModelFormat::gguf) return from_gguf(GgufFile::open(path));
    return from_directory(path.parent_path());
}

}  // namespace foresay::core
