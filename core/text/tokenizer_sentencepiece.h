// core/text/tokenizer_sentencepiece.h: reads a SentencePiece model (tokenizer.model) into plain data.
//
// Supported: BPE and Unigram, with or without byte fallback, character map and dummy prefix.
// Threads:  a pure function.
// Errors:   the bytes are untrusted: anything malformed or unsupported throws Error naming `path`.
// Source:   sentencepiece_model.proto of SentencePiece.
#pragma once

#include <string>
#include <string_view>

#include "core/text/tokenizer_data.h"

namespace foresay::core {

TokenizerData parse_sentencepiece(std::string_view model, std::string path);

}  // namespace foresay::core
