// Whatever the lines of a saved session hold, reading them yields changes that the tree takes or refuses, and what it
// took is read back as it was written. Checksums are left out, because the fuzzer would not get past them.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "app/journal/record.h"
#include "base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace foresay::app;
    std::string_view text(reinterpret_cast<const char*>(data), size);
    TurnTree tree;
    while (!text.empty()) {
        const std::size_t end = text.find('\n');
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(end == text.npos ? text.size() : end + 1);
        if (whole_line(line).size() > line.size()) __builtin_trap();
        try {
            const SessionRecord record = parse_record(line);
            const std::string written = record_line(record);
            const std::string_view body = whole_line(std::string_view(written).substr(0, written.size() - 1));
            if (body.empty() || record_line(parse_record(body)) != written) __builtin_trap();
            if (const auto* change = std::get_if<TurnTree::Change>(&record)) tree.apply(*change);
        } catch (const foresay::Error&) {
        }
    }
    TurnTree again;
    for (TurnTree::Change& change : tree.snapshot()) again.apply(std::move(change));
    if (again.state() != tree.state() || again.nodes().size() != tree.nodes().size()) __builtin_trap();
    tree.document(tree.head());
    return 0;
}
