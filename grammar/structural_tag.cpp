// Structural tags: a text made of parts in several languages, such as reasoning, then a call whose arguments are JSON.
// The format and its names are those of XGrammar, as far as docs/grammars.md lists them.
#include <algorithm>

#include "base/error.h"
#include "grammar/front_ends.h"
#include "grammar/json_value.h"
#include "grammar/pattern.h"

namespace foresay::grammar {
namespace {

constexpr int kMostNesting = 64;
using Kind = JsonValue::Kind;

class Reader {
public:
    Reader(Machine& machine, Whitespace whitespace)
        : machine_(machine), e_(machine.expressions()), rules_(machine.rules()), whitespace_(whitespace) {}

    Symbol format(const JsonValue& value, const std::string& place) {
        struct Level {
            int& depth;
            ~Level() { --depth; }
        } level{++depth_};
        if (depth_ > kMostNesting) fail(place, "is nested too deeply");
        const std::string& type = text(value, "type", place);
        if (type == "const_string") return symbol_of(machine_, e_.literal(text(value, "value", place)));
        if (type == "token") return symbol_of(machine_, e_.literal(text(value, "token", place)), true);
        if (type == "any_text") return any_text(value, place);
        if (type == "regex")
            return symbol_of(machine_, read_pattern(e_, text(value, "pattern", place), Match::whole, Writing::plain));
        if (type == "json_schema") return read_json_schema(machine_, member(value, "json_schema", place), whitespace_);
        if (type == "grammar") return read_gbnf(machine_, text(value, "grammar", place));
        if (type == "sequence") return sequence(list(value, "elements", place), place + "/elements");
        if (type == "or") return any_of(list(value, "elements", place), place + "/elements");
        if (type == "optional" || type == "plus" || type == "star") {
            const Symbol inner = format(member(value, "content", place), place + "/content");
            return type == "optional" ? optional(inner) : repeat(inner, type == "plus");
        }
        if (type == "tag") return tag(value, place, 0);
        if (type == "triggered_tags") return triggered_tags(value, place);
        fail(place, "has the type \"" + type + "\", which is not known");
    }

private:
    [[noreturn]] static void fail(const std::string& place, const std::string& what) {
        throw Error("the structural tag cannot be used: " + (place.empty() ? "the format" : place) + " " + what);
    }
    static const JsonValue& member(const JsonValue& value, const char* name, const std::string& place) {
        const JsonValue* found = value.find(name);
        if (found == nullptr) fail(place, "has no member \"" + std::string(name) + "\"");
        return *found;
    }
    static const std::string& text(const JsonValue& value, const char* name, const std::string& place) {
        const JsonValue& found = member(value, name, place);
        if (!found.is(Kind::string)) fail(place + "/" + name, "must be a string");
        return found.text;
    }
    static const std::vector<JsonValue>& list(const JsonValue& value, const char* name, const std::string& place) {
        const JsonValue& found = member(value, name, place);
        if (!found.is(Kind::array) || found.items.empty()) fail(place + "/" + name, "must be a list that is not empty");
        return found.items;
    }
    static bool truth(const JsonValue& value, const char* name) {
        const JsonValue* found = value.find(name);
        return found != nullptr && found->is(Kind::boolean) && found->truth;
    }

    // ---- automata
    struct Automaton {
        std::uint32_t rule, state;
    };
    Automaton begin() {
        const std::uint32_t rule = rules_.add_rule();
        return {rule, rules_.first_state(rule)};
    }
    void go(Automaton& at, Symbol symbol) {
        const std::uint32_t next = rules_.add_state(at.rule);
        rules_.add_edge(at.state, symbol, next);
        at.state = next;
    }
    Symbol end(const Automaton& at) {
        rules_.set_final(at.state);
        return Symbol::rule(at.rule);
    }
    Symbol sequence(const std::vector<Symbol>& parts) {
        if (std::any_of(parts.begin(), parts.end(), [](Symbol part) { return part.nothing(); })) return {};
        Automaton at = begin();
        for (const Symbol part : parts) go(at, part);
        return end(at);
    }
    Symbol sequence(const std::vector<JsonValue>& elements, const std::string& place) {
        std::vector<Symbol> parts;
        for (const JsonValue& element : elements)
            parts.push_back(format(element, place + "/" + std::to_string(parts.size())));
        return sequence(parts);
    }
    Symbol any_of(const std::vector<Symbol>& parts) {
        const Automaton at = begin();
        const std::uint32_t last = rules_.add_state(at.rule);
        for (const Symbol part : parts) {
            if (!part.nothing()) rules_.add_edge(at.state, part, last);
        }
        rules_.set_final(last);
        return Symbol::rule(at.rule);
    }
    Symbol any_of(const std::vector<JsonValue>& elements, const std::string& place) {
        std::vector<Symbol> parts;
        for (const JsonValue& element : elements)
            parts.push_back(format(element, place + "/" + std::to_string(parts.size())));
        return any_of(parts);
    }
    Symbol optional(Symbol inner) {
        Automaton at = begin();
        rules_.set_final(at.state);
        if (!inner.nothing()) go(at, inner);
        return end(at);
    }
    Symbol repeat(Symbol inner, bool once) {
        if (inner.nothing()) return once ? Symbol{} : optional(inner);
        Automaton at = begin();
        if (!once) rules_.set_final(at.state);
        go(at, inner);
        rules_.add_edge(at.state, inner, at.state);
        return end(at);
    }

    // ---- free text
    Expression any_byte() { return e_.bytes(ByteSet().set()); }
    Expression containing(const std::vector<std::string>& texts) {
        return e_.concat({Expressions::kAll, e_.literals(texts), Expressions::kAll});
    }
    // Text without any of them.
    Symbol text_without(const std::vector<std::string>& texts) {
        return symbol_of(machine_, texts.empty() ? Expressions::kAll : e_.complement(containing(texts)), true);
    }
    // Text up to and with the first of them: one lexeme, so that there is one way to read it.
    Symbol text_until(const std::vector<std::string>& texts, const std::vector<std::string>& excludes) {
        const Expression ends = e_.concat(Expressions::kAll, e_.literals(texts));
        const Expression more = e_.concat({Expressions::kAll, e_.literals(texts), any_byte(), Expressions::kAll});
        std::vector<Expression> all = {ends, e_.complement(more)};
        if (!excludes.empty()) all.push_back(e_.complement(containing(excludes)));
        return symbol_of(machine_, e_.intersection(std::move(all)), true);
    }
    static std::vector<std::string> texts(const JsonValue& value, const char* name, const std::string& place) {
        std::vector<std::string> out;
        const JsonValue* found = value.find(name);
        if (found == nullptr) return out;
        if (!found->is(Kind::array)) fail(place + "/" + name, "must be a list of strings");
        for (const JsonValue& item : found->items) {
            if (!item.is(Kind::string) || item.text.empty())
                fail(place + "/" + name, "must be a list of strings that are not empty");
            out.push_back(item.text);
        }
        return out;
    }
    Symbol any_text(const JsonValue& value, const std::string& place) {
        return text_without(texts(value, "excludes", place));
    }

    // The first `written` bytes of its beginning have been written.
    Symbol tag(const JsonValue& value, const std::string& place, std::size_t written) {
        const std::string& opening = text(value, "begin", place);
        const std::string& closing = text(value, "end", place);
        const JsonValue& content = member(value, "content", place);
        std::vector<Symbol> parts = {symbol_of(machine_, e_.literal(opening.substr(written)), true)};
        if (const JsonValue* type = content.find("type");
            !closing.empty() && type != nullptr && type->is(Kind::string) && type->text == "any_text") {
            parts.push_back(text_until({closing}, texts(content, "excludes", place + "/content")));
        } else {
            parts.push_back(format(content, place + "/content"));
            parts.push_back(symbol_of(machine_, e_.literal(closing), true));
        }
        return sequence(parts);
    }

    // Free text, in which each trigger is the beginning of a tag.
    Symbol triggered_tags(const JsonValue& value, const std::string& place) {
        const std::vector<std::string> triggers = texts(value, "triggers", place);
        if (triggers.empty()) fail(place + "/triggers", "must be a list that is not empty");
        const std::vector<JsonValue>& tags = list(value, "tags", place);
        const bool needed = truth(value, "at_least_one"), once = truth(value, "stop_after_first");
        std::vector<Symbol> ways;
        for (const std::string& trigger : triggers) {
            std::vector<Symbol> chosen;
            for (std::size_t i = 0; i < tags.size(); ++i) {
                const std::string at = place + "/tags/" + std::to_string(i);
                if (text(tags[i], "begin", at).starts_with(trigger)) chosen.push_back(tag(tags[i], at, trigger.size()));
            }
            if (chosen.empty()) fail(place + "/triggers", "has one that no tag begins with");
            std::vector<std::string> others = triggers;
            std::erase(others, trigger);
            ways.push_back(sequence({text_until({trigger}, others), any_of(chosen)}));
        }
        const Symbol way = any_of(ways), rest = text_without(triggers);
        if (once) return needed ? way : any_of({way, rest});
        return sequence({repeat(way, needed), rest});
    }

    Machine& machine_;
    Expressions& e_;
    Rules& rules_;
    const Whitespace whitespace_;
    int depth_ = 0;
};

}  // namespace

Symbol read_structural_tag(Machine& machine, std::string_view text, Whitespace whitespace) {
    const JsonValue value = read_json(text);
    const JsonValue* type = value.find("type");
    const JsonValue* format = value.find("format");
    if (type == nullptr || !type->is(Kind::string) || type->text != "structural_tag" || format == nullptr)
        throw Error("a structural tag is {\"type\": \"structural_tag\", \"format\": ...}");
    return Reader(machine, whitespace).format(*format, "/format");
}

}  // namespace foresay::grammar
