#include "core/text/tokenizer.h"

#include <algorithm>

#include "base/error.h"
#include "core/text/added_tokens.h"
#include "core/text/bpe_model.h"
#include "core/text/special_names.h"
#include "core/text/splitter.h"

namespace foresay::core {

struct Tokenizer::Tables {
    explicit Tables(const TokenizerData& data);

    // Stops when `ids` has more than `most` entries.
    void encode_plain(std::string_view text, std::size_t most, std::vector<std::int32_t>& ids) const;
    bool holds(std::int32_t id) const { return id >= 0 && id < bpe.size(); }
    void check_id(const std::string& source, std::int32_t id, const char* what) const;

    BpeModel bpe;
    std::vector<TokenType> types;
    Splitter splitter;
    AddedTokens added;
    SpecialTokens special;
    std::vector<std::int32_t> prefix, suffix, ends;
    std::string pretokenizer, chat_template;
    bool prefix_space = false;
    std::size_t longest_token_bytes = 0;  // no token stands for more; 0: there is no such limit
};

Tokenizer::Tables::Tables(const TokenizerData& data)
    : bpe(data),
      types(data.types),
      splitter(data.pretokenizer, data.source),
      special(data.special),
      prefix(data.prefix),
      suffix(data.suffix),
      pretokenizer(data.pretokenizer.name),
      chat_template(data.chat_template),
      prefix_space(data.prefix_space) {
    for (std::int32_t id = 0; id < bpe.size(); ++id) {
        const TokenType type = types[static_cast<std::size_t>(id)];
        if (type == TokenType::control || type == TokenType::unknown || type == TokenType::user_defined)
            added.add(bpe.text(id), id, type == TokenType::user_defined, data.source);
    }
    for (const AddedTokenRule& rule : data.added_rules) added.set_rule(rule);
    for (const std::int32_t id : prefix) check_id(data.source, id, "a token put before every text");
    for (const std::int32_t id : suffix) check_id(data.source, id, "a token put after every text");
    for (const std::int32_t id : data.end_of_text) check_id(data.source, id, "an end of text");
    const FindControl find = [this](std::string_view text) {
        const std::int32_t id = bpe.find(text);
        return id >= 0 && types[static_cast<std::size_t>(id)] == TokenType::control ? id : -1;
    };
    complete_special_tokens(find, special);
    for (std::int32_t id :
         {special.bos, special.eos, special.eot, special.eom, special.pad, special.unknown, special.fim_prefix,
          special.fim_suffix, special.fim_middle, special.fim_pad, special.fim_repo, special.fim_file})
        if (id != -1) check_id(data.source, id, "a special token");
    ends = core::end_of_text_ids(find, special, data.end_of_text);
    if (added.swallows_space() || !bpe.keeps_every_byte(special.unknown)) return;
    for (std::int32_t id = 0; id < bpe.size(); ++id) {
        longest_token_bytes = std::max(longest_token_bytes, bpe.bytes(id).size());
    }
}

void Tokenizer::Tables::check_id(const std::string& source, std::int32_t id, const char* what) const {
    if (!holds(id))
        throw Error(source + ": " + what + " has id " + std::to_string(id) + ", but the vocabulary has " +
                    std::to_string(bpe.size()) + " tokens; get or convert the model again");
}

void Tokenizer::Tables::encode_plain(std::string_view text, std::size_t most, std::vector<std::int32_t>& ids) const {
    struct Context {
        const Tables& tables;
        std::size_t most;
        std::vector<std::int32_t>& ids;
    } context{*this, most, ids};
    splitter.split(
        text,
        [](void* opaque, std::string_view piece) {
            auto& [tables, enough, out] = *static_cast<Context*>(opaque);
            tables.bpe.encode(piece, tables.special.unknown, out);
            return out.size() <= enough;
        },
        &context);
}

Tokenizer::Tokenizer(const TokenizerData& data) : tables_(std::make_shared<const Tables>(data)) {}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
    std::vector<std::int32_t> ids;
    encode_append(text, options, ids);
    return ids;
}

void Tokenizer::encode_append(std::string_view text, EncodeOptions options, std::vector<std::int32_t>& ids) const {
    const Tables& tables = *tables_;
    const std::size_t most = std::max(ids.size() + options.enough, options.enough);  // the sum may wrap
    if (options.add_special) ids.insert(ids.end(), tables.prefix.begin(), tables.prefix.end());
    const auto plain = [&](std::string_view part) {
        if (!tables.prefix_space || !options.add_special || part.empty()) return tables.encode_plain(part, most, ids);
        tables.encode_plain(std::string(1, ' ').append(part), most, ids);
    };
    std::size_t done = 0;
    while (ids.size() <= most) {
        const AddedTokens::Found found = tables.added.find(text, done, options.parse_special);
        if (found.id < 0) break;
        plain(text.substr(done, found.begin - done));
        ids.push_back(found.id);
        done = found.end;
    }
    if (ids.size() > most) return;
    plain(text.substr(done));
    if (options.add_special) ids.insert(ids.end(), tables.suffix.begin(), tables.suffix.end());
}

std::int64_t Tokenizer::least_tokens(std::size_t bytes) const {
    const std::size_t longest = tables_->longest_token_bytes;
    return longest == 0 ? 0 : static_cast<std::int64_t>((bytes + longest - 1) / longest);
}

std::string_view Tokenizer::bytes(std::int32_t id) const {
    return tables_->holds(id) ? tables_->bpe.bytes(id) : std::string_view{};
}

std::string_view Tokenizer::text(std::int32_t id) const {
    return tables_->holds(id) ? tables_->bpe.text(id) : std::string_view{};
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool show_special) const {
    std::string out;
    for (const std::int32_t id : ids)
        if (show_special || !is_control(id)) out.append(bytes(id));
    return out;
}

std::int32_t Tokenizer::vocab_size() const { return tables_->bpe.size(); }

std::optional<std::int32_t> Tokenizer::find(std::string_view text) const {
    const std::int32_t id = tables_->bpe.find(text);
    return id < 0 ? std::nullopt : std::optional(id);
}

TokenType Tokenizer::type(std::int32_t id) const {
    return tables_->holds(id) ? tables_->types[static_cast<std::size_t>(id)] : TokenType::unused;
}

bool Tokenizer::is_end_of_text(std::int32_t id) const {
    return std::binary_search(tables_->ends.begin(), tables_->ends.end(), id);
}

std::span<const std::int32_t> Tokenizer::end_of_text_ids() const { return tables_->ends; }
const SpecialTokens& Tokenizer::special() const { return tables_->special; }

bool Tokenizer::adds_bos() const { return !tables_->prefix.empty() && tables_->prefix.front() == tables_->special.bos; }

std::string_view Tokenizer::pretokenizer() const { return tables_->pretokenizer; }
std::string_view Tokenizer::chat_template() const { return tables_->chat_template; }

}  // namespace foresay::core
