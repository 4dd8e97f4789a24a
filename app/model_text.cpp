#include "app/model_text.h"

#include <system_error>

#include "base/error.h"
#include "core/weights/gguf.h"
#include "core/weights/model_file.h"

namespace foresay::app {

namespace fs = std::filesystem;

std::optional<core::Tokenizer> find_tokenizer(const core::ModelSource& source, const fs::path& path) {
    if (const core::GgufFile* gguf = source.gguf()) {
        if (!core::Tokenizer::has_tokenizer(*gguf)) return std::nullopt;
        return core::Tokenizer::from_gguf(*gguf);
    }
    std::error_code ignored;
    const fs::path folder = fs::is_directory(path, ignored) ? path : path.parent_path();
    if (!fs::exists(folder / "tokenizer.json", ignored)) return std::nullopt;
    return core::Tokenizer::from_directory(folder);
}

core::Tokenizer read_tokenizer(const fs::path& path) {
    std::error_code ignored;
    if (fs::is_directory(path, ignored)) return core::Tokenizer::from_directory(path);
    if (path.extension() == ".json") return core::Tokenizer::from_json(path);
    if (core::detect_model_format(path) == core::ModelFormat::gguf) {
        const core::GgufFile file = core::GgufFile::open(path);
        return core::Tokenizer::from_gguf(file);
    }
    return core::Tokenizer::from_directory(path.parent_path());
}

}  // namespace foresay::app
