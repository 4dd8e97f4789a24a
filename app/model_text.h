// app/model_text.h: the tokenizer of a model, wherever the model keeps it.
#pragma once

#include <filesystem>
#include <optional>

#include "core/models/model_source.h"
#include "core/text/tokenizer.h"

namespace foresay::app {

// The tokenizer that belongs to an open model; nothing when it has none.
std::optional<core::Tokenizer> find_tokenizer(const core::ModelSource& source, const std::filesystem::path& path);

// The tokenizer of the model at `path`, or of a tokenizer.json. Opens no weights where it can be avoided, so that a
// file with a vocabulary alone will do. Errors: Error when there is none.
core::Tokenizer read_tokenizer(const std::filesystem::path& path);

}  // namespace foresay::app
