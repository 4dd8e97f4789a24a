#include "core/jinja/parser.h"

#include <algorithm>

#include "core/jinja/template.h"

namespace foresay::jinja {

using StatementPtr = std::unique_ptr<Statement>;

namespace {

StatementPtr make_statement(Statement::Kind kind, Place place) {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->place = place;
    return statement;
}

}  // namespace

// ------------------------------------------------------------------------------------------------------------ tokens

Parser::Level::Level(Parser& parser) : parser(parser) {
    if (parser.depth_left_-- <= 0) {
        ++parser.depth_left_;
        parser.fail("the template is nested too deeply");
    }
}

Token Parser::take() {
    const Token token = now();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
}

bool Parser::is(std::string_view punctuation) const {
    return now().kind == Token::Kind::punctuation && now().text == punctuation;
}

bool Parser::is_name(std::string_view name) const { return now().kind == Token::Kind::name && now().text == name; }

bool Parser::skip(std::string_view punctuation) {
    if (!is(punctuation)) return false;
    take();
    return true;
}

bool Parser::skip_name(std::string_view name) {
    if (!is_name(name)) return false;
    take();
    return true;
}

void Parser::expect(std::string_view punctuation) {
    if (!skip(punctuation)) unexpected("'" + std::string(punctuation) + "'");
}

void Parser::expect_name(std::string_view name) {
    if (!skip_name(name)) unexpected("'" + std::string(name) + "'");
}

std::string Parser::expect_any_name(const char* what) {
    if (now().kind != Token::Kind::name) unexpected(what);
    return take().text;
}

void Parser::expect_block_end() {
    if (now().kind != Token::Kind::block_end) unexpected("the end of the statement, '%}'");
    take();
}

void Parser::fail(const std::string& message) const {
    throw TemplateError(message, now().place.line, now().place.column);
}

void Parser::unexpected(const std::string& expected) const {
    std::string found;
    switch (now().kind) {
        case Token::Kind::end:
            found = "the end of the template";
            break;
        case Token::Kind::block_end:
            found = "'%}'";
            break;
        case Token::Kind::output_end:
            found = "'}}'";
            break;
        case Token::Kind::string:
            found = "a string";
            break;
        default:
            found = "'" + now().text + "'";
    }
    fail("expected " + expected + ", found " + found);
}

// -------------------------------------------------------------------------------------------------------- statements

Body Parser::parse() { return body({}); }

// Statements up to a block whose name is one of `ends`, whose {% and name are left to the caller at the name.
Body Parser::body(Ends ends) {
    const Level level(*this);
    Body statements;
    for (;;) {
        switch (now().kind) {
            case Token::Kind::end:
                if (ends.size() == 0) return statements;
                unexpected("{% " + std::string(*(ends.end() - 1)) + " %}");
            case Token::Kind::text: {
                StatementPtr text = make_statement(Statement::Kind::text, now().place);
                text->text = take().text;
                statements.push_back(std::move(text));
                break;
            }
            case Token::Kind::output_begin: {
                StatementPtr output = make_statement(Statement::Kind::output, take().place);
                output->value = tuple(false);
                if (now().kind != Token::Kind::output_end) unexpected("'}}'");
                take();
                statements.push_back(std::move(output));
                break;
            }
            default: {
                take();  // {%
                const bool ended =
                    now().kind == Token::Kind::name && std::find(ends.begin(), ends.end(), now().text) != ends.end();
                if (ended) return statements;
                statements.push_back(statement());
            }
        }
    }
}

StatementPtr Parser::statement() {
    if (now().kind != Token::Kind::name) unexpected("the name of a statement");
    const std::string& name = now().text;
    if (name == "if") return if_statement();
    if (name == "for") return for_statement();
    if (name == "set") return set_statement();
    if (name == "macro") return macro_statement();
    if (name == "call") return call_statement();
    if (name == "filter") return filter_statement();
    if (name == "with") return with_statement();
    const Place place = now().place;
    if (name == "break" || name == "continue") {
        if (loops_ == 0) fail("'" + name + "' outside of a loop");
        StatementPtr jump =
            make_statement(name == "break" ? Statement::Kind::stop_loop : Statement::Kind::next_turn, place);
        take();
        expect_block_end();
        return jump;
    }
    if (name == "generation") {  // marks the assistant's tokens for training; here its body is all there is
        take();
        expect_block_end();
        StatementPtr scope = make_statement(Statement::Kind::scope, place);
        scope->body = body({"endgeneration"});
        take();
        expect_block_end();
        return scope;
    }
    for (const std::string_view known :
         {"extends", "include", "import", "from", "block", "autoescape", "do", "trans"}) {
        if (name == known) fail("the statement '" + name + "' is not supported in chat templates");
    }
    fail("unknown statement '" + name + "'");
}

StatementPtr Parser::if_statement() {
    StatementPtr node = make_statement(Statement::Kind::choice, take().place);
    for (;;) {
        Branch branch;
        branch.condition = tuple(false);
        expect_block_end();
        branch.body = body({"elif", "else", "endif"});
        node->branches.push_back(std::move(branch));
        const std::string end = take().text;
        if (end == "elif") continue;
        if (end == "else") {
            expect_block_end();
            node->otherwise = body({"endif"});
            take();
        }
        expect_block_end();
        return node;
    }
}

StatementPtr Parser::for_statement() {
    StatementPtr node = make_statement(Statement::Kind::loop, take().place);
    node->target = target(false, {"in"});
    expect_name("in");
    node->value = tuple(false, {"recursive", "if"});
    if (skip_name("if")) node->condition = expression();
    node->recursive = skip_name("recursive");
    expect_block_end();
    ++loops_;
    node->body = body({"else", "endfor"});
    --loops_;
    if (take().text == "else") {
        expect_block_end();
        node->otherwise = body({"endfor"});
        take();
    }
    expect_block_end();
    return node;
}

// A name, names with commas, or with `with_attribute` an attribute of a namespace.
ExpressionPtr Parser::target(bool with_attribute, Ends ends) {
    const Place place = now().place;
    if (with_attribute && now().kind == Token::Kind::name && next().kind == Token::Kind::punctuation &&
        next().text == ".") {
        ExpressionPtr object = make(Kind::name, place);
        object->text = take().text;
        take();
        ExpressionPtr node = make(Kind::attribute, place);
        node->text = expect_any_name("the name of an attribute");
        adopt(*node, std::move(object));
        return node;
    }
    const auto one = [&]() -> ExpressionPtr {
        if (skip("(")) {
            ExpressionPtr inner = target(false, {});
            expect(")");
            return inner;
        }
        ExpressionPtr name = make(Kind::name, now().place);
        name->text = expect_any_name("a name to assign to");
        for (const std::string_view word : {"true", "false", "none", "True", "False", "None", "loop"}) {
            if (name->text == word && (word != "loop" || loops_ > 0)) fail("cannot assign to '" + name->text + "'");
        }
        return name;
    };
    const Level level(*this);
    ExpressionPtr first = one();
    if (!is(",")) return first;
    ExpressionPtr all = make(Kind::tuple, place);
    adopt(*all, std::move(first));
    while (skip(",")) {
        const bool ended = std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return is_name(end); });
        if (ended || now().kind != Token::Kind::name) {
            if (!is("(") || ended) break;
        }
        adopt(*all, one());
    }
    return all;
}

StatementPtr Parser::set_statement() {
    StatementPtr node = make_statement(Statement::Kind::set, take().place);
    node->target = target(true, {});
    if (skip("=")) {
        node->value = tuple(false);
        expect_block_end();
        return node;
    }
    node->kind = Statement::Kind::set_block;
    if (is("|")) node->value = filters_and_tests(nullptr);
    expect_block_end();
    node->body = body({"endset"});
    take();
    expect_block_end();
    return node;
}

std::vector<Parameter> Parser::parameters() {
    std::vector<Parameter> out;
    expect("(");
    while (!is(")")) {
        if (!out.empty()) expect(",");
        if (is(")")) break;
        Parameter parameter;
        parameter.name = expect_any_name("the name of a parameter");
        if (skip("=")) {
            parameter.fallback = expression();
        } else if (!out.empty() && out.back().fallback) {
            fail("a parameter without a default follows one that has one");
        }
        out.push_back(std::move(parameter));
    }
    expect(")");
    return out;
}

StatementPtr Parser::macro_statement() {
    StatementPtr node = make_statement(Statement::Kind::macro, take().place);
    node->text = expect_any_name("the name of the macro");
    node->parameters = parameters();
    expect_block_end();
    const int loops = std::exchange(loops_, 0);
    const bool outer_varargs = std::exchange(names_varargs_, false), outer_kwargs = std::exchange(names_kwargs_, false);
    node->body = body({"endmacro"});
    node->extra_positional = std::exchange(names_varargs_, outer_varargs);
    node->extra_named = std::exchange(names_kwargs_, outer_kwargs);
    loops_ = loops;
    take();
    if (now().kind == Token::Kind::name) take();  // {% endmacro name %}
    expect_block_end();
    return node;
}

StatementPtr Parser::call_statement() {
    StatementPtr node = make_statement(Statement::Kind::call_block, take().place);
    if (is("(")) node->parameters = parameters();
    node->value = expression();
    if (node->value->kind != Kind::call) fail("a call block needs a call");
    expect_block_end();
    const int loops = std::exchange(loops_, 0);
    node->body = body({"endcall"});
    loops_ = loops;
    take();
    expect_block_end();
    return node;
}

StatementPtr Parser::filter_statement() {
    StatementPtr node = make_statement(Statement::Kind::filter_block, take().place);
    ExpressionPtr first = filter(nullptr);
    node->value = filters_and_tests(std::move(first));
    expect_block_end();
    node->body = body({"endfilter"});
    take();
    expect_block_end();
    return node;
}

StatementPtr Parser::with_statement() {
    StatementPtr node = make_statement(Statement::Kind::with, take().place);
    while (now().kind != Token::Kind::block_end) {
        if (!node->bindings.empty()) expect(",");
        ExpressionPtr name = target(false, {});
        expect("=");
        node->bindings.emplace_back(std::move(name), expression());
    }
    expect_block_end();
    node->body = body({"endwith"});
    take();
    expect_block_end();
    return node;
}

}  // namespace foresay::jinja
