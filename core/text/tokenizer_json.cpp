#include "core/text/tokenizer_json.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "core/text/tokenizer_json_sax.h"

namespace foresay::core {
namespace {

using nlohmann::json;

class Reader {
public:
    Reader(std::string_view text, std::string path) : sax_(data_) {
        data_.source = std::move(path);
        if (text.size() > kMaxTokenizerJsonBytes) refuse("it is larger than 256 MiB");
        if (!json::sax_parse(text.begin(), text.end(), &sax_)) refuse("it is not valid JSON");
        if (!sax_.rest.is_object()) refuse("it is not a JSON object");
    }

    TokenizerData read() {
        const json& model = object(sax_.rest, "model", "the document");
        read_model(model);
        read_vocabulary();
        read_added_tokens();
        const std::string unknown = string_or(model, "unk_token", "");
        if (!unknown.empty()) data_.special.unknown = id_of(unknown, "model.unk_token");
        check_normalizer(member(sax_.rest, "normalizer"));
        data_.pretokenizer.name = "tokenizer.json";
        const json& pre = member(sax_.rest, "pre_tokenizer");
        if (pre.is_null()) refuse("it has no pre-tokenizer, so it is not byte-level");
        read_pretokenizer(pre);
        if (!byte_level_) refuse("its pre-tokenizer is not byte-level");
        read_post_processor(member(sax_.rest, "post_processor"));
        const json& decoder = member(sax_.rest, "decoder");
        if (!decoder.is_null() && type_of(decoder, "decoder") != "ByteLevel") refuse("its decoder is not ByteLevel");
        return std::move(data_);
    }

private:
    [[noreturn]] void refuse(const std::string& what) const {
        throw Error(data_.source + ": " + what + "; a byte-level BPE tokenizer.json is needed");
    }

    // ---- typed access; `where` is named in errors
    static const json& member(const json& parent, const char* name) {
        static const json none;
        const auto at = parent.find(name);
        return at == parent.end() ? none : *at;
    }
    const json& object(const json& parent, const char* name, const std::string& where) const {
        const json& child = member(parent, name);
        if (!child.is_object()) refuse(where + " has no object '" + name + "'");
        return child;
    }
    const json& array(const json& parent, const char* name, const std::string& where) const {
        const json& child = member(parent, name);
        if (!child.is_array()) refuse(where + " has no list '" + name + "'");
        return child;
    }
    std::string string_or(const json& parent, const char* name, const char* fallback) const {
        const json& child = member(parent, name);
        if (child.is_null()) return fallback;
        if (!child.is_string()) refuse(std::string("'") + name + "' is not a string");
        return child.get<std::string>();
    }
    bool flag_or(const json& parent, const char* name, bool fallback) const {
        const json& child = member(parent, name);
        if (child.is_null()) return fallback;
        if (!child.is_boolean()) refuse(std::string("'") + name + "' is not true or false");
        return child.get<bool>();
    }
    std::int32_t id(const json& value, const std::string& where) const {
        if (!value.is_number_unsigned() || value.get<std::uint64_t>() >= static_cast<std::uint64_t>(kMaxVocabulary))
            refuse(where + " is not a token id");
        return value.get<std::int32_t>();
    }
    std::string type_of(const json& part, const std::string& where) const {
        if (!part.is_object() || !member(part, "type").is_string()) refuse(where + " has no type");
        return part["type"].get<std::string>();
    }
    std::int32_t id_of(std::string_view text, const std::string& where) const {
        const auto at = std::find(data_.tokens.begin(), data_.tokens.end(), text);
        if (at == data_.tokens.end()) refuse(where + " names a token that is not in the vocabulary");
        return static_cast<std::int32_t>(at - data_.tokens.begin());
    }

    void read_model(const json& model) {
        // Old versions of the library omit the type.
        const std::string type = string_or(model, "type", "BPE");
        if (type != "BPE") refuse("its model is '" + type.substr(0, 64) + "'");
        if (flag_or(model, "byte_fallback", false)) refuse("its model falls back to bytes as SentencePiece does");
        if (!string_or(model, "continuing_subword_prefix", "").empty()) refuse("its model marks inner subwords");
        if (!string_or(model, "end_of_word_suffix", "").empty()) refuse("its model marks ends of words");
        const json& dropout = member(model, "dropout");
        if (!dropout.is_null() && dropout != 0.0) refuse("its model drops merges at random");
        data_.ignore_merges = flag_or(model, "ignore_merges", false);
    }

    void read_vocabulary() {
        if (sax_.vocabulary.empty()) refuse("it has no model.vocab");
        std::int64_t last = 0;
        for (const auto& entry : sax_.vocabulary) last = std::max(last, entry.id);
        grow(last, sax_.vocabulary.size());
        for (const auto& entry : sax_.vocabulary) {
            std::string_view& token = data_.tokens[static_cast<std::size_t>(entry.id)];
            if (!token.empty()) refuse("two tokens of model.vocab have id " + std::to_string(entry.id));
            token = entry.text;
            data_.types[static_cast<std::size_t>(entry.id)] = TokenType::normal;
        }
    }

    // Makes room for ids up to `last`. Tolerates some holes, but not a table that is mostly holes.
    void grow(std::int64_t last, std::size_t entries) {
        if (last >= kMaxVocabulary || static_cast<std::size_t>(last) > entries * 2 + 4096)
            refuse("a token has id " + std::to_string(last) + " among " + std::to_string(entries) + " tokens");
        if (static_cast<std::size_t>(last) < data_.tokens.size()) return;
        data_.tokens.resize(static_cast<std::size_t>(last) + 1);
        data_.types.resize(static_cast<std::size_t>(last) + 1, TokenType::unused);
    }

    void read_added_tokens() {
        const json& added = member(sax_.rest, "added_tokens");
        if (added.is_null()) return;
        if (!added.is_array()) refuse("'added_tokens' is not a list");
        for (const json& token : added) {
            if (!token.is_object()) refuse("an added token is not an object");
            const std::int32_t at = id(member(token, "id"), "the id of an added token");
            const std::string content = string_or(token, "content", "");
            if (content.empty()) refuse("added token " + std::to_string(at) + " has no content");
            grow(at, sax_.vocabulary.size() + added.size());
            std::string_view& text = data_.tokens[static_cast<std::size_t>(at)];
            if (!text.empty() && text != content)
                refuse("added token " + std::to_string(at) + " is another token in model.vocab");
            if (text.empty()) text = data_.keep(content);
            data_.types[static_cast<std::size_t>(at)] =
                flag_or(token, "special", false) ? TokenType::control : TokenType::user_defined;
            const AddedTokenRule rule{at, flag_or(token, "lstrip", false), flag_or(token, "rstrip", false),
                                      flag_or(token, "single_word", false)};
            if (rule.left_strip || rule.right_strip || rule.single_word) data_.added_rules.push_back(rule);
        }
    }

    void check_normalizer(const json& normalizer) const {
        if (normalizer.is_null()) return;
        const std::string type = type_of(normalizer, "normalizer");
        if (type == "Sequence") {
            for (const json& part : array(normalizer, "normalizers", "the normalizer")) check_normalizer(part);
        } else if (type != "NFC") {
            refuse("its normalizer '" + type.substr(0, 64) + "' is not supported");
        }
    }

    void read_pretokenizer(const json& pre) {
        const std::string type = type_of(pre, "pre_tokenizer");
        if (byte_level_) refuse("its pre-tokenizer has steps after ByteLevel");
        if (type == "Sequence") {
            for (const json& part : array(pre, "pretokenizers", "the pre-tokenizer")) read_pretokenizer(part);
        } else if (type == "ByteLevel") {
            if (flag_or(pre, "add_prefix_space", true)) refuse("its pre-tokenizer adds a space before the text");
            if (flag_or(pre, "use_regex", true)) add_step(gpt2_regex());
            byte_level_ = true;
        } else if (type == "Split") {
            read_split(pre);
        } else if (type == "Digits") {
            add_step(flag_or(pre, "individual_digits", false) ? "\\p{N}" : "\\p{N}+");
        } else if (type == "Punctuation") {
            const std::string behavior = string_or(pre, "behavior", "Isolated");
            if (behavior != "Isolated" && behavior != "Contiguous")
                refuse("its pre-tokenizer treats punctuation as '" + behavior.substr(0, 64) + "'");
            const std::string one = R"re([\p{P}!-/:-@\[-`{-~])re";
            add_step(behavior == "Isolated" ? one : one + "+");
        } else {
            refuse("its pre-tokenizer '" + type.substr(0, 64) + "' is not supported");
        }
    }

    void read_split(const json& split) {
        const json& pattern = object(split, "pattern", "a split of the pre-tokenizer");
        const std::string behavior = string_or(split, "behavior", "Isolated");
        // Inverted removal keeps the matches only. That equals Isolated for expressions that leave nothing unmatched.
        if (behavior != "Isolated" && !(behavior == "Removed" && flag_or(split, "invert", false)))
            refuse("its pre-tokenizer splits as '" + behavior.substr(0, 64) + "'");
        const std::string regex = string_or(pattern, "Regex", "");
        const std::string literal = string_or(pattern, "String", "");
        if (regex.empty() == literal.empty()) refuse("a split of the pre-tokenizer has no pattern");
        if (!regex.empty()) return add_step(regex);
        std::string escaped;
        for (const char c : literal) {
            const bool plain = static_cast<unsigned char>(c) >= 0x80 || std::isalnum(static_cast<unsigned char>(c));
            if (!plain) escaped.push_back('\\');
            escaped.push_back(c);
        }
        add_step(escaped);
    }

    void add_step(std::string_view regex) {
        if (data_.pretokenizer.steps.size() >= kMaxTokenizerJsonDepth) refuse("its pre-tokenizer has too many steps");
        data_.pretokenizer.steps.push_back(split_step(regex));
    }

    void read_post_processor(const json& post) {
        if (post.is_null()) return;
        const std::string type = type_of(post, "post_processor");
        if (type == "ByteLevel") return;  // offsets only
        if (type == "Sequence") {
            for (const json& part : array(post, "processors", "the post-processor")) read_post_processor(part);
        } else if (type == "TemplateProcessing") {
            read_template(post);
        } else {
            refuse("its post-processor '" + type.substr(0, 64) + "' is not supported");
        }
    }

    void read_template(const json& post) {
        bool after_text = false;
        for (const json& part : array(post, "single", "the post-processor")) {
            if (!part.is_object()) refuse("a part of the post-processor is not an object");
            if (part.contains("Sequence")) {
                if (after_text) refuse("its post-processor repeats the text");
                after_text = true;
                continue;
            }
            const std::string name = string_or(object(part, "SpecialToken", "the post-processor"), "id", "");
            const json& token = object(object(post, "special_tokens", "the post-processor"), name.c_str(),
                                       "the post-processor's special tokens");
            for (const json& value : array(token, "ids", "a special token of the post-processor"))
                (after_text ? data_.suffix : data_.prefix).push_back(id(value, "an id of the post-processor"));
            if (data_.prefix.size() + data_.suffix.size() > 64) refuse("its post-processor adds too many tokens");
        }
        if (!after_text) refuse("its post-processor drops the text");
        if (!data_.prefix.empty()) data_.special.bos = data_.prefix.front();
        if (!data_.suffix.empty()) data_.special.eos = data_.suffix.back();
    }

    TokenizerData data_;
    TokenizerJsonSax sax_;
    bool byte_level_ = false;
};

}  // namespace

TokenizerData parse_tokenizer_json(std::string_view text, std::string path) {
    return Reader(text, std::move(path)).read();
}

}  // namespace foresay::core
