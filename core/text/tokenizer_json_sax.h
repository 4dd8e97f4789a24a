// core/text/tokenizer_json_sax.h: a SAX handler that sorts a tokenizer.json into vocabulary, merges and the rest.
//
// Private to tokenizer_json.cpp: it includes the JSON library.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/text/tokenizer_data.h"

namespace foresay::core {

class TokenizerJsonSax : public nlohmann::json_sax<nlohmann::json> {
public:
    // Strings go to data.pool, merges to data.merges.
    explicit TokenizerJsonSax(TokenizerData& data) : data_(data) {}

    struct VocabularyEntry {
        std::string_view text;
        std::int64_t id;
    };
    std::vector<VocabularyEntry> vocabulary;
    struct Piece {
        std::string_view text;
        double score;
    };
    std::vector<Piece> pieces;  // instead, where model.vocab is a list of [text, score]
    nlohmann::json rest;        // the document without model.vocab and model.merges

    bool null() override { return value(nullptr); }
    bool boolean(bool v) override { return value(v); }
    bool number_integer(number_integer_t v) override { return number(static_cast<double>(v), v); }
    bool number_unsigned(number_unsigned_t v) override;
    bool number_float(number_float_t v, const string_t&) override { return number(v, v); }
    bool string(string_t& v) override;
    bool binary(binary_t&) override { return false; }
    bool start_object(std::size_t) override;
    bool key(string_t& v) override;
    bool end_object() override { return end(); }
    bool start_array(std::size_t) override;
    bool end_array() override { return end(); }
    bool parse_error(std::size_t position, const std::string& token, const nlohmann::json::exception& e) override;

private:
    enum class Part { rest, vocabulary, merges, merge_pair, pieces, piece };

    [[noreturn]] void refuse(const std::string& what) const;
    void refuse_inside() const;
    bool value(nlohmann::json v);
    bool number(double score, nlohmann::json v);
    nlohmann::json* place(nlohmann::json v);
    bool start(nlohmann::json v);
    bool end();
    bool at(std::string_view member) const;  // whether the next value is model.<member>

    TokenizerData& data_;
    Part part_ = Part::rest;
    std::vector<nlohmann::json*> open_;  // the containers of `rest` that are still open, outermost first
    std::string key_, outer_key_;
    std::string_view vocabulary_key_;
    std::vector<std::string_view> pair_;
    bool scored_ = false;  // the piece that is being read has its score
    std::size_t values_ = 0;
};

}  // namespace foresay::core
