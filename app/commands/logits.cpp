// foresay logits: raw logits of given tokens, for comparisons with other implementations and between widths.
#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "app/commands/commands.h"
#include "app/files.h"
#include "app/json.h"
#include "app/output.h"
#include "app/session.h"
#include "base/error.h"

namespace foresay::app {

namespace {

// Most logit rows of one forward as input rows: a vocabulary of 128k takes half a MiB for each.
constexpr std::int32_t kLogitRows = 64;

void append(std::string& out, float value, bool hex) {
    std::array<char, 32> digits{};
    if (hex) {
        std::snprintf(digits.data(), digits.size(), "\"%08x\"", std::bit_cast<std::uint32_t>(value));
        out += digits.data();
        return;
    }
    if (!(value - value == 0.0f)) {  // JSON has no infinity
        out += "null";
        return;
    }
    // The shortest text that reads back as the same float32.
    const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
    out.append(digits.data(), error == std::errc() ? end : digits.data());
}

std::string row_text(std::span<const float> row, bool hex) {
    std::string out = "[";
    out.reserve(row.size() * 12);
    for (const float value : row) {
        if (out.size() > 1) out += ", ";
        append(out, value, hex);
    }
    return out + "]";
}

// Feeds all tokens, `width` at a time, and keeps the rows that are asked for.
std::map<std::int32_t, std::string> evaluate(core::Context& context, const TokensFile& file, std::int32_t width,
                                             kernels::RowClass row_class, bool hex) {
    std::vector<bool> wanted(file.tokens.size());
    for (const std::int32_t position : file.positions) wanted[static_cast<std::size_t>(position)] = true;
    std::map<std::int32_t, std::string> rows;
    const auto count = static_cast<std::int32_t>(file.tokens.size());
    for (std::int32_t start = 0; start < count; start += width) {
        const std::int32_t end = std::min(start + width, count);
        std::vector<kernels::TokenRef> tokens;
        std::vector<std::int32_t> logit_rows;
        for (std::int32_t i = start; i < end; ++i) {
            tokens.push_back(kernels::TokenRef::id(file.tokens[static_cast<std::size_t>(i)]));
            if (wanted[static_cast<std::size_t>(i)]) logit_rows.push_back(i - start);
        }
        if (!context.evaluate(row_class, tokens, logit_rows)) {
            throw Error("the tokens do not fit the context of " + std::to_string(context.capacity()) + " positions");
        }
        for (std::size_t i = 0; i < logit_rows.size(); ++i) {
            rows[start + logit_rows[i]] = row_text(context.logits(static_cast<std::int32_t>(i)), hex);
        }
    }
    return rows;
}

}  // namespace

int run_logits(const Options& options) {
    SessionNeeds needs;
    needs.draft = false;
    needs.tokenizer = false;
    needs.decode_rows = kLogitRows;
    const std::string text = read_file(options.tokens_file, "the tokens");
    Session session(options, needs);
    const TokensFile file = parse_tokens_file(text, options.tokens_file, session.target().config().shape.vocab);
    const auto context = session.make_context();
    const bool decode = options.width > 0;
    const std::int32_t width = decode ? options.width : std::min(kLogitRows, context->max_rows());
    const auto rows =
        evaluate(*context, file, width, decode ? kernels::RowClass::decode : kernels::RowClass::input, options.hex);
    const std::string inflated = session.inflated();  // names of shapes and encodings, which need no escapes
    print(inflated.empty() ? "{" : "{\"inflated\": \"" + inflated + "\",\n");
    print("\"logits\": [");
    bool first = true;
    for (const std::int32_t position : file.positions) {
        print((first ? "" : ",\n") + rows.at(position));
        first = false;
    }
    print("]}\n");
    return 0;
}

}  // namespace foresay::app
