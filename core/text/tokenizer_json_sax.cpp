#include "core/text/tokenizer_json_sax.h"

#include "base/error.h"
#include "core/text/tokenizer_json.h"

namespace foresay::core {

void TokenizerJsonSax::refuse(const std::string& what) const {
    throw Error(data_.source + ": " + what + "; get the model's tokenizer.json again");
}

bool TokenizerJsonSax::at(std::string_view member) const {
    return part_ == Part::rest && open_.size() == 2 && open_[1]->is_object() && outer_key_ == "model" && key_ == member;
}

nlohmann::json* TokenizerJsonSax::place(nlohmann::json v) {
    if (++values_ > kMaxTokenizerJsonValues) refuse("it holds too much besides vocabulary and merges");
    if (open_.empty()) return &(rest = std::move(v));
    nlohmann::json& parent = *open_.back();
    if (parent.is_array()) return &parent.emplace_back(std::move(v));
    if (parent.contains(key_)) refuse("member '" + key_.substr(0, 64) + "' occurs twice");
    return &(parent[key_] = std::move(v));
}

bool TokenizerJsonSax::value(nlohmann::json v) {
    refuse_inside();
    place(std::move(v));
    return true;
}

// Refuses a value where the vocabulary or the merges have none.
void TokenizerJsonSax::refuse_inside() const {
    if (part_ == Part::vocabulary) refuse("an id in model.vocab is not a whole number");
    if (part_ == Part::pieces || part_ == Part::piece) refuse("an entry of model.vocab is not [\"text\", score]");
    if (part_ != Part::rest) refuse("an entry of model.merges is neither \"a b\" nor [\"a\", \"b\"]");
}

bool TokenizerJsonSax::number(double score, nlohmann::json v) {
    if (part_ != Part::piece) return value(std::move(v));
    if (pair_.size() != 1 || scored_) refuse_inside();
    pieces.push_back({pair_[0], score});
    scored_ = true;
    return true;
}

bool TokenizerJsonSax::number_unsigned(number_unsigned_t v) {
    if (part_ != Part::vocabulary) return number(static_cast<double>(v), v);
    if (v >= static_cast<number_unsigned_t>(kMaxVocabulary)) refuse("an id in model.vocab is " + std::to_string(v));
    vocabulary.push_back({vocabulary_key_, static_cast<std::int64_t>(v)});
    return true;
}

bool TokenizerJsonSax::string(string_t& v) {
    if (part_ == Part::merge_pair) {
        if (pair_.size() == 2) refuse("an entry of model.merges has more than two parts");
        pair_.push_back(data_.keep(std::move(v)));
        return true;
    }
    if (part_ == Part::piece) {
        if (!pair_.empty()) refuse_inside();
        pair_.push_back(data_.keep(std::move(v)));
        return true;
    }
    if (part_ != Part::merges) return value(std::move(v));
    const std::string_view merge = data_.keep(std::move(v));
    const std::size_t space = merge.find(' ');
    if (space == std::string_view::npos || space == 0 || merge.find(' ', space + 1) != std::string_view::npos)
        refuse("an entry of model.merges is not two tokens and a space between");
    data_.merges.push_back({merge.substr(0, space), merge.substr(space + 1)});
    return true;
}

bool TokenizerJsonSax::start(nlohmann::json v) {
    refuse_inside();
    if (open_.size() >= kMaxTokenizerJsonDepth) refuse("it nests too deeply");
    if (open_.size() == 1) outer_key_ = key_;
    open_.push_back(place(std::move(v)));
    return true;
}

bool TokenizerJsonSax::start_object(std::size_t) {
    if (!at("vocab")) return start(nlohmann::json::object());
    if (!vocabulary.empty() || !pieces.empty()) refuse("member 'vocab' occurs twice");
    part_ = Part::vocabulary;
    return true;
}

bool TokenizerJsonSax::start_array(std::size_t) {
    if (part_ == Part::merges || part_ == Part::pieces) {
        part_ = part_ == Part::merges ? Part::merge_pair : Part::piece;
        pair_.clear();
        scored_ = false;
        return true;
    }
    if (at("vocab")) {
        if (!vocabulary.empty() || !pieces.empty()) refuse("member 'vocab' occurs twice");
        part_ = Part::pieces;
        return true;
    }
    if (!at("merges")) return start(nlohmann::json::array());
    if (!data_.merges.empty()) refuse("member 'merges' occurs twice");
    part_ = Part::merges;
    return true;
}

bool TokenizerJsonSax::key(string_t& v) {
    if (part_ == Part::vocabulary)
        vocabulary_key_ = data_.keep(std::move(v));
    else
        key_ = std::move(v);
    return true;
}

bool TokenizerJsonSax::end() {
    if (part_ == Part::merge_pair) {
        if (pair_.size() != 2) refuse("an entry of model.merges has fewer than two parts");
        data_.merges.push_back({pair_[0], pair_[1]});
        part_ = Part::merges;
    } else if (part_ == Part::piece) {
        if (!scored_) refuse_inside();
        if (pieces.size() > static_cast<std::size_t>(kMaxVocabulary)) refuse("model.vocab has too many entries");
        part_ = Part::pieces;
    } else if (part_ != Part::rest) {
        part_ = Part::rest;
    } else {
        open_.pop_back();
    }
    return true;
}

bool TokenizerJsonSax::parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) {
    refuse("it is not valid JSON at byte " + std::to_string(position));
}

}  // namespace foresay::core
