#include "core/text/tokenizer.h"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "core/text/added_tokens.h"
#include "core/text/bpe_model.h"
#include "core/text/normalizer.h"
#include "core/text/special_names.h"
#include "core/text/splitter.h"
#include "core/text/token_table.h"
#include "core/text/unigram_model.h"
#include "core/text/utf8.h"

namespace foresay::core {

struct Tokenizer::Tables {
    explicit Tables(const TokenizerData& data);

    void add_added_tokens(const TokenizerData& data);
    // How many bytes of a text one token stands for at most; 0: there is no limit.
    std::size_t longest_source() const;
    // Each stops, and returns false, when `ids` has more than `most` entries.
    bool encode_stretch(std::string_view text, TextPlace place, bool parse_special, std::size_t most,
                        std::vector<std::int32_t>& ids) const;
    bool encode_plain(std::string_view text, TextPlace place, std::size_t most, std::vector<std::int32_t>& ids) const;
    // A stretch of a MarkedText between added tokens.
    void encode_mixed(const MarkedText& text, TextPlace place, std::vector<std::int32_t>& ids) const;
    bool encode_piece(std::string_view piece, std::size_t most, std::vector<std::int32_t>& ids) const;
    bool holds(std::int32_t id) const { return id >= 0 && id < tokens.size(); }
    void check_id(const std::string& source, std::int32_t id, const char* what) const;

    TokenTable tokens;
    std::vector<TokenType> types;
    std::unique_ptr<const SubwordModel> model;
    Normalizer normalizer;
    Splitter splitter;
    AddedTokens added;             // found in the text as it is
    AddedTokens added_normalized;  // found after normalizing
    DecoderRules decoder;
    SpecialTokens special;
    std::vector<std::int32_t> prefix, suffix, ends;
    std::string pretokenizer;
    std::vector<NamedTemplate> chat_templates;
    std::size_t longest_token = 1;  // bytes of a normalized text that one token stands for at most
    std::size_t longest_source_bytes = 0;
};

Tokenizer::Tables::Tables(const TokenizerData& data)
    : tokens(data),
      types(data.types),
      normalizer(data.normalizer, data.source),
      splitter(data.pretokenizer, data.source),
      decoder(data.decoder),
      special(data.special),
      prefix(data.prefix),
      suffix(data.suffix),
      pretokenizer(data.pretokenizer.name),
      chat_templates(data.chat_templates) {
    if (data.model == TokenModel::unigram) {
        model = std::make_unique<const UnigramModel>(data, tokens);
    } else {
        model = std::make_unique<const BpeModel>(data, tokens);
    }
    longest_token = tokens.longest_token();
    add_added_tokens(data);
    for (const std::int32_t id : prefix) check_id(data.source, id, "a token put before every text");
    for (const std::int32_t id : suffix) check_id(data.source, id, "a token put after every text");
    for (const std::int32_t id : data.end_of_text) check_id(data.source, id, "an end of text");
    const FindControl find = [this](std::string_view text) {
        const std::int32_t id = tokens.find(text);
        return id >= 0 && types[static_cast<std::size_t>(id)] == TokenType::control ? id : -1;
    };
    complete_special_tokens(find, special);
    for (std::int32_t id :
         {special.bos, special.eos, special.eot, special.eom, special.pad, special.unknown, special.fim_prefix,
          special.fim_suffix, special.fim_middle, special.fim_pad, special.fim_repo, special.fim_file})
        if (id != -1) check_id(data.source, id, "a special token");
    ends = core::end_of_text_ids(find, special, data.end_of_text);
    longest_source_bytes = longest_source();
}

void Tokenizer::Tables::check_id(const std::string& source, std::int32_t id, const char* what) const {
    if (!holds(id))
        throw Error(source + ": " + what + " has id " + std::to_string(id) + ", but the vocabulary has " +
                    std::to_string(tokens.size()) + " tokens; get or convert the model again");
}

void Tokenizer::Tables::add_added_tokens(const TokenizerData& data) {
    std::unordered_map<std::int32_t, AddedTokenRule> rules;
    for (const AddedTokenRule& rule : data.added_rules) rules[rule.id] = rule;
    for (std::int32_t id = 0; id < tokens.size(); ++id) {
        const TokenType type = types[static_cast<std::size_t>(id)];
        const bool in_text = type == TokenType::control || type == TokenType::user_defined ||
                             (type == TokenType::unknown && data.unknown_in_text);
        if (!in_text) continue;
        const auto rule = rules.find(id);
        const bool normalized = rule != rules.end() && rule->second.normalized;
        AddedTokens& table = normalized ? added_normalized : added;
        std::string text(tokens.text(id));
        if (normalized && !data.added_are_normalized) {
            text = normalizer.apply(text, TextPlace::start);
            if (text != tokens.text(id)) tokens.show(id, text, decoder);
        }
        longest_token = std::max(longest_token, text.size());
        table.add(text, id, type == TokenType::user_defined, data.source);
        if (rule != rules.end()) table.set_rule(rule->second);
    }
}

std::size_t Tokenizer::Tables::longest_source() const {
    const bool all_kept = !added.swallows_space() && !added_normalized.swallows_space() &&
                          splitter.keeps_every_byte() && model->keeps_every_byte(special.unknown);
    return all_kept ? longest_token * normalizer.most_shrinking() : 0;
}

namespace {

// Calls token(id) for each added token of `text` in order, and plain(stretch, place) for the text between, until one
// returns false, which it returns then.
template <typename Token, typename Plain>
bool each_added(const AddedTokens& added, std::string_view text, TextPlace place, bool parse_special, Token token,
                Plain plain) {
    std::size_t done = 0;
    const auto stretch = [&](std::size_t end) {
        return end <= done || plain(text.substr(done, end - done), done == 0 ? place : TextPlace::inside);
    };
    while (!added.empty()) {
        const AddedTokens::Found found = added.find(text, done, parse_special);
        if (found.id < 0) break;
        if (!stretch(found.begin) || !token(found.id)) return false;
        done = found.end;
    }
    return stretch(text.size());
}

}  // namespace

bool Tokenizer::Tables::encode_stretch(std::string_view text, TextPlace place, bool parse_special, std::size_t most,
                                       std::vector<std::int32_t>& ids) const {
    std::string changed;
    if (!normalizer.empty()) text = changed = normalizer.apply(text, place);
    return each_added(
        added_normalized, text, place, parse_special,
        [&](std::int32_t id) {
            ids.push_back(id);
            return ids.size() <= most;
        },
        [&](std::string_view part, TextPlace where) { return encode_plain(part, where, most, ids); });
}

bool Tokenizer::Tables::encode_plain(std::string_view text, TextPlace place, std::size_t most,
                                     std::vector<std::int32_t>& ids) const {
    struct Context {
        const Tables& tables;
        std::size_t most;
        std::vector<std::int32_t>& ids;
    } context{*this, most, ids};
    splitter.split(
        text, place,
        [](void* opaque, std::string_view piece) {
            auto& [tables, enough, out] = *static_cast<Context*>(opaque);
            return tables.encode_piece(piece, enough, out);
        },
        &context);
    return ids.size() <= most;
}

bool Tokenizer::Tables::encode_piece(std::string_view piece, std::size_t most, std::vector<std::int32_t>& ids) const {
    // A piece may be the whole text. If its beginning is sure to have too many tokens, the rest is not looked at.
    const std::size_t left = most - std::min(most, ids.size());
    if (piece.size() / longest_token > left) {
        std::size_t kept = 0, at = 0;
        while (at < piece.size() && kept <= left * longest_token) {
            const std::string_view character = piece.substr(at, next_utf8(piece.substr(at)).length_bytes);
            kept += model->kept_bytes(character, special.unknown);
            at += character.size();
        }
        if (kept > left * longest_token && at < piece.size()) {
            model->encode(piece.substr(0, at), special.unknown, ids);
            check(ids.size() > most, "a token has no more bytes than the longest");
            // The last tokens of the beginning may be others in the whole piece, and fewer.
            ids.resize(most + 1);
            return false;
        }
    }
    model->encode(piece, special.unknown, ids);
    return ids.size() <= most;
}

void TokenizerData::set_chat_template(std::string_view name, std::string template_source) {
    std::erase_if(chat_templates, [&](const NamedTemplate& known) { return known.name == name; });
    if (!template_source.empty()) chat_templates.push_back({std::string(name), std::move(template_source)});
}

Tokenizer::Tokenizer(const TokenizerData& data)
    : tables_(std::make_shared<const Tables>(data)),
      ends_(std::make_shared<const std::vector<std::int32_t>>(tables_->ends)) {}

Tokenizer Tokenizer::with_ends(std::span<const std::int32_t> ids) const {
    std::vector<std::int32_t> ends = *ends_;
    for (const std::int32_t id : ids)
        if (tables_->holds(id)) ends.push_back(id);
    std::sort(ends.begin(), ends.end());
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
    Tokenizer copy = *this;
    copy.ends_ = std::make_shared<const std::vector<std::int32_t>>(std::move(ends));
    return copy;
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
    std::vector<std::int32_t> ids;
    encode_append(text, options, ids);
    return ids;
}

void Tokenizer::encode_append(std::string_view text, EncodeOptions options, std::vector<std::int32_t>& ids) const {
    const Tables& tables = *tables_;
    const std::size_t most = std::max(ids.size() + options.enough, options.enough);  // the sum may wrap
    if (options.add_special) ids.insert(ids.end(), tables.prefix.begin(), tables.prefix.end());
    const auto token = [&](std::int32_t id) {
        ids.push_back(id);
        return ids.size() <= most;
    };
    const auto plain = [&](std::string_view part, TextPlace place) {
        return tables.encode_stretch(part, place, options.parse_special, most, ids);
    };
    const TextPlace place = options.add_special ? TextPlace::start : TextPlace::continuation;
    if (ids.size() > most || !each_added(tables.added, text, place, options.parse_special, token, plain)) return;
    if (options.add_special) ids.insert(ids.end(), tables.suffix.begin(), tables.suffix.end());
}

namespace {

// The parts of `ranges` within [begin, end), as offsets from `begin`.
std::vector<TextRange> ranges_within(std::span<const TextRange> ranges, std::size_t begin, std::size_t end) {
    std::vector<TextRange> out;
    auto at = std::upper_bound(ranges.begin(), ranges.end(), begin,
                               [](std::size_t place, const TextRange& range) { return place < range.end; });
    for (; at != ranges.end() && at->begin < end; ++at)
        out.push_back({std::max(at->begin, begin) - begin, std::min(at->end, end) - begin});
    return out;
}

// Calls token(found) for each token of `added` in `text`, in order, and plain(begin, end) for the text between.
template <typename Token, typename Plain>
void each_marked(const AddedTokens& added, const MarkedText& text, Token token, Plain plain) {
    std::size_t done = 0;
    while (!added.empty()) {
        const AddedTokens::Found found = added.find(text, done);
        if (found.id < 0) break;
        if (found.begin > done) plain(done, found.begin);
        token(FoundToken{found.begin, found.end, found.id});
        done = found.end;
    }
    if (done < text.bytes.size()) plain(done, text.bytes.size());
}

}  // namespace

std::vector<FoundToken> Tokenizer::find_added(const MarkedText& text) const {
    std::vector<FoundToken> found;
    const auto take = [&](const FoundToken& token) { found.push_back(token); };
    each_marked(tables_->added, text, take, [&](std::size_t begin, std::size_t end) {
        const std::string_view stretch = text.bytes.substr(begin, end - begin);
        if (tables_->added_normalized.empty()) return;
        if (!tables_->normalizer.empty() && tables_->normalizer.apply(stretch, TextPlace::inside) != stretch) return;
        const std::vector<TextRange> plain = ranges_within(text.plain, begin, end);
        each_marked(
            tables_->added_normalized, {stretch, plain, text.markup},
            [&](const FoundToken& token) {
                take({token.begin + begin, token.end + begin, token.id});
            },
            [](std::size_t, std::size_t) {});
    });
    return found;
}

// Some tokens are found only in the normalized text. Where normalizing has changed a text, the marks no longer fit it:
// then it is all input, unless its markup holds such a token; in that case, which a few old models have, it is cut at
// the marks.
void Tokenizer::Tables::encode_mixed(const MarkedText& text, TextPlace place, std::vector<std::int32_t>& ids) const {
    constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
    const std::string normalized = normalizer.empty() ? std::string(text.bytes) : normalizer.apply(text.bytes, place);
    const auto encode = [&](const MarkedText& ready) {
        each_marked(
            added_normalized, ready, [&](const FoundToken& token) { ids.push_back(token.id); },
            [&](std::size_t begin, std::size_t end) {
                encode_plain(ready.bytes.substr(begin, end - begin), begin == 0 ? place : TextPlace::inside, kAll, ids);
            });
    };
    if (text.plain.empty() || normalized == text.bytes) return encode({normalized, text.plain, text.markup});
    const TextRange whole{0, normalized.size()};
    struct Run {
        std::string_view text;
        bool markup;
    };
    std::vector<Run> runs;
    std::size_t done = 0;
    for (const TextRange& range : text.plain) {
        if (range.begin > done) runs.push_back({text.bytes.substr(done, range.begin - done), true});
        runs.push_back({text.bytes.substr(range.begin, range.end - range.begin), false});
        done = range.end;
    }
    if (done < text.bytes.size()) runs.push_back({text.bytes.substr(done), true});
    const bool special = runs.size() > 1 && std::ranges::any_of(runs, [&](const Run& run) {
                             if (!run.markup) return false;
                             const std::string ready = normalizer.apply(run.text, TextPlace::inside);
                             return added_normalized.find(MarkedText{ready, {}, {}}, 0).id >= 0;
                         });
    if (!special) return encode({normalized, {&whole, 1}, text.markup});
    for (const Run& run : runs) {
        const TextRange all{0, run.text.size()};
        encode_mixed({run.text, {&all, run.markup ? 0U : 1U}, text.markup}, std::exchange(place, TextPlace::inside),
                     ids);
    }
}

std::vector<std::int32_t> Tokenizer::encode_marked(const MarkedText& text, bool start) const {
    std::vector<std::int32_t> ids;
    each_marked(
        tables_->added, text, [&](const FoundToken& token) { ids.push_back(token.id); },
        [&](std::size_t begin, std::size_t end) {
            const TextPlace place = begin > 0 ? TextPlace::inside : start ? TextPlace::start : TextPlace::continuation;
            const std::vector<TextRange> plain = ranges_within(text.plain, begin, end);
            tables_->encode_mixed({text.bytes.substr(begin, end - begin), plain, text.markup}, place, ids);
        });
    return ids;
}

std::int64_t Tokenizer::least_tokens(std::size_t bytes) const {
    const std::size_t longest = tables_->longest_source_bytes;
    return longest == 0 ? 0 : static_cast<std::int64_t>((bytes + longest - 1) / longest);
}

std::string_view Tokenizer::bytes(std::int32_t id) const {
    return tables_->holds(id) ? tables_->tokens.bytes(id) : std::string_view{};
}

std::string_view Tokenizer::text(std::int32_t id) const {
    return tables_->holds(id) ? tables_->tokens.text(id) : std::string_view{};
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool show_special) const {
    std::string out;
    for (const std::int32_t id : ids)
        if (show_special || !is_control(id)) out.append(bytes(id));
    return out;
}

std::string Tokenizer::whole_text(std::span<const std::int32_t> ids, bool show_special) const {
    std::string out;
    TextStart start;
    for (const std::int32_t id : ids)
        if (show_special || !is_control(id)) out.append(bytes(id, start));
    return out;
}

std::string_view Tokenizer::bytes(std::int32_t id, TextStart& start) const {
    const DecoderRules& rules = tables_->decoder;
    if (start.done_ || rules.start == DecoderRules::Start::keep || rules.strip_text.empty()) return bytes(id);
    if (rules.start == DecoderRules::Start::first_token) {
        start.done_ = true;
        start.shown_ = text(id);
        for (std::size_t at = 0; (at = start.shown_.find(rules.strip_text, at)) != std::string::npos;)
            start.shown_.erase(at, rules.strip_text.size());
        return type(id) == TokenType::byte || is_control(id) ? bytes(id) : start.shown_;
    }
    std::string_view shown = bytes(id);
    for (; start.stripped_ < rules.strip_count && shown.starts_with(rules.strip_text); ++start.stripped_)
        shown.remove_prefix(rules.strip_text.size());
    start.done_ = !shown.empty() || start.stripped_ == rules.strip_count;
    return shown;
}

std::int32_t Tokenizer::vocab_size() const { return tables_->tokens.size(); }

std::optional<std::int32_t> Tokenizer::find(std::string_view text) const {
    const std::int32_t id = tables_->tokens.find(text);
    return id < 0 ? std::nullopt : std::optional(id);
}

TokenType Tokenizer::type(std::int32_t id) const {
    return tables_->holds(id) ? tables_->types[static_cast<std::size_t>(id)] : TokenType::unused;
}

bool Tokenizer::is_end_of_text(std::int32_t id) const { return std::binary_search(ends_->begin(), ends_->end(), id); }

std::span<const std::int32_t> Tokenizer::end_of_text_ids() const { return *ends_; }
const SpecialTokens& Tokenizer::special() const { return tables_->special; }

bool Tokenizer::adds_bos() const { return !tables_->prefix.empty() && tables_->prefix.front() == tables_->special.bos; }

std::string_view Tokenizer::pretokenizer() const { return tables_->pretokenizer; }
const std::vector<NamedTemplate>& Tokenizer::chat_templates() const { return tables_->chat_templates; }

std::string_view Tokenizer::chat_template() const {
    const auto& all = tables_->chat_templates;
    const auto found = std::ranges::find(all, "default", &NamedTemplate::name);
    return found == all.end() ? std::string_view{} : found->source;
}

}  // namespace foresay::core
