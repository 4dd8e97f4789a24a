// Whatever a grammar holds, compiling it ends with a grammar or one Error; and whatever text follows, its states
// neither throw nor disagree: a token is allowed by the mask exactly if it is accepted.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "grammar/grammar.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace foresay::grammar;
    // The first byte is the language and the options; the grammar; after a NUL a text.
    static const auto vocabulary = std::make_shared<const Vocabulary>(260, [](std::int32_t id) {
        if (id < 256) return TokenText{TokenText::Kind::text, std::string(1, static_cast<char>(id))};
        if (id < 259) return TokenText{TokenText::Kind::text, id == 256 ? "\":" : id == 257 ? "aaaa" : "\", \""};
        return TokenText{TokenText::Kind::end, ""};
    });
    if (size == 0) return 0;
    const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
    const std::size_t end = input.find('\0');
    Options options;
    options.whitespace = (data[0] & 8) != 0 ? Whitespace::compact : Whitespace::free;
    if ((data[0] & 16) != 0) options.trigger = "<t>";
    if ((data[0] & 32) != 0) options.after = After::free;
    if ((data[0] & 64) != 0) options.most_work = 100'000;
    const int language = data[0] % 8;
    try {
        const auto grammar = Grammar::compile(
            vocabulary,
            {static_cast<Language>(language < 6 ? language : language - 5), std::string(input.substr(0, end))},
            options);
        State state = Grammar::begin(grammar);
        std::vector<std::uint32_t> words(vocabulary->words());
        const std::string_view text = end == input.npos ? std::string_view() : input.substr(end + 1);
        for (std::size_t i = 0; i < text.size() && i < 200; ++i) {
            state.mask(words);
            const auto id = static_cast<std::uint8_t>(text[i]);
            const bool allowed = (words[id / 32] >> (id % 32) & 1) != 0;
            const std::string forced = state.forced();
            const bool accepted = state.accept(std::int32_t{id});
            if (accepted != allowed) foresay::bug("a mask and accept() disagree");
            if (!forced.empty() && accepted && forced[0] != text[i]) foresay::bug("a forced byte was not forced");
            if (!accepted && !forced.empty()) {
                if (!state.accept(forced) && state.failure().empty()) foresay::bug("forced bytes are refused");
            }
            if (!state.failure().empty()) break;
        }
    } catch (const foresay::Error&) {
    }
    return 0;
}
