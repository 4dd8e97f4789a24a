#include "core/text/tokenizer_sentencepiece.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "core/text/protobuf.h"
#include "core/text/score_merges.h"

namespace foresay::core {
namespace {

constexpr std::string_view kSpaceMark = "\u2581";

class Reader {
public:
    explicit Reader(std::string path) { data_.source = std::move(path); }

    TokenizerData read(std::string_view model) {
        ProtobufReader reader(model, data_.source);
        while (reader.next()) {
            if (reader.field() == 1) read_piece(reader.bytes());
            if (reader.field() == 2) read_trainer(reader.bytes());
            if (reader.field() == 3) read_normalizer(reader.bytes());
            if (reader.field() == 5) check_denormalizer(reader.bytes());
        }
        if (data_.tokens.empty()) refuse("it has no pieces");
        if (model_type_ != 1 && model_type_ != 2)
            unsupported(model_type_ == 3 || model_type_ == 4
                            ? std::string("its model is of whole ") + (model_type_ == 3 ? "words" : "characters")
                            : "its model is of type " + std::to_string(model_type_));
        if (!escape_spaces_) unsupported("its normalizer does not escape spaces");
        if (space_after_) unsupported("it puts spaces after words");
        data_.spelling = Spelling::literal;
        data_.fuse_unknown = true;
        data_.single_precision = true;
        data_.added_are_normalized = true;
        set_special();
        if (model_type_ == 1) {
            data_.model = TokenModel::unigram;
            data_.scores = std::move(scores_);
        } else {
            make_merges(scores_, data_);
        }
        data_.pretokenizer.name = "sentencepiece";
        set_normalizer();
        return std::move(data_);
    }

private:
    [[noreturn]] void refuse(const std::string& what) const {
        throw Error(data_.source + ": " + what + "; get the model's tokenizer.model again");
    }
    [[noreturn]] void unsupported(const std::string& what) const {
        throw Error(data_.source + ": " + what + "; use a model with another tokenizer");
    }

    void read_piece(std::string_view message) {
        constexpr TokenType kTypes[] = {TokenType::normal,  TokenType::normal,       TokenType::unknown,
                                        TokenType::control, TokenType::user_defined, TokenType::unused,
                                        TokenType::byte};
        std::string_view text;
        double score = 0;
        std::int64_t type = 1;
        ProtobufReader reader(message, data_.source);
        while (reader.next()) {
            if (reader.field() == 1) text = reader.bytes();
            if (reader.field() == 2) score = static_cast<double>(reader.real());
            if (reader.field() == 3) type = reader.integer();
        }
        const auto id = static_cast<std::int32_t>(data_.tokens.size());
        if (id >= kMaxVocabulary) refuse("it has more than " + std::to_string(kMaxVocabulary) + " pieces");
        if (text.empty()) refuse("piece " + std::to_string(id) + " is empty");
        if (type < 1 || type > 6) refuse("piece " + std::to_string(id) + " is of type " + std::to_string(type));
        data_.tokens.push_back(data_.keep(std::string(text)));
        data_.types.push_back(kTypes[type]);
        scores_.push_back(score);
        // These are found in the normalized text, where a space is already escaped.
        if (data_.types.back() == TokenType::user_defined) data_.added_rules.push_back({.id = id, .normalized = true});
    }

    void read_trainer(std::string_view message) {
        ProtobufReader reader(message, data_.source);
        while (reader.next()) {
            if (reader.field() == 3) model_type_ = reader.integer();
            if (reader.field() == 24) space_after_ = reader.flag();
            if (reader.field() == 40) unknown_ = reader.integer();
            if (reader.field() == 41) bos_ = reader.integer();
            if (reader.field() == 42) eos_ = reader.integer();
            if (reader.field() == 43) pad_ = reader.integer();
        }
    }

    void read_normalizer(std::string_view message) {
        ProtobufReader reader(message, data_.source);
        while (reader.next()) {
            if (reader.field() == 2) charsmap_ = reader.bytes();
            if (reader.field() == 3) dummy_prefix_ = reader.flag();
            if (reader.field() == 4) join_spaces_ = reader.flag();
            if (reader.field() == 5) escape_spaces_ = reader.flag();
        }
    }

    void check_denormalizer(std::string_view message) const {
        ProtobufReader reader(message, data_.source);
        while (reader.next())
            if (reader.field() == 2 && !reader.bytes().empty()) unsupported("it has a denormalizer");
    }

    void set_special() {
        const auto set = [this](std::int64_t id, TokenType type, std::int32_t& out) {
            if (id < 0 || id >= static_cast<std::int64_t>(data_.tokens.size())) return;
            if (data_.types[static_cast<std::size_t>(id)] == type) out = static_cast<std::int32_t>(id);
        };
        set(bos_, TokenType::control, data_.special.bos);
        set(eos_, TokenType::control, data_.special.eos);
        set(pad_, TokenType::control, data_.special.pad);
        set(unknown_, TokenType::unknown, data_.special.unknown);
        const auto unknown = std::find(data_.types.begin(), data_.types.end(), TokenType::unknown);
        if (data_.special.unknown < 0 && unknown != data_.types.end())
            data_.special.unknown = static_cast<std::int32_t>(unknown - data_.types.begin());
        // Models with BPE begin a text, models with Unigram (T5) end it.
        if (model_type_ == 2 && data_.special.bos >= 0) data_.prefix = {data_.special.bos};
        if (model_type_ == 1 && data_.special.eos >= 0) data_.suffix = {data_.special.eos};
    }

    void set_normalizer() {
        const SpaceBefore space = dummy_prefix_ ? SpaceBefore::always : SpaceBefore::never;
        const std::string mark(kSpaceMark);
        if (charsmap_.empty() && !join_spaces_) {  // the same, faster
            if (dummy_prefix_)
                data_.normalizer.push_back(
                    {.kind = NormalizeStep::Kind::prepend, .pattern = {}, .content = mark, .space = space});
            data_.normalizer.push_back({.kind = NormalizeStep::Kind::replace, .pattern = " ", .content = mark});
        } else {
            data_.normalizer.push_back({.kind = NormalizeStep::Kind::sentencepiece,
                                        .pattern = std::string(charsmap_),
                                        .content = mark,
                                        .space = space,
                                        .join_spaces = join_spaces_});
        }
        data_.decoder.replacements = {{mark, " "}};
        if (!dummy_prefix_) return;
        data_.decoder.start = DecoderRules::Start::strip;
        data_.decoder.strip_count = 1;
    }

    TokenizerData data_;
    std::vector<double> scores_;
    std::string_view charsmap_;
    std::int64_t model_type_ = 1, unknown_ = 0, bos_ = 1, eos_ = 2, pad_ = -1;
    bool dummy_prefix_ = true, join_spaces_ = true, escape_spaces_ = true, space_after_ = false;
};

}  // namespace

TokenizerData parse_sentencepiece(std::string_view model, std::string path) {
    return Reader(std::move(path)).read(model);
}

}  // namespace foresay::core
