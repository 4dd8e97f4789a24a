// grammar/lexer.h: a lazily built automaton over sets of lexemes.
//
// A lexeme is an expression. A state is a set of (lexeme, what is left of it); its transitions are computed when they
// are first taken. A state knows which lexemes may end with the byte that led to it. There is no longest match: a
// lexeme that may end may also go on, and the parser follows both.
//
// Threads:  one caller at a time.
// Cost:     next() is two loads once the transition is known.
// Errors:   Error where more states are needed than memory is meant for.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/expressions.h"

namespace foresay::grammar {

class Lexer {
public:
    static constexpr std::uint32_t kDead = 0;

    // `expressions` outlives the lexer.
    explicit Lexer(Expressions& expressions) : expressions_(expressions) {}

    // `free`: text in which special tokens may occur.
    std::uint32_t add(Expression expression, bool free = false);
    Expression expression(std::uint32_t lexeme) const { return lexemes_[lexeme]; }
    // No lexeme is added after this.
    void start();

    // The state in which each of the lexemes (sorted) may begin.
    std::uint32_t begin(std::span<const std::uint32_t> lexemes);
    std::uint32_t next(std::uint32_t state, std::uint8_t byte) {
        const std::uint32_t known = table_[state * classes_.representatives.size() + classes_.of[byte]];
        return known != kUnknown ? known : build(state, classes_.of[byte]);
    }
    // Whether some lexeme may end here; which ones: a number that is the same for the same lexemes.
    bool accepts(std::uint32_t state) const { return info_[state].accepted != 0; }
    std::uint32_t accepted(std::uint32_t state) const { return info_[state].accepted; }
    std::span<const std::uint32_t> accepted_lexemes(std::uint32_t list) const { return lists_[list]; }
    // Whether some lexeme may go on.
    bool goes_on(std::uint32_t state) const { return info_[state].goes_on; }
    bool free(std::uint32_t state) const { return info_[state].free; }
    // Whether some lexeme takes any text of `characters` from here, whatever else may come.
    bool takes_any(std::uint32_t state, Expression characters) {
        for (std::uint32_t i = 0; i < info_[state].count; ++i) {
            if (expressions_.takes_any(rests_[info_[state].first + i].second, characters)) return true;
        }
        return false;
    }
    std::size_t classes() const { return classes_.representatives.size(); }
    std::uint8_t class_of(std::uint8_t byte) const { return classes_.of[byte]; }
    std::size_t size() const { return info_.size(); }

private:
    static constexpr std::uint32_t kUnknown = UINT32_MAX;
    using Rest = std::pair<std::uint32_t, Expression>;  // a lexeme, and what is left of it
    struct Info {
        std::uint32_t first = 0;  // in rests_
        std::uint32_t count = 0;
        std::uint32_t accepted = 0;  // in lists_; 0: none
        bool goes_on = false;
        bool free = false;
    };

    std::uint32_t build(std::uint32_t state, std::uint8_t byte_class);
    std::uint32_t find(const std::vector<Rest>& rests, const std::vector<std::uint32_t>& accepted);

    Expressions& expressions_;
    std::vector<Expression> lexemes_;
    std::vector<bool> free_;
    std::unordered_map<std::uint64_t, std::uint32_t> ids_;  // by expression and whether it is free
    Expressions::Classes classes_;
    std::vector<std::uint32_t> table_;
    std::vector<Info> info_;
    std::vector<Rest> rests_;
    std::vector<std::vector<std::uint32_t>> lists_;
    std::unordered_map<std::string, std::uint32_t> states_;
    std::unordered_map<std::string, std::uint32_t> list_ids_;
};

}  // namespace foresay::grammar
