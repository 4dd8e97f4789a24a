// tekken.json of Mistral's models.
//
// Layout:   {"config": {"pattern", "default_vocab_size", "default_num_special_tokens", ...},
//           "vocab": [{"rank", "token_bytes": base64, "token_str"}], "special_tokens": [{"rank", "token_str", ...}]}.
//           The special tokens come first: the id of a vocabulary entry is its rank plus their number. Only as many
//           ranks count as default_vocab_size leaves room for.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "core/text/base64.h"
#include "core/text/rank_vocabulary.h"
#include "core/text/tokenizer_json.h"
#include "core/text/tokenizer_ranks.h"
#include "core/text/utf8.h"

namespace foresay::core {
namespace {

// Versions before v7 do not list their special tokens.
constexpr std::string_view kOldSpecial[] = {"<unk>",
                                            "<s>",
                                            "</s>",
                                            "[INST]",
                                            "[/INST]",
                                            "[AVAILABLE_TOOLS]",
                                            "[/AVAILABLE_TOOLS]",
                                            "[TOOL_RESULTS]",
                                            "[/TOOL_RESULTS]",
                                            "[TOOL_CALLS]",
                                            "[IMG]",
                                            "<pad>",
                                            "[IMG_BREAK]",
                                            "[IMG_END]",
                                            "[PREFIX]",
                                            "[MIDDLE]",
                                            "[SUFFIX]",
                                            "[SYSTEM_PROMPT]",
                                            "[/SYSTEM_PROMPT]",
                                            "[TOOL_CONTENT]"};

// Reads the lists as a stream; nothing but the current entry is kept.
class TekkenSax : public nlohmann::json_sax<nlohmann::json> {
public:
    explicit TekkenSax(std::string path) : path_(std::move(path)) {}

    struct Entry {
        std::int64_t rank = -1;
        std::string text;
        bool has_text = false;
    };
    std::vector<Entry> vocabulary, special;
    std::string pattern;
    std::int64_t vocab_size = -1, special_count = -1;

    [[noreturn]] void refuse(const std::string& what) const {
        throw Error(path_ + ": " + what + "; get the model's tekken.json again");
    }

    bool null() override { return any(); }
    bool boolean(bool) override { return any(); }
    bool number_float(number_float_t, const string_t&) override { return any(); }
    bool binary(binary_t&) override { return false; }
    bool number_integer(number_integer_t) override { return any(); }
    bool number_unsigned(number_unsigned_t v) override {
        const auto number = static_cast<std::int64_t>(std::min<number_unsigned_t>(v, 1u << 30));
        if (list() != nullptr && depth_ == 3 && key_ == "rank") entry_.rank = number;
        if (in_config() && key_ == "default_vocab_size") vocab_size = number;
        if (in_config() && key_ == "default_num_special_tokens") special_count = number;
        return any();
    }
    bool string(string_t& v) override {
        if (in_config() && key_ == "pattern") pattern = std::move(v);
        const bool wanted = outer_ == "vocab" ? key_ == "token_bytes" : key_ == "token_str";
        if (list() != nullptr && depth_ == 3 && wanted) {
            entry_.text = std::move(v);
            entry_.has_text = true;
        }
        return any();
    }
    bool start_object(std::size_t) override { return open(); }
    bool start_array(std::size_t) override { return open(); }
    bool key(string_t& v) override {
        if (depth_ == 1) {
            if (v == "vocab" && !vocabulary.empty()) refuse("member 'vocab' occurs twice");
            outer_ = v;
        }
        key_ = std::move(v);
        return true;
    }
    bool end_array() override {
        --depth_;
        return true;
    }
    bool end_object() override {
        if (list() != nullptr && depth_ == 3) {
            if (list()->size() >= static_cast<std::size_t>(kMaxVocabulary)) refuse("'" + outer_ + "' is too long");
            list()->push_back(std::exchange(entry_, {}));
        }
        --depth_;
        return true;
    }
    bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
        refuse("it is not valid JSON at byte " + std::to_string(position));
    }

private:
    bool in_config() const { return depth_ == 2 && outer_ == "config"; }
    std::vector<Entry>* list() {
        return outer_ == "vocab" ? &vocabulary : outer_ == "special_tokens" ? &special : nullptr;
    }
    bool any() {
        if (depth_ == 0) refuse("it is not a JSON object");
        if (list() != nullptr && depth_ < 3 && outer_ != "special_tokens") refuse("'" + outer_ + "' is not a list");
        return true;
    }
    bool open() {
        if (++depth_ > static_cast<int>(kMaxTokenizerJsonDepth)) refuse("it nests too deeply");
        return true;
    }

    std::string path_;
    int depth_ = 0;
    std::string outer_, key_;
    Entry entry_;
};

void add_special(const TekkenSax& sax, std::int32_t count, RankVocabulary& vocabulary) {
    std::vector<std::string> names(static_cast<std::size_t>(count));
    if (sax.special.empty()) {
        for (std::size_t i = 0; i < std::min(names.size(), std::size(kOldSpecial)); ++i) names[i] = kOldSpecial[i];
    }
    for (const TekkenSax::Entry& entry : sax.special) {
        if (!entry.has_text || entry.rank < 0) sax.refuse("an entry of 'special_tokens' has no rank or no text");
        if (entry.rank >= count)
            sax.refuse("special token " + to_valid_utf8(entry.text.substr(0, 64)) + " has rank " +
                       std::to_string(entry.rank) + " of " + std::to_string(count));
        names[static_cast<std::size_t>(entry.rank)] = entry.text;
    }
    for (std::int32_t id = 0; id < count; ++id) {
        std::string& name = names[static_cast<std::size_t>(id)];
        vocabulary.add_special(id, name.empty() ? "<SPECIAL_" + std::to_string(id) + ">" : name);
    }
}

}  // namespace

TokenizerData parse_tekken(std::string_view json, std::string path) {
    TekkenSax sax(path);
    if (json.size() > kMaxTokenizerJsonBytes) sax.refuse("it is larger than 256 MiB");
    if (!nlohmann::json::sax_parse(json.begin(), json.end(), &sax)) sax.refuse("it is not valid JSON");
    if (sax.pattern.empty()) sax.refuse("its config has no pattern");
    if (sax.vocabulary.empty()) sax.refuse("it has no vocab");
    const std::int64_t specials = sax.special_count;
    if (specials < 0 || specials > (1 << 16)) sax.refuse("config.default_num_special_tokens is missing or too large");
    const std::int64_t ranks = sax.vocab_size - specials;
    if (sax.vocab_size < 0 || ranks <= 0 || ranks > kMaxVocabulary)
        sax.refuse("config.default_vocab_size is missing, too small or too large");
    RankVocabulary vocabulary(std::move(path), "tekken.json");
    add_special(sax, static_cast<std::int32_t>(specials), vocabulary);
    for (const TekkenSax::Entry& entry : sax.vocabulary) {
        if (entry.rank < 0 || !entry.has_text) sax.refuse("an entry of 'vocab' has no rank or no token_bytes");
        if (entry.rank >= ranks) continue;
        const std::optional<std::string> bytes = from_base64(entry.text);
        if (!bytes) sax.refuse("token_bytes of rank " + std::to_string(entry.rank) + " is not base64");
        vocabulary.add(*bytes, static_cast<std::int32_t>(entry.rank), static_cast<std::int32_t>(entry.rank + specials));
    }
    Pretokenizer pretokenizer;
    pretokenizer.name = "tekken";
    pretokenizer.steps = {split_step(sax.pattern)};
    pretokenizer.steps[0].anchors = RegexAnchors::text;
    TokenizerData data = vocabulary.finish(std::move(pretokenizer));
    const auto find = [&](std::string_view text) {
        const auto end = data.tokens.begin() + static_cast<std::ptrdiff_t>(specials);
        const auto at = std::find(data.tokens.begin(), end, text);
        return at == end ? -1 : static_cast<std::int32_t>(at - data.tokens.begin());
    };
    data.special.bos = find("<s>");
    data.special.eos = find("</s>");
    data.special.unknown = find("<unk>");
    data.special.pad = find("<pad>");
    if (data.special.bos >= 0) data.prefix = {data.special.bos};
    return data;
}

}  // namespace foresay::core
