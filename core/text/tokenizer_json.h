// core/text/tokenizer_json.h: reads tokenizer.json of the Hugging Face tokenizers library into plain data.
//
// Supported: model BPE; pre-tokenizers ByteLevel, Split (expression or string, isolated), Digits and Punctuation,
// alone or in a sequence that ends with ByteLevel; post-processors ByteLevel and TemplateProcessing; added tokens. The
// only normalizer is NFC, which is accepted and not applied.
// Threads:  a pure function.
// Cost:     vocabulary and merges are read as a stream, without a tree. Nesting, and the size of everything else, are
//           limited.
// Errors:   the text is untrusted: anything unsupported throws Error naming `path` and the part.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/text/tokenizer_data.h"

namespace foresay::core {

inline constexpr std::size_t kMaxTokenizerJsonBytes = std::size_t{256} << 20;
inline constexpr std::size_t kMaxTokenizerJsonDepth = 64;
inline constexpr std::size_t kMaxTokenizerJsonValues = 1 << 20;  // besides vocabulary and merges

TokenizerData parse_tokenizer_json(std::string_view json, std::string path);

}  // namespace foresay::core
