// tests/text/support.h: small tokenizers made by hand, and the bundled ones.
#pragma once

#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "core/text/byte_alphabet.h"
#include "core/text/tokenizer.h"
#include "core/weights/gguf.h"

namespace foresay::core {

inline std::string source_path(const std::string& relative) { return std::string(FORESAY_SOURCE_DIR "/") + relative; }

inline std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw Error(path + ": cannot be read");
    return {std::istreambuf_iterator<char>(file), {}};
}

inline Tokenizer bundled() {
    return Tokenizer::from_gguf(GgufFile::open(source_path("models/python-coder/target-q4_k_m.gguf")));
}

// All 256 bytes as tokens 0..255, then the products of `merges` in order.
inline TokenizerData small_data(const std::vector<std::pair<std::string, std::string>>& merges = {}) {
    TokenizerData data;
    data.source = "small";
    const auto spell = [](std::string_view bytes) {
        std::string out;
        append_spelling(bytes, out);
        return out;
    };
    for (int byte = 0; byte < 256; ++byte)
        data.tokens.push_back(data.keep(spell(std::string(1, static_cast<char>(byte)))));
    for (const auto& [left, right] : merges) {
        data.tokens.push_back(data.keep(spell(left + right)));
        data.merges.push_back({data.keep(spell(left)), data.keep(spell(right))});
    }
    data.types.assign(data.tokens.size(), TokenType::normal);
    return data;
}

inline std::int32_t add_token(TokenizerData& data, std::string text, TokenType type) {
    data.tokens.push_back(data.keep(std::move(text)));
    data.types.push_back(type);
    return static_cast<std::int32_t>(data.tokens.size()) - 1;
}

// The message of the Error that `body` throws; empty when it throws none.
template <class Body>
std::string error_of(Body body) {
    try {
        body();
    } catch (const Error& e) {
        return e.what();
    }
    return {};
}

inline constexpr EncodeOptions kPlain{.add_special = false, .parse_special = false};
inline constexpr EncodeOptions kParse{.add_special = false, .parse_special = true};

}  // namespace foresay::core
