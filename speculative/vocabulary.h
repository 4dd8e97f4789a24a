// speculative/vocabulary.h: a tokenizer as the samplers see it.
#pragma once

#include <memory>
#include <string>

#include "core/text/tokenizer.h"
#include "samplers/stage.h"

namespace foresay::speculative {

// The ids of `tokenizer`; copies share its tables. `model` is the name that plugins are told.
std::unique_ptr<samplers::Vocabulary> make_vocabulary(const core::Tokenizer& tokenizer, std::string model = {});
// `size` ids without text, for models that have no tokenizer.
std::unique_ptr<samplers::Vocabulary> make_bare_vocabulary(std::int32_t size);

}  // namespace foresay::speculative
