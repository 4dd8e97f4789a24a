// Regular expressions and lists of texts.
#include "base/error.h"
#include "grammar/front_ends.h"
#include "grammar/pattern.h"

namespace foresay::grammar {

Symbol symbol_of(Machine& machine, Expression expression, bool free) {
    Expressions& expressions = machine.expressions();
    if (expressions.matches_nothing(expression)) return {};
    if (!expressions.nullable(expression)) return Symbol::lexeme(machine.lexer().add(expression, free));
    const std::uint32_t rule = machine.rules().add_rule();
    const std::uint32_t first = machine.rules().first_state(rule);
    machine.rules().set_final(first);
    if (expression != Expressions::kEmpty) {
        const std::uint32_t end = machine.rules().add_state(rule);
        machine.rules().set_final(end);
        machine.rules().add_edge(first, Symbol::lexeme(machine.lexer().add(expression, free)), end);
    }
    return Symbol::rule(rule);
}

Symbol read_regex(Machine& machine, std::string_view text) {
    return symbol_of(machine, read_pattern(machine.expressions(), text, Match::whole, Writing::plain));
}

Symbol read_choices(Machine& machine, std::string_view text) {
    std::vector<std::string> choices;
    while (!text.empty()) {
        const std::size_t end = text.find('\n');
        std::string_view line = text.substr(0, end);
        text.remove_prefix(end == text.npos ? text.size() : end + 1);
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (!line.empty()) choices.emplace_back(line);
    }
    if (choices.empty()) throw Error("a grammar of choices has none: write one choice on each line");
    return symbol_of(machine, machine.expressions().literals(std::move(choices)));
}

}  // namespace foresay::grammar
