// grammar/rules.h: the rules of a grammar as automata over lexemes and other rules.
//
// A symbol is a lexeme or a rule. Each rule is an automaton whose edges are symbols (a recursive transition network).
// Most are built when the grammar is compiled. Those of JSON objects and arrays are built as they are entered: which
// names have occurred, and how many items there were, is part of their states, so that names may come in any order.
//
// Threads:  one caller at a time.
// Errors:   Error where more states are needed than the limit allows.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "grammar/lexer.h"

namespace foresay::grammar {

struct Symbol {
    static constexpr std::uint32_t kRule = 1u << 31;
    static constexpr std::uint32_t kNothing = UINT32_MAX;
    std::uint32_t id = kNothing;

    static Symbol lexeme(std::uint32_t index) { return {index}; }
    static Symbol rule(std::uint32_t index) { return {index | kRule}; }
    bool nothing() const { return id == kNothing; }  // generates no text at all
    bool is_rule() const { return (id & kRule) != 0; }
    std::uint32_t index() const { return id & ~kRule; }
    bool operator==(const Symbol&) const = default;
};

// A JSON object. Lexemes come twice: as the first member, and with the comma before it.
struct ObjectRule {
    struct Name {
        std::uint32_t first = 0;
        std::uint32_t next = 0;
        Symbol value;
        bool required = false;
    };
    struct Names {  // those that an expression matches; any number of them
        std::uint32_t first = 0;
        std::uint32_t next = 0;
        Symbol value;
    };
    std::uint32_t open = 0, close = 0;
    std::vector<Name> names;
    std::vector<Names> others;
    std::uint32_t least = 0;  // members. Of `others`, the first of each kind counts: names may repeat
    std::uint32_t most = UINT32_MAX;
};

struct ArrayRule {
    std::uint32_t open = 0, close = 0, comma = 0;
    std::vector<Symbol> first;
    Symbol rest;
    std::uint32_t least = 0;
    std::uint32_t most = UINT32_MAX;
};

class Rules {
public:
    struct Edge {
        Symbol symbol;
        std::uint32_t target = 0;
        bool operator==(const Edge&) const = default;
    };
    static constexpr std::size_t kMostStates = 2'000'000;

    // Construction counts as work of `expressions`.
    explicit Rules(Expressions& expressions) : expressions_(expressions) {}

    // ---- construction
    std::uint32_t add_rule();  // with an empty automaton: its first state
    std::uint32_t first_state(std::uint32_t rule) const { return rules_[rule].first; }
    std::uint32_t add_state(std::uint32_t rule);
    void set_final(std::uint32_t state) { states_[state].final = true; }
    void add_edge(std::uint32_t state, Symbol symbol, std::uint32_t target);
    void define(std::uint32_t rule, ObjectRule object);
    void define(std::uint32_t rule, ArrayRule array);
    // Finds the rules that may be empty and those that can never end; the latter, and what needs them, is left out.
    void finish();
    bool productive(Symbol symbol) const {
        return !symbol.nothing() && (!symbol.is_rule() || rules_[symbol.index()].productive);
    }
    std::size_t size() const { return rules_.size(); }

    // ---- use
    bool nullable(std::uint32_t rule) const { return rules_[rule].nullable; }
    // Not valid after the next call.
    const std::vector<Edge>& edges(std::uint32_t state) {
        if (!states_[state].built) build(state);
        return states_[state].edges;
    }
    bool final(std::uint32_t state) const { return states_[state].final; }
    std::uint32_t rule_of(std::uint32_t state) const { return states_[state].rule; }
    // Whether nothing follows this state: it ends its rule.
    bool ends(std::uint32_t state) { return final(state) && edges(state).empty(); }

private:
    struct State {
        std::uint32_t rule = 0;
        bool final = false;
        bool built = true;
        std::vector<Edge> edges;
    };
    struct Rule {
        enum class Kind : std::uint8_t { automaton, object, array } kind = Kind::automaton;
        std::uint32_t index = 0;  // in objects_ or arrays_
        std::uint32_t first = 0;
        bool nullable = false;
        bool productive = false;
        std::vector<std::uint32_t> states;  // of an automaton
    };
    // Where an object or array is: what comes next, how many members there were, which names occurred.
    struct Place {
        enum class Next : std::uint8_t { open, member, value, end } next = Next::open;
        std::uint32_t value = Symbol::kNothing;  // the symbol, for Next::value
        std::uint32_t count = 0;
        std::vector<std::uint64_t> seen;  // a bit for each name, then one for each kind of others
    };

    void build(std::uint32_t state);
    void build_object(std::uint32_t state, const ObjectRule& object, const Place& place);
    void build_array(std::uint32_t state, const ArrayRule& array, const Place& place);
    std::uint32_t place_state(std::uint32_t rule, const Place& place);
    bool object_productive(const ObjectRule& object) const;
    bool array_productive(const ArrayRule& array) const;
    bool automaton(const Rule& rule, bool (Rules::*passes)(Symbol) const) const;
    bool may_be_empty(Symbol symbol) const {
        return !symbol.nothing() && symbol.is_rule() && rules_[symbol.index()].nullable;
    }

    Expressions& expressions_;
    std::vector<Rule> rules_;
    std::deque<State> states_;
    std::vector<ObjectRule> objects_;
    std::vector<ArrayRule> arrays_;
    std::unordered_map<std::string, std::uint32_t> place_ids_;
    std::unordered_map<std::uint32_t, Place> places_;  // of states that are not built
};

}  // namespace foresay::grammar
