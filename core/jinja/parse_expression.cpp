// The expressions of core/jinja/parser.h.
#include <algorithm>
#include <charconv>

#include "core/jinja/parser.h"
#include "core/jinja/template.h"

namespace foresay::jinja {

ExpressionPtr Parser::make(Kind kind, Place place) const {
    auto node = std::make_unique<Expression>();
    node->kind = kind;
    node->place = place;
    return node;
}

void Parser::adopt(Expression& node, ExpressionPtr child) const {
    if (child) node.depth = std::max(node.depth, 1 + child->depth);
    if (node.depth > most_levels_) fail("the expression is nested too deeply");
    node.children.push_back(std::move(child));
}

void Parser::adopt(Expression& node, ArgumentList arguments) const {
    const auto count = [&](const ExpressionPtr& child) {
        if (child) node.depth = std::max(node.depth, 1 + child->depth);
    };
    for (const ExpressionPtr& child : arguments.positional) count(child);
    for (const auto& [name, child] : arguments.named) count(child);
    count(arguments.rest);
    count(arguments.named_rest);
    if (node.depth > most_levels_) fail("the expression is nested too deeply");
    node.arguments = std::move(arguments);
}

ExpressionPtr Parser::binary(Operation operation, ExpressionPtr left, ExpressionPtr right, Place place) const {
    ExpressionPtr node = make(Kind::operation, place);
    node->operation = operation;
    adopt(*node, std::move(left));
    adopt(*node, std::move(right));
    return node;
}

// Expressions with commas are a tuple; without one, the expression itself.
ExpressionPtr Parser::tuple(bool parenthesised, Ends ends) {
    const Level level(*this);
    const Place place = now().place;
    std::vector<ExpressionPtr> items;
    bool comma = false;
    const auto ended = [&] {
        if (now().kind == Token::Kind::output_end || now().kind == Token::Kind::block_end || is(")")) return true;
        return std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return is_name(end); });
    };
    while (!ended()) {
        // The condition of a loop is not the condition of a choice.
        items.push_back(ends.size() > 0 ? logical_or() : expression());
        if (!skip(",")) break;
        comma = true;
    }
    if (!comma && !items.empty()) return std::move(items.front());
    if (items.empty() && !parenthesised) unexpected("an expression");
    ExpressionPtr node = make(Kind::tuple, place);
    for (ExpressionPtr& item : items) adopt(*node, std::move(item));
    return node;
}

ExpressionPtr Parser::choice() {
    const Level level(*this);
    ExpressionPtr node = logical_or();
    while (is_name("if")) {
        const Place place = take().place;
        ExpressionPtr whole = make(Kind::choice, place);
        adopt(*whole, logical_or());
        adopt(*whole, std::move(node));
        if (skip_name("else")) adopt(*whole, choice());
        node = std::move(whole);
    }
    return node;
}

ExpressionPtr Parser::logical_or() {
    ExpressionPtr left = logical_and();
    while (is_name("or")) {
        const Place place = take().place;
        left = binary(Operation::logical_or, std::move(left), logical_and(), place);
    }
    return left;
}

ExpressionPtr Parser::logical_and() {
    ExpressionPtr left = logical_not();
    while (is_name("and")) {
        const Place place = take().place;
        left = binary(Operation::logical_and, std::move(left), logical_not(), place);
    }
    return left;
}

ExpressionPtr Parser::logical_not() {
    if (!is_name("not")) return comparison();
    const Level level(*this);
    ExpressionPtr node = make(Kind::operation, take().place);
    node->operation = Operation::logical_not;
    adopt(*node, logical_not());
    return node;
}

ExpressionPtr Parser::comparison() {
    constexpr std::pair<std::string_view, Operation> kSigns[] = {
        {"==", Operation::equal},      {"!=", Operation::not_equal}, {"<", Operation::less},
        {"<=", Operation::less_equal}, {">", Operation::greater},    {">=", Operation::greater_equal}};
    const Place place = now().place;
    ExpressionPtr left = sum();
    ExpressionPtr node;
    for (;;) {
        Operation operation;
        const auto sign =
            std::find_if(std::begin(kSigns), std::end(kSigns), [&](const auto& known) { return is(known.first); });
        if (sign != std::end(kSigns)) {
            operation = sign->second;
            take();
        } else if (is_name("in")) {
            operation = Operation::in;
            take();
        } else if (is_name("not") && next().kind == Token::Kind::name && next().text == "in") {
            operation = Operation::not_in;
            take();
            take();
        } else {
            return node ? std::move(node) : std::move(left);
        }
        if (!node) {
            node = make(Kind::compare, place);
            adopt(*node, std::move(left));
        }
        node->operations.push_back(operation);
        adopt(*node, sum());
    }
}

ExpressionPtr Parser::sum() {
    ExpressionPtr left = concatenation();
    while (is("+") || is("-")) {
        const Token sign = take();
        left = binary(sign.text == "+" ? Operation::add : Operation::subtract, std::move(left), concatenation(),
                      sign.place);
    }
    return left;
}

ExpressionPtr Parser::concatenation() {
    ExpressionPtr first = product();
    if (!is("~")) return first;
    ExpressionPtr node = make(Kind::operation, now().place);
    node->operation = Operation::concatenate;
    adopt(*node, std::move(first));
    while (skip("~")) adopt(*node, product());
    return node;
}

ExpressionPtr Parser::product() {
    ExpressionPtr left = power();
    while (is("*") || is("/") || is("//") || is("%")) {
        const Token sign = take();
        const Operation operation = sign.text == "*"    ? Operation::multiply
                                    : sign.text == "/"  ? Operation::divide
                                    : sign.text == "//" ? Operation::floor_divide
                                                        : Operation::modulo;
        left = binary(operation, std::move(left), power(), sign.place);
    }
    return left;
}

ExpressionPtr Parser::power() {
    ExpressionPtr left = unary();
    while (is("**")) {
        const Place place = take().place;
        left = binary(Operation::power, std::move(left), unary(), place);
    }
    return left;
}

ExpressionPtr Parser::unary(bool with_filter) {
    const Level level(*this);
    ExpressionPtr node;
    if (is("-") || is("+")) {
        const Token sign = take();
        node = make(Kind::operation, sign.place);
        node->operation = sign.text == "-" ? Operation::negate : Operation::plus;
        adopt(*node, unary(false));
    } else {
        node = primary();
    }
    node = postfix(std::move(node));
    return with_filter ? filters_and_tests(std::move(node)) : std::move(node);
}

ExpressionPtr Parser::number(const Token& token) {
    ExpressionPtr node = make(Kind::literal, token.place);
    const char* end = token.text.data() + token.text.size();
    if (token.kind == Token::Kind::real) {
        double value = 0.0;
        std::from_chars(token.text.data(), end, value);
        node->value = value;
        return node;
    }
    std::int64_t value = 0;
    if (std::from_chars(token.text.data(), end, value).ec != std::errc()) {
        throw TemplateError("the number " + token.text + " is too large", token.place.line, token.place.column);
    }
    node->value = value;
    return node;
}

ExpressionPtr Parser::primary() {
    const Token token = now();
    switch (token.kind) {
        case Token::Kind::name: {
            take();
            ExpressionPtr node = make(Kind::literal, token.place);
            if (token.text == "true" || token.text == "True") {
                node->value = true;
            } else if (token.text == "false" || token.text == "False") {
                node->value = false;
            } else if (token.text != "none" && token.text != "None") {
                node->kind = Kind::name;
                node->text = token.text;
                names_varargs_ = names_varargs_ || token.text == "varargs";
                names_kwargs_ = names_kwargs_ || token.text == "kwargs";
            }
            return node;
        }
        case Token::Kind::string: {
            std::string text;
            while (now().kind == Token::Kind::string) text += take().text;
            ExpressionPtr node = make(Kind::literal, token.place);
            node->value = Value(std::move(text));
            return node;
        }
        case Token::Kind::integer:
        case Token::Kind::real:
            take();
            return number(token);
        default:
            break;
    }
    if (is("[")) return list();
    if (is("{")) return dict();
    if (!skip("(")) unexpected("an expression");
    ExpressionPtr node = tuple(true);
    expect(")");
    return node;
}

ExpressionPtr Parser::list() {
    const Level level(*this);
    ExpressionPtr node = make(Kind::list, take().place);
    while (!is("]")) {
        if (!node->children.empty()) expect(",");
        if (is("]")) break;
        adopt(*node, expression());
    }
    expect("]");
    return node;
}

ExpressionPtr Parser::dict() {
    const Level level(*this);
    ExpressionPtr node = make(Kind::dict, take().place);
    while (!is("}")) {
        if (!node->children.empty()) expect(",");
        if (is("}")) break;
        adopt(*node, expression());
        expect(":");
        adopt(*node, expression());
    }
    expect("}");
    return node;
}

ExpressionPtr Parser::postfix(ExpressionPtr node) {
    for (;;) {
        if (is(".") || is("[")) {
            node = subscript(std::move(node));
        } else if (is("(")) {
            ExpressionPtr call = make(Kind::call, node->place);
            adopt(*call, std::move(node));
            adopt(*call, arguments());
            node = std::move(call);
        } else {
            return node;
        }
    }
}

ExpressionPtr Parser::filters_and_tests(ExpressionPtr node) {
    for (;;) {
        if (skip("|")) {
            node = filter(std::move(node));
        } else if (is_name("is")) {
            node = test(std::move(node));
        } else if (is("(") && node) {
            ExpressionPtr call = make(Kind::call, node->place);
            adopt(*call, std::move(node));
            adopt(*call, arguments());
            node = std::move(call);
        } else {
            return node;
        }
    }
}

ExpressionPtr Parser::filter(ExpressionPtr operand) {
    ExpressionPtr node = make(Kind::filter, now().place);
    node->text = expect_any_name("the name of a filter");
    while (skip(".")) node->text += "." + expect_any_name("the name of a filter");
    if (is("(")) adopt(*node, arguments());
    adopt(*node, std::move(operand));
    return node;
}

ExpressionPtr Parser::test(ExpressionPtr operand) {
    ExpressionPtr node = make(Kind::test, take().place);
    node->negated = skip_name("not");
    node->text = expect_any_name("the name of a test");
    while (skip(".")) node->text += "." + expect_any_name("the name of a test");
    adopt(*node, std::move(operand));
    if (is("(")) {
        adopt(*node, arguments());
        return node;
    }
    const Token::Kind kind = now().kind;
    const bool word = kind == Token::Kind::name && !is_name("else") && !is_name("or") && !is_name("and");
    const bool begins = word || kind == Token::Kind::string || kind == Token::Kind::integer ||
                        kind == Token::Kind::real || is("[") || is("{");
    if (!begins) return node;
    if (is_name("is")) fail("tests cannot be chained with 'is'");
    ArgumentList one;
    one.positional.push_back(postfix(primary()));
    adopt(*node, std::move(one));
    return node;
}

ExpressionPtr Parser::subscript(ExpressionPtr object) {
    const Token token = take();
    if (token.text == ".") {
        const bool index = now().kind == Token::Kind::integer;
        ExpressionPtr node = make(index ? Kind::item : Kind::attribute, now().place);
        adopt(*node, std::move(object));
        if (index) {
            adopt(*node, number(take()));
        } else {
            node->text = expect_any_name("the name of an attribute");
        }
        return node;
    }
    const Level level(*this);
    ExpressionPtr node = make(Kind::item, token.place);
    adopt(*node, std::move(object));
    ExpressionPtr index = subscript_index();
    if (is(",")) {
        ExpressionPtr all = make(Kind::tuple, index->place);
        adopt(*all, std::move(index));
        while (skip(",")) adopt(*all, subscript_index());
        index = std::move(all);
    }
    adopt(*node, std::move(index));
    expect("]");
    return node;
}

ExpressionPtr Parser::subscript_index() {
    const Place place = now().place;
    ExpressionPtr parts[3];
    int count = 0;
    bool slice = false;
    for (;;) {
        if (!is(":") && !is("]") && !is(",")) parts[count] = expression();
        if (count == 2 || !skip(":")) break;
        slice = true;
        ++count;
    }
    if (!slice) {
        if (!parts[0]) unexpected("an index");
        return std::move(parts[0]);
    }
    ExpressionPtr node = make(Kind::slice, place);
    for (ExpressionPtr& part : parts) adopt(*node, std::move(part));
    return node;
}

ArgumentList Parser::arguments() {
    const Level level(*this);
    ArgumentList out;
    expect("(");
    bool first = true;
    while (!is(")")) {
        if (!std::exchange(first, false)) expect(",");
        if (is(")")) break;
        if (skip("**")) {
            if (out.named_rest) fail("** stands twice");
            out.named_rest = expression();
        } else if (skip("*")) {
            if (out.rest || out.named_rest) fail("* must stand once, before **");
            out.rest = expression();
        } else if (now().kind == Token::Kind::name && next().kind == Token::Kind::punctuation && next().text == "=") {
            std::string name = take().text;
            take();
            out.named.emplace_back(std::move(name), expression());
        } else {
            if (!out.named.empty() || out.rest || out.named_rest) fail("a positional argument follows a named one");
            out.positional.push_back(expression());
        }
    }
    expect(")");
    return out;
}

}  // namespace foresay::jinja
