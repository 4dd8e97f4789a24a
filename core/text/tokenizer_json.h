// core/text/tokenizer_json.h: reads tokenizer.json of the Hugging Face tokenizers library into plain data.
//
// Supported: models BPE, with or without byte fallback, and Unigram; normalizers NFC, NFD, NFKC, NFKD, Prepend,
//           Replace, Strip and Precompiled; pre-tokenizers ByteLevel (last), Metaspace, Split, Digits, Punctuation,
//           Whitespace, WhitespaceSplit and CharDelimiterSplit; post-processors ByteLevel and TemplateProcessing;
//           decoders ByteLevel, Replace, ByteFallback, Fuse, Strip and Metaspace; sequences of all of them; added
//           tokens.
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
