// Any bytes as a tokenizer.json, and any bytes as text for a small tokenizer.
//
// The first byte chooses: even, the rest is a tokenizer.json, which must load or throw Error; odd, the rest is text,
// whose tokens must decode to the same bytes and stream as whole characters.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "core/text/byte_alphabet.h"
#include "core/text/stop_strings.h"
#include "core/text/stream_decoder.h"
#include "core/text/tokenizer.h"
#include "core/text/utf8.h"

namespace {

using namespace foresay::core;

const Tokenizer& tokenizer(bool second) {
    const auto make = [](const char* pre) {
        TokenizerData data;
        data.source = "fuzz";
        const auto add = [&data](std::string_view bytes) {
            std::string spelled;
            append_spelling(bytes, spelled);
            data.tokens.push_back(data.keep(spelled));
        };
        for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
        for (const auto& [left, right] : {std::pair{"a", "a"}, {"aa", "a"}, {"a", "b"}, {"\xC3", "\xA9"}, {" ", " "}}) {
            std::string a, b;
            append_spelling(left, a);
            append_spelling(right, b);
            data.merges.push_back({data.keep(a), data.keep(b)});
            add(std::string(left) + right);
        }
        data.types.assign(data.tokens.size(), TokenType::normal);
        data.tokens.insert(data.tokens.end(), {"<|a|>", "<|a|><|b|>", "  x"});
        data.types.insert(data.types.end(), {TokenType::control, TokenType::control, TokenType::user_defined});
        const NamedPretokenizer named = named_pretokenizer(pre, "fuzz");
        data.pretokenizer = named.pretokenizer;
        return Tokenizer(data);
    };
    static const Tokenizer first = make("gpt-4o"), other = make("deepseek-llm");
    return second ? other : first;
}

void must(bool condition) {
    if (!condition) std::abort();
}

void try_text(std::string_view text) {
    const Tokenizer& chosen = tokenizer(text.size() % 2 == 1);
    for (const bool parse : {false, true}) {
        const auto ids = chosen.encode(text, {.add_special = false, .parse_special = parse});
        must(chosen.decode(ids, true) == text);
        StreamDecoder decoder(chosen, true);
        StopStrings stops({"never in the text \x01\x02\x03", "aab"});
        std::string shown, passed;
        for (const std::int32_t id : ids) {
            const std::string_view out = decoder.push(id);
            must(is_valid_utf8(out));
            shown.append(out);
            passed.append(stops.push(out));
        }
        const std::string_view rest = decoder.flush();
        shown.append(rest);
        passed.append(stops.push(rest)).append(stops.flush());
        must(shown == to_valid_utf8(text));
        must(shown.compare(0, passed.size(), passed) == 0);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
    if (size == 0) return 0;
    const std::string_view rest(reinterpret_cast<const char*>(bytes) + 1, size - 1);
    if (bytes[0] % 2 == 1) {
        try_text(rest);
        return 0;
    }
    try {
        const Tokenizer loaded = Tokenizer::from_json(rest, "fuzz.json");
        const auto ids = loaded.encode("I'm  12345 \xC3\xA9\xFF <s>\n\n");
        for (const std::int32_t id : ids) must(id >= 0 && id < loaded.vocab_size());
    } catch (const foresay::Error&) {
    }
    return 0;
}
