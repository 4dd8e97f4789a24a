// Any bytes as a tekken.json: it loads or throws Error, and what loads encodes and decodes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "core/text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
    using foresay::core::Tokenizer;
    try {
        const Tokenizer loaded = Tokenizer::from_tekken({reinterpret_cast<const char*>(bytes), size}, "fuzz.json");
        const auto ids = loaded.encode("I'm  12345 \xC3\xA9\xFF <s>\n\n \xEF\xAC\x81 \xE2\x96\x81");
        for (const std::int32_t id : ids)
            if (id < 0 || id >= loaded.vocab_size()) std::abort();
        if (loaded.whole_text(ids, true).size() > (std::size_t{1} << 24)) std::abort();
    } catch (const foresay::Error&) {
    }
    return 0;
}
