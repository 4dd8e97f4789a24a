// speculative/vocabulary.h: a tokenizer as the samplers see it.
#pragma once

#include <memory>

#include "core/text/tokenizer.h"
#include "samplers/stage.h"

namespace foresay::speculative {

// The ids of `tokenizer`; copies share its tables.
std::unique_ptr<samplers::Vocabulary> make_vocabulary(const core::Tokenizer& tokenizer);
// `size` ids without text, for models that have no tokenizer.
std::unique_ptr<samplers::Vocabulary> make_bare_vocabulary(std::int32_t size);

}  // namespace foresay::speculative
