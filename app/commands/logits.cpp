// foresay logits: prints the raw logits of given tokens, to compare implementations, or batch widths.
#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "app/command_line/command.h"
#include "app/command_line/parser.h"
#include "app/files.h"
#include "app/json.h"
#include "app/opened_engine.h"
#include "app/options.h"
#include "app/output.h"
#include "base/error.h"

namespace foresay::app {

namespace {

// Logit rows of one forward, at most: with a vocabulary of 128k, each takes half a MiB.
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

// Evaluates all tokens, `width` at a time, and keeps the logit rows of the wanted positions.
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

class Logits : public Command {
public:
    void declare(OptionParser& parser) override {
        add_common_options(parser, options_);
        parser.over_hosts(options_);
        add_inflation_options(parser, options_);
        parser.option("--tokens", tokens_file_,
                      {.value = "FILE",
                       .doc = "JSON file: {\"tokens\": [...], \"positions\": [...]}",
                       .hint = ValueHint::file,
                       .required = true});
        parser.option("--width", width_,
                      {.value = "N",
                       .doc = "evaluate N tokens at a time, as decode rows [default: as prefill rows]",
                       .least = 1,
                       .most = kLogitRows});
        parser.flag("--hex", hex_, "print the bits of each number in hexadecimal");
        parser.after_parsing([this] {
            if (options_.model.empty() && options_.shape.empty()) throw UsageError("name the model with --model PATH");
        });
    }

    int run() override {
        EngineNeeds needs;
        needs.draft = false;
        needs.tokenizer = false;
        needs.decode_rows = kLogitRows;
        const std::string text = read_file(tokens_file_, "the tokens");
        OpenedEngine engine(options_, needs);
        const TokensFile file = parse_tokens_file(text, tokens_file_, engine.target().config().shape.vocab);
        const auto context = engine.make_context();
        const bool decode = width_ > 0;
        const std::int32_t width = decode ? width_ : std::min(kLogitRows, context->max_rows());
        const auto rows =
            evaluate(*context, file, width, decode ? kernels::RowClass::decode : kernels::RowClass::prefill, hex_);
        const std::string inflated = engine.inflated();  // names of shapes and types, which need no escapes
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

private:
    Options options_;
    std::string tokens_file_;
    int width_ = 0;  // 0: as prefill rows
    bool hex_ = false;
};

const RegisterCommand<Logits> kLogits("logits", "print raw logits, to compare implementations", CommandGroup::measure);

}  // namespace

}  // namespace foresay::app
