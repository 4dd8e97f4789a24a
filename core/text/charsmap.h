// core/text/charsmap.h: SentencePiece's precompiled character map: which prefix of a text becomes what.
//
// Layout:   u32 size of the trie in bytes; the trie, a Darts double array of u32 units; then the replacements, each
//           ended by a zero byte.
//           All little-endian.
// Threads:  immutable; any thread may search.
// Cost:     a search looks at no more than kMaxCharsmapKey bytes.
// Errors:   the constructor throws Error for a map that is cut off; a search for a replacement that is too long. The
//           map is untrusted:
//           no unit may lead a search out of it.
// Source:   the format of SentencePiece's normalizer and of darts-clone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace foresay::core {

inline constexpr std::size_t kMaxCharsmapKey = 128;
inline constexpr std::size_t kMaxCharsmapReplacement = 1024;

class Charsmap {
public:
    // An empty map changes nothing. `source` is the file, for errors.
    explicit Charsmap(std::string_view map, std::string source);

    struct Hit {
        std::size_t length = 0;  // of the prefix, in bytes; 0: none
        std::string_view replacement;
    };
    Hit longest(std::string_view text) const { return search(text, true); }
    Hit shortest(std::string_view text) const { return search(text, false); }

private:
    Hit search(std::string_view text, bool longest) const;

    std::string source_;
    std::vector<std::uint32_t> units_;
    std::string replacements_;
};

}  // namespace foresay::core
