#include "core/text/tokenizer_json.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "core/text/base64.h"
#include "core/text/byte_tokens.h"
#include "core/text/tokenizer_json_sax.h"

namespace foresay::core {
namespace {

using nlohmann::json;

constexpr std::string_view kForms[] = {"NFC", "NFD", "NFKC", "NFKD"};  // as NormalForm
constexpr std::string_view kBehaviors[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext",
                                           "Contiguous"};  // as SplitBehavior
constexpr std::size_t kMaxShortBytes = 256;

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
        data_.unknown_in_text = false;
        read_model(model);
        read_vocabulary();
        read_added_tokens();
        read_unknown(model);
        data_.pretokenizer.name = "tokenizer.json";
        read_pretokenizer(member(sax_.rest, "pre_tokenizer"));
        if (!byte_level_) data_.spelling = Spelling::literal;
        if (byte_level_ && data_.model == TokenModel::unigram) unsupported("its model is a byte-level Unigram");
        if (byte_fallback_) mark_byte_tokens(data_);
        read_normalizer(member(sax_.rest, "normalizer"));
        read_post_processor(member(sax_.rest, "post_processor"));
        const json& decoder = member(sax_.rest, "decoder");
        byte_level_ ? check_byte_level_decoder(decoder) : read_decoder(decoder);
        return std::move(data_);
    }

private:
    [[noreturn]] void refuse(const std::string& what) const {
        throw Error(data_.source + ": " + what + "; get the model's tokenizer.json again");
    }
    [[noreturn]] void unsupported(const std::string& what) const {
        throw Error(data_.source + ": " + what + "; use a model with another tokenizer");
    }
    [[noreturn]] void unsupported(const char* part, const std::string& type) const {
        unsupported(std::string("its ") + part + " '" + type.substr(0, 64) + "' is not supported");
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
    // What goes into a text at many places is short, so that a text cannot grow without limit.
    std::string short_string_or(const json& parent, const char* name, const char* fallback) const {
        std::string text = string_or(parent, name, fallback);
        if (text.size() > kMaxShortBytes)
            refuse(std::string("'") + name + "' is longer than " + std::to_string(kMaxShortBytes) + " bytes");
        return text;
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
        const std::string type = string_or(model, "type", sax_.pieces.empty() ? "BPE" : "Unigram");
        if (type != "BPE" && type != "Unigram") unsupported("model", type);
        data_.model = type == "BPE" ? TokenModel::bpe : TokenModel::unigram;
        if ((type == "BPE") != sax_.pieces.empty()) refuse("model.vocab is not that of a " + type + " model");
        byte_fallback_ = flag_or(model, "byte_fallback", false);
        if (!string_or(model, "continuing_subword_prefix", "").empty()) unsupported("its model marks inner subwords");
        if (!string_or(model, "end_of_word_suffix", "").empty()) unsupported("its model marks ends of words");
        const json& dropout = member(model, "dropout");
        if (!dropout.is_null() && dropout != 0.0) unsupported("its model drops merges at random");
        data_.ignore_merges = flag_or(model, "ignore_merges", false);
        data_.fuse_unknown = flag_or(model, "fuse_unk", false);
    }

    void read_vocabulary() {
        if (sax_.vocabulary.empty() && sax_.pieces.empty()) refuse("it has no model.vocab");
        for (const auto& piece : sax_.pieces) {
            data_.tokens.push_back(piece.text);
            data_.types.push_back(TokenType::normal);
            data_.scores.push_back(piece.score);
        }
        std::int64_t last = -1;
        for (const auto& entry : sax_.vocabulary) last = std::max(last, entry.id);
        if (last >= 0) grow(last, sax_.vocabulary.size());
        for (const auto& entry : sax_.vocabulary) {
            std::string_view& token = data_.tokens[static_cast<std::size_t>(entry.id)];
            if (!token.empty()) refuse("two tokens of model.vocab have id " + std::to_string(entry.id));
            token = entry.text;
            data_.types[static_cast<std::size_t>(entry.id)] = TokenType::normal;
        }
    }

    void read_unknown(const json& model) {
        if (data_.model == TokenModel::unigram) {
            if (member(model, "unk_id").is_null()) return;
            data_.special.unknown = id(member(model, "unk_id"), "model.unk_id");
            if (data_.special.unknown >= static_cast<std::int32_t>(data_.tokens.size()))
                refuse("model.unk_id names a token that is not in the vocabulary");
        } else {
            const std::string unknown = string_or(model, "unk_token", "");
            if (unknown.empty()) return;
            data_.special.unknown = id_of(unknown, "model.unk_token");
        }
        TokenType& type = data_.types[static_cast<std::size_t>(data_.special.unknown)];
        if (type == TokenType::normal) type = TokenType::unknown;
    }

    // Makes room for ids up to `last`. Tolerates some holes, but not a table that is mostly holes.
    void grow(std::int64_t last, std::size_t entries) {
        if (last >= kMaxVocabulary || static_cast<std::size_t>(last) > entries * 2 + 4096)
            refuse("a token has id " + std::to_string(last) + " among " + std::to_string(entries) + " tokens");
        if (static_cast<std::size_t>(last) < data_.tokens.size()) return;
        data_.tokens.resize(static_cast<std::size_t>(last) + 1);
        data_.types.resize(static_cast<std::size_t>(last) + 1, TokenType::unused);
        if (data_.model == TokenModel::unigram) data_.scores.resize(static_cast<std::size_t>(last) + 1, 0.0);
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
            grow(at, sax_.vocabulary.size() + sax_.pieces.size() + added.size());
            std::string_view& text = data_.tokens[static_cast<std::size_t>(at)];
            if (!text.empty() && text != content)
                refuse("added token " + std::to_string(at) + " is another token in model.vocab");
            if (text.empty()) text = data_.keep(content);
            data_.types[static_cast<std::size_t>(at)] =
                flag_or(token, "special", false) ? TokenType::control : TokenType::user_defined;
            const AddedTokenRule rule{at, flag_or(token, "lstrip", false), flag_or(token, "rstrip", false),
                                      flag_or(token, "single_word", false), flag_or(token, "normalized", false)};
            if (rule.left_strip || rule.right_strip || rule.single_word || rule.normalized)
                data_.added_rules.push_back(rule);
        }
    }

    void read_normalizer(const json& normalizer) {
        if (normalizer.is_null()) return;
        const std::string type = type_of(normalizer, "normalizer");
        if (type == "Sequence") {
            for (const json& part : array(normalizer, "normalizers", "the normalizer")) read_normalizer(part);
            return;
        }
        NormalizeStep step;
        const auto form = std::find(std::begin(kForms), std::end(kForms), type);
        if (form != std::end(kForms)) {
            step.form = static_cast<NormalForm>(form - std::begin(kForms));
        } else if (type == "Strip") {
            step.kind = NormalizeStep::Kind::strip;
            step.left = flag_or(normalizer, "strip_left", true);
            step.right = flag_or(normalizer, "strip_right", true);
        } else if (type == "Prepend") {
            step.kind = NormalizeStep::Kind::prepend;
            step.content = short_string_or(normalizer, "prepend", "");
        } else if (type == "Replace") {
            step.content = short_string_or(normalizer, "content", "");
            const bool regex = read_pattern(normalizer, "a replacement of the normalizer", step.pattern);
            step.kind = regex ? NormalizeStep::Kind::replace_regex : NormalizeStep::Kind::replace;
        } else if (type == "Precompiled") {
            step.kind = NormalizeStep::Kind::charsmap;
            const auto map = from_base64(string_or(normalizer, "precompiled_charsmap", ""));
            if (!map) refuse("the character map of the normalizer is not base64");
            step.pattern = *map;
        } else {
            unsupported("normalizer", type);
        }
        if (data_.normalizer.size() >= kMaxTokenizerJsonDepth) refuse("its normalizer has too many steps");
        data_.normalizer.push_back(std::move(step));
    }

    // Reads {"Regex": ...} or {"String": ...}; returns whether it is an expression.
    bool read_pattern(const json& parent, const std::string& where, std::string& out) const {
        const json& pattern = object(parent, "pattern", where);
        const std::string regex = string_or(pattern, "Regex", ""), literal = string_or(pattern, "String", "");
        if (regex.empty() == literal.empty()) refuse(where + " has no pattern");
        out = regex.empty() ? literal : regex;
        return !regex.empty();
    }

    void read_pretokenizer(const json& pre) {
        if (pre.is_null()) return;
        const std::string type = type_of(pre, "pre_tokenizer");
        if (byte_level_) unsupported("its pre-tokenizer has steps after ByteLevel");
        if (type == "Sequence") {
            for (const json& part : array(pre, "pretokenizers", "the pre-tokenizer")) read_pretokenizer(part);
        } else if (type == "ByteLevel") {
            if (flag_or(pre, "add_prefix_space", true)) {
                SplitStep step;
                step.match = SplitStep::Match::space;
                step.space = SpaceBefore::always;
                add_step(std::move(step));
            }
            if (flag_or(pre, "use_regex", true)) add_step(split_step(gpt2_regex()));
            byte_level_ = true;
        } else if (type == "Metaspace") {
            read_metaspace(pre);
        } else if (type == "Split") {
            std::string pattern;
            if (!read_pattern(pre, "a split of the pre-tokenizer", pattern)) pattern = regex_of_text(pattern);
            add_split(pattern, pre, "Isolated");
        } else if (type == "Digits") {
            add_step(split_step(flag_or(pre, "individual_digits", false) ? "\\p{N}" : "\\p{N}+"));
        } else if (type == "Punctuation") {
            add_split(R"re([\p{P}!-/:-@\[-`{-~])re", pre, "Isolated");
        } else if (type == "Whitespace") {
            add_step(split_step(R"re(\w+|[^\w\s]+)re"), SplitBehavior::removed, true);
        } else if (type == "WhitespaceSplit") {
            add_step(split_step(R"re(\s+)re"), SplitBehavior::removed);
        } else if (type == "CharDelimiterSplit") {
            const std::string delimiter = string_or(pre, "delimiter", "");
            if (delimiter.empty()) refuse("a split of the pre-tokenizer has no delimiter");
            add_step(split_step(regex_of_text(delimiter)), SplitBehavior::removed);
        } else {
            unsupported("pre-tokenizer", type);
        }
    }

    void read_metaspace(const json& pre) {
        SplitStep step;
        step.match = SplitStep::Match::metaspace;
        step.mark = short_string_or(pre, "replacement", "\u2581");
        if (step.mark.empty()) refuse("the pre-tokenizer replaces a space by nothing");
        step.space = prepend_scheme(pre, "pre-tokenizer");
        step.cut_at_mark = flag_or(pre, "split", true);
        add_step(std::move(step));
    }

    SpaceBefore prepend_scheme(const json& part, const char* what) const {
        const bool older = flag_or(part, "add_prefix_space", true);
        const std::string scheme = string_or(part, "prepend_scheme", older ? "always" : "never");
        if (scheme == "always") return SpaceBefore::always;
        if (scheme == "first") return SpaceBefore::first;
        if (scheme != "never") refuse(std::string("the ") + what + " prepends '" + scheme.substr(0, 64) + "'");
        return SpaceBefore::never;
    }

    void add_split(std::string_view regex, const json& split, const char* usual) {
        const std::string behavior = string_or(split, "behavior", usual);
        const auto known = std::find(std::begin(kBehaviors), std::end(kBehaviors), behavior);
        if (known == std::end(kBehaviors)) refuse("its pre-tokenizer splits as '" + behavior.substr(0, 64) + "'");
        const auto chosen = static_cast<SplitBehavior>(known - std::begin(kBehaviors));
        const bool invert = flag_or(split, "invert", false);
        // Every match and every gap is a piece, so it does not matter which is which.
        const bool plain = chosen == SplitBehavior::isolated;
        // The fast equivalents are only for the usual behaviour.
        SplitStep step = plain ? split_step(regex) : SplitStep{};
        if (!plain) step.regex = regex;
        add_step(std::move(step), chosen, invert && !plain);
    }

    void add_step(SplitStep step, SplitBehavior behavior = SplitBehavior::isolated, bool invert = false) {
        if (data_.pretokenizer.steps.size() >= kMaxTokenizerJsonDepth) refuse("its pre-tokenizer has too many steps");
        step.behavior = behavior;
        step.invert = invert;
        data_.pretokenizer.steps.push_back(std::move(step));
    }

    void check_byte_level_decoder(const json& decoder) const {
        if (decoder.is_null()) return;
        const std::string type = type_of(decoder, "decoder");
        if (type == "Sequence") {
            for (const json& part : array(decoder, "decoders", "the decoder")) check_byte_level_decoder(part);
        } else if (type != "ByteLevel" && type != "Fuse") {
            unsupported("its pre-tokenizer is byte-level, but its decoder is '" + type.substr(0, 64) + "'");
        }
    }

    void read_decoder(const json& decoder) {
        if (decoder.is_null()) unsupported("it is not byte-level and has no decoder");
        data_.decoder.bytes = false;
        read_decoder_part(decoder);
    }

    void read_decoder_part(const json& decoder) {
        const std::string type = type_of(decoder, "decoder");
        DecoderRules& rules = data_.decoder;
        if (type == "Sequence") {
            for (const json& part : array(decoder, "decoders", "the decoder")) read_decoder_part(part);
        } else if (type == "Fuse") {
            fused_ = true;
        } else if (type == "ByteFallback") {
            rules.bytes = true;
        } else if (type == "Replace" && !fused_) {
            DecoderRules::Replacement rule;
            if (read_pattern(decoder, "a replacement of the decoder", rule.from))
                unsupported("its decoder replaces by an expression");
            rule.to = short_string_or(decoder, "content", "");
            if (rules.replacements.size() >= kMaxTokenizerJsonDepth) refuse("its decoder has too many steps");
            rules.replacements.push_back(std::move(rule));
        } else if (type == "Metaspace" && !fused_) {
            const std::string mark = short_string_or(decoder, "replacement", "\u2581");
            rules.replacements.push_back({mark, " "});
            if (prepend_scheme(decoder, "decoder") == SpaceBefore::never) return;
            rules.start = DecoderRules::Start::first_token;
            rules.strip_text = mark;
        } else if (type == "Strip" && fused_) {
            if (count(decoder, "stop") != 0) unsupported("its decoder strips the end of the text");
            rules.start = DecoderRules::Start::strip;
            rules.strip_text = short_string_or(decoder, "content", " ");
            rules.strip_count = count(decoder, "start");
        } else {
            unsupported("decoder", type + (type == "Replace" || type == "Metaspace" ? " after Fuse"
                                           : type == "Strip"                        ? " before Fuse"
                                                                                    : ""));
        }
    }

    std::int32_t count(const json& parent, const char* name) const {
        const json& value = member(parent, name);
        if (value.is_null()) return 0;
        if (!value.is_number_unsigned() || value.get<std::uint64_t>() > 1024)
            refuse(std::string("'") + name + "' of the decoder is not a small number");
        return value.get<std::int32_t>();
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
            unsupported("post-processor", type);
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
    bool byte_level_ = false;     // a pre-tokenizer ByteLevel was read
    bool byte_fallback_ = false;  // characters without a token become <0x..> tokens
    bool fused_ = false;          // a decoder Fuse was read
};

}  // namespace

TokenizerData parse_tokenizer_json(std::string_view text, std::string path) {
    return Reader(text, std::move(path)).read();
}

}  // namespace foresay::core
