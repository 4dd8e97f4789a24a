// GBNF, the notation of llama.cpp: rules of literals, character classes, groups, alternatives and repetitions.
//
// What is not recursive becomes one lexeme, so that most grammars are a few automata with a parser around what nests.
// Left recursion is as good as any other.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "base/error.h"
#include "grammar/characters.h"
#include "grammar/front_ends.h"

namespace foresay::grammar {
namespace {

constexpr int kMostNesting = 200;
constexpr std::uint32_t kMostRepetitions = 1'000'000;
constexpr std::size_t kMostEdges = 400'000;  // of rules, where repetitions of recursive parts are written out

struct Node;
using NodePtr = std::unique_ptr<Node>;

struct Node {
    enum class Kind { text, set, rule, sequence, either, repeat } kind = Kind::sequence;
    std::string text;                   // text: UTF-8
    CharacterSet set;                   // set
    std::size_t rule = 0;               // rule: an index
    std::vector<NodePtr> parts;         // sequence, either, repeat (one)
    std::uint32_t least = 0, most = 0;  // repeat
};

struct Rule {
    std::string name;
    std::size_t line = 0;  // of its first use or of its definition
    NodePtr body;
    bool recursive = false;
    std::optional<Expression> expression;    // where it is not recursive
    std::optional<std::uint32_t> automaton;  // where it is
};

bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

class Reader {
public:
    explicit Reader(std::string_view text) : rest_(text) {}

    std::vector<Rule> read() {
        space(true);
        while (!rest_.empty()) rule();
        for (const Rule& rule : rules_) {
            if (!rule.body)
                throw Error("the grammar has no rule \"" + rule.name + "\", which line " + std::to_string(rule.line) +
                            " uses");
        }
        return std::move(rules_);
    }

private:
    [[noreturn]] void fail(const std::string& what) const {
        throw Error("the grammar cannot be read: " + what + ", in line " + std::to_string(line_));
    }
    void advance(std::size_t n) {
        line_ +=
            static_cast<std::size_t>(std::count(rest_.begin(), rest_.begin() + static_cast<std::ptrdiff_t>(n), '\n'));
        rest_.remove_prefix(n);
    }
    bool take(std::string_view text) {
        if (!rest_.starts_with(text)) return false;
        advance(text.size());
        return true;
    }
    void space(bool lines) {
        while (!rest_.empty()) {
            const char c = rest_[0];
            if (c == '#') {
                const std::size_t end = rest_.find('\n');
                advance(end == rest_.npos ? rest_.size() : end);
            } else if (c == ' ' || c == '\t' || c == '\r' || (lines && c == '\n')) {
                advance(1);
            } else {
                break;
            }
        }
    }
    std::string name() {
        std::size_t size = 0;
        while (size < rest_.size() && is_name(rest_[size])) ++size;
        if (size == 0) fail("the name of a rule is missing");
        std::string text(rest_.substr(0, size));
        advance(size);
        return text;
    }
    std::size_t rule_index(const std::string& name) {
        const auto [found, fresh] = names_.try_emplace(name, rules_.size());
        if (fresh) rules_.push_back({name, line_, nullptr, false, {}, {}});
        return found->second;
    }

    void rule() {
        const std::string text = name();
        space(false);
        if (!take("::=")) fail("::= is missing after the rule's name \"" + text + "\"");
        space(true);
        const std::size_t index = rule_index(text);
        if (rules_[index].body) fail("the rule \"" + text + "\" is there twice");
        NodePtr body = either(false);
        rules_[index].body = std::move(body);
        if (!rest_.empty() && rest_[0] != '\n') fail("something else begins within the rule \"" + text + "\"");
        space(true);
    }

    // Alternatives may go on in the next line where that begins with a bar.
    bool bar(bool nested) {
        space(nested);
        if (take("|")) return true;
        if (nested) return false;
        const std::string_view before = rest_;
        const std::size_t line = line_;
        space(true);
        if (take("|")) return true;
        rest_ = before;
        line_ = line;
        return false;
    }

    NodePtr either(bool nested) {
        if (++depth_ > kMostNesting) fail("groups are nested too deeply");
        auto node = std::make_unique<Node>();
        node->kind = Node::Kind::either;
        do {
            space(true);
            node->parts.push_back(sequence(nested));
        } while (bar(nested));
        --depth_;
        if (node->parts.size() == 1) return std::move(node->parts[0]);
        return node;
    }

    NodePtr sequence(bool nested) {
        auto node = std::make_unique<Node>();
        for (space(nested); !rest_.empty(); space(nested)) {
            const char c = rest_[0];
            if (c == '\n' || c == '|' || c == ')') break;
            if (is_name(c) && begins_rule()) break;
            node->parts.push_back(repeated(nested));
        }
        if (node->parts.size() == 1) return std::move(node->parts[0]);
        return node;
    }

    // Inside of parentheses a line may end anywhere, so a name may also begin the next rule: a parenthesis is missing.
    bool begins_rule() const {
        std::size_t i = 0;
        while (i < rest_.size() && is_name(rest_[i])) ++i;
        while (i < rest_.size() && (rest_[i] == ' ' || rest_[i] == '\t')) ++i;
        return rest_.substr(i).starts_with("::=");
    }

    NodePtr repeated(bool nested) {
        NodePtr node = atom();
        while (true) {
            space(nested);
            std::uint32_t least = 0;
            std::uint32_t most = Expressions::kUnlimited;
            if (take("*")) {
            } else if (take("+")) {
                least = 1;
            } else if (take("?")) {
                most = 1;
            } else if (take("{")) {
                space(nested);
                least = number();
                most = least;
                space(nested);
                if (take(",")) {
                    space(nested);
                    most = rest_.starts_with('}') ? Expressions::kUnlimited : number();
                    space(nested);
                }
                if (!take("}")) fail("} is missing");
                if (most < least) fail("the numbers of a repetition are in the wrong order");
            } else {
                return node;
            }
            if (++depth_ > kMostNesting) fail("repetitions are nested too deeply");
            auto outer = std::make_unique<Node>();
            outer->kind = Node::Kind::repeat;
            outer->least = least;
            outer->most = most;
            outer->parts.push_back(std::move(node));
            node = std::move(outer);
            --depth_;
        }
    }

    std::uint32_t number() {
        std::uint64_t value = 0;
        bool any = false;
        for (; !rest_.empty() && rest_[0] >= '0' && rest_[0] <= '9'; advance(1), any = true)
            value = std::min<std::uint64_t>(value * 10 + static_cast<std::uint64_t>(rest_[0] - '0'), 1u << 30);
        if (!any) fail("a number is missing");
        if (value > kMostRepetitions) fail("more than 1000000 repetitions");
        return static_cast<std::uint32_t>(value);
    }

    NodePtr atom() {
        auto node = std::make_unique<Node>();
        const char c = rest_[0];
        if (take("\"")) {
            node->kind = Node::Kind::text;
            while (!take("\"")) append_utf8(node->text, character("a text is not closed"));
        } else if (take("[")) {
            node->kind = Node::Kind::set;
            const bool inverted = take("^");
            while (!take("]")) {
                const std::uint32_t first = character("a class is not closed");
                std::uint32_t last = first;
                if (rest_.starts_with('-') && !rest_.starts_with("-]")) {
                    advance(1);
                    last = character("a class is not closed");
                }
                if (last < first) fail("a range of characters is in the wrong order");
                node->set.add(first, last);
            }
            node->set.normalize();
            if (inverted) node->set = node->set.inverted();
        } else if (take(".")) {
            node->kind = Node::Kind::set;
            node->set = CharacterSet::all();
        } else if (take("(")) {
            node = either(true);
            space(true);
            if (!take(")")) fail(") is missing");
        } else if (is_name(c)) {
            node->kind = Node::Kind::rule;
            node->rule = rule_index(name());
        } else if (c == '<' || c == '!') {
            fail("tokens by name (<...>) are not supported: write their text");
        } else {
            fail("a text, a class, a group or the name of a rule is missing");
        }
        return node;
    }

    std::uint32_t character(const char* unfinished) {
        if (rest_.empty() || rest_[0] == '\n') fail(unfinished);
        if (!take("\\")) {
            const std::size_t before = rest_.size();
            std::string_view rest = rest_;
            const std::int64_t c = take_utf8(rest);
            if (c < 0) fail("a character is not UTF-8");
            advance(before - rest.size());
            return static_cast<std::uint32_t>(c);
        }
        if (rest_.empty()) fail(unfinished);
        const char c = rest_[0];
        advance(1);
        switch (c) {
            case 'n':
                return '\n';
            case 'r':
                return '\r';
            case 't':
                return '\t';
            case 'x':
                return hex(2);
            case 'u':
                return hex(4);
            case 'U':
                return hex(8);
            case '\\':
            case '"':
            case '[':
            case ']':
            case '-':
            case '^':
            case '/':
            case '\'':
                return static_cast<std::uint32_t>(c);
            default:
                fail(std::string("the escape \\") + c + " means nothing");
        }
    }

    std::uint32_t hex(int digits) {
        std::uint64_t value = 0;
        for (int i = 0; i < digits; ++i) {
            const char c = rest_.empty() ? ' ' : rest_[0];
            const char low = static_cast<char>(c | 32);
            if (c >= '0' && c <= '9') {
                value = value * 16 + static_cast<std::uint64_t>(c - '0');
            } else if (low >= 'a' && low <= 'f') {
                value = value * 16 + static_cast<std::uint64_t>(low - 'a' + 10);
            } else {
                fail("a hexadecimal digit is missing");
            }
            advance(1);
        }
        if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) fail("an escape is no character");
        return static_cast<std::uint32_t>(value);
    }

    std::string_view rest_;
    std::size_t line_ = 1;
    int depth_ = 0;
    std::vector<Rule> rules_;
    std::map<std::string, std::size_t> names_;
};

class Builder {
public:
    Builder(Machine& machine, std::vector<Rule> rules) : machine_(machine), rules_(std::move(rules)) {}

    Symbol build(std::size_t root) {
        machine_.expressions().spend(16 * rules_.size());
        find_recursive();
        for (Rule& rule : rules_) {
            if (rule.recursive) rule.automaton = machine_.rules().add_rule();
        }
        for (const std::size_t r : order_) {
            if (!rules_[r].recursive) rules_[r].expression = expression(*rules_[r].body);
        }
        for (const Rule& rule : rules_) {
            if (!rule.recursive) continue;
            const std::uint32_t first = machine_.rules().first_state(*rule.automaton);
            for (const std::uint32_t end : append(*rule.body, {first}, *rule.automaton))
                machine_.rules().set_final(end);
        }
        const Rule& rule = rules_[root];
        return rule.recursive ? Symbol::rule(*rule.automaton) : symbol_of(machine_, *rule.expression);
    }

private:
    static void uses(const Node& node, std::vector<std::size_t>& used) {
        if (node.kind == Node::Kind::rule) used.push_back(node.rule);
        for (const NodePtr& part : node.parts) uses(*part, used);
    }

    // A rule is recursive when it is part of a cycle, or uses one that is. order_ has what a rule uses before it.
    void find_recursive() {
        std::vector<std::vector<std::size_t>> used(rules_.size());
        std::vector<std::vector<std::size_t>> users(rules_.size());
        std::vector<std::size_t> waits(rules_.size());
        for (std::size_t r = 0; r < rules_.size(); ++r) {
            uses(*rules_[r].body, used[r]);
            std::sort(used[r].begin(), used[r].end());
            used[r].erase(std::unique(used[r].begin(), used[r].end()), used[r].end());
            waits[r] = used[r].size();
            for (const std::size_t u : used[r]) users[u].push_back(r);
            if (waits[r] == 0) order_.push_back(r);
        }
        for (std::size_t i = 0; i < order_.size(); ++i) {
            for (const std::size_t user : users[order_[i]]) {
                if (--waits[user] == 0) order_.push_back(user);
            }
        }
        for (std::size_t r = 0; r < rules_.size(); ++r) rules_[r].recursive = waits[r] != 0;
    }

    bool recursive(const Node& node) const {
        if (node.kind == Node::Kind::rule) return rules_[node.rule].recursive;
        return std::any_of(node.parts.begin(), node.parts.end(), [&](const NodePtr& p) { return recursive(*p); });
    }

    Expression expression(const Node& node) {
        Expressions& e = machine_.expressions();
        switch (node.kind) {
            case Node::Kind::text:
                return e.literal(node.text);
            case Node::Kind::set:
                return utf8(e, node.set);
            case Node::Kind::rule:
                return *rules_[node.rule].expression;
            case Node::Kind::repeat:
                return e.repeat(expression(*node.parts[0]), node.least, node.most);
            case Node::Kind::either: {
                std::vector<Expression> parts;
                for (const NodePtr& part : node.parts) parts.push_back(expression(*part));
                return e.alternatives(std::move(parts));
            }
            case Node::Kind::sequence:
                break;
        }
        Expression all = Expressions::kEmpty;
        for (std::size_t i = node.parts.size(); i-- > 0;) all = e.concat(expression(*node.parts[i]), all);
        return all;
    }

    using States = std::vector<std::uint32_t>;

    // From each state over the symbol to a new one. A lexeme that may be empty may also be left out.
    States append(Expression expression, const States& from, std::uint32_t rule) {
        if (expression == Expressions::kEmpty) return from;
        if (machine_.expressions().matches_nothing(expression)) return {};
        const States to = append(Symbol::lexeme(machine_.lexer().add(expression)), from, rule);
        return machine_.expressions().nullable(expression) ? join(from, to) : to;
    }

    States append(Symbol symbol, const States& from, std::uint32_t rule) {
        if (from.empty()) return {};
        if ((edges_ += from.size()) > kMostEdges)
            throw Error("the grammar is too large: it repeats recursive rules too often");
        const std::uint32_t to = machine_.rules().add_state(rule);
        for (const std::uint32_t state : from) machine_.rules().add_edge(state, symbol, to);
        return {to};
    }

    // Both are sorted.
    States join(States a, const States& b) {
        const bool follows = a.empty() || b.empty() || a.back() < b.front();
        machine_.expressions().spend(1 + (follows ? 0 : a.size()) + b.size());
        a.insert(a.end(), b.begin(), b.end());
        if (follows) return a;
        std::sort(a.begin(), a.end());
        a.erase(std::unique(a.begin(), a.end()), a.end());
        return a;
    }

    // The states after the node, in the automaton of `rule`.
    States append(const Node& node, States from, std::uint32_t rule) {
        if (!recursive(node)) return append(expression(node), from, rule);
        switch (node.kind) {
            case Node::Kind::rule:
                return append(Symbol::rule(*rules_[node.rule].automaton), from, rule);
            case Node::Kind::either: {
                States to;
                std::vector<Expression> plain;  // alternatives that need no parser are one lexeme
                for (const NodePtr& part : node.parts) {
                    if (recursive(*part)) {
                        to = join(std::move(to), append(*part, from, rule));
                    } else {
                        plain.push_back(expression(*part));
                    }
                }
                if (plain.empty()) return to;
                return join(std::move(to), append(machine_.expressions().alternatives(std::move(plain)), from, rule));
            }
            case Node::Kind::sequence: {
                for (std::size_t i = 0; i < node.parts.size();) {
                    if (recursive(*node.parts[i])) {
                        from = append(*node.parts[i++], std::move(from), rule);
                        continue;
                    }
                    std::size_t end = i;
                    while (end < node.parts.size() && !recursive(*node.parts[end])) ++end;
                    Expression all = Expressions::kEmpty;
                    for (std::size_t k = end; k-- > i;)
                        all = machine_.expressions().concat(expression(*node.parts[k]), all);
                    from = append(all, from, rule);
                    i = end;
                }
                return from;
            }
            default:
                return append_repeat(node, std::move(from), rule);
        }
    }

    States append_repeat(const Node& node, States from, std::uint32_t rule) {
        const Node& inner = *node.parts[0];
        for (std::uint32_t i = 0; i < node.least; ++i) from = append(inner, std::move(from), rule);
        if (node.most == Expressions::kUnlimited) {
            // A rule of its own, whose ends go on as its beginning does.
            const std::uint32_t loop = machine_.rules().add_rule();
            const std::uint32_t first = machine_.rules().first_state(loop);
            machine_.rules().set_final(first);
            const States ends = append(inner, {first}, loop);
            const std::vector<Rules::Edge> begins = machine_.rules().edges(first);
            for (const std::uint32_t end : ends) {
                machine_.rules().set_final(end);
                for (const Rules::Edge& edge : begins) machine_.rules().add_edge(end, edge.symbol, edge.target);
            }
            return append(Symbol::rule(loop), from, rule);
        }
        States all = from;
        for (std::uint32_t i = node.least; i < node.most; ++i) {
            from = append(inner, std::move(from), rule);
            all = join(std::move(all), from);
        }
        return all;
    }

    Machine& machine_;
    std::vector<Rule> rules_;
    std::vector<std::size_t> order_;
    std::size_t edges_ = 0;
};

}  // namespace

Symbol read_gbnf(Machine& machine, std::string_view text) {
    std::vector<Rule> rules = Reader(text).read();
    const auto root = std::find_if(rules.begin(), rules.end(), [](const Rule& rule) { return rule.name == "root"; });
    if (root == rules.end()) throw Error("the grammar has no rule \"root\": write root ::= and what the text is");
    const auto index = static_cast<std::size_t>(root - rules.begin());
    return Builder(machine, std::move(rules)).build(index);
}

}  // namespace foresay::grammar
