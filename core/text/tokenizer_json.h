// core/text/tokenizer_json.h: reads tokenizer.json of the Hugging Face tokenizers library into plain data.
//
// Understood: model BPE; pre-tokenizers ByteLevel, Split (expression or string, isolated), Digits and Punctuation,
// alone or in a sequence that ends with ByteLevel; post-processors ByteLevel and TemplateProcessing; added tokens. A
// normalizer may only be a Unicode composition (NFC), which is not applied.
// Threads:  a pure function.
// Cost:     vocabulary and merges are read as they come, without a tree; nesting and the size of everything else are
//           limited.
// Errors:   the text is untrusted: whatever is not understood throws Error naming `path` and the part.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/text/tokenizer_data.h"

namespace foresay::core {

inline constexpr std::size_t kMaxTokenizerJsonBytes = std::size_t{256} << 20;
inline constexpr std::size_t kMaxTokenizerJsonDepth = 64;
inline constexpr std::size_t kMaxTokenizerJsonValues = 1 << 20;  // beside vocabulary and merges

TokenizerData parse_tokenizer_json(std::string_view json, std::string path);

}  // namespace foresay::core
