// core/jinja/parser.h: from tokens to a syntax tree, by recursive descent, with Jinja2's precedence.
//
// Errors:   TemplateError with line and column: what was found, what was expected; nesting deeper than the limit.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/jinja/lexer.h"
#include "core/jinja/syntax.h"

namespace foresay::jinja {

class Parser {
public:
    Parser(std::vector<Token> tokens, int depth)
        : tokens_(std::move(tokens)), depth_left_(depth), most_levels_(4 * depth) {}
    Body parse();

private:
    using Ends = std::initializer_list<std::string_view>;
    using Kind = Expression::Kind;

    // ---- tokens
    const Token& now() const { return tokens_[at_]; }
    const Token& next() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
    Token take();
    bool is(std::string_view punctuation) const;
    bool is_name(std::string_view name) const;
    bool skip(std::string_view punctuation);
    bool skip_name(std::string_view name);
    void expect(std::string_view punctuation);
    void expect_name(std::string_view name);
    std::string expect_any_name(const char* what);
    void expect_block_end();
    [[noreturn]] void fail(const std::string& message) const;
    [[noreturn]] void unexpected(const std::string& expected) const;

    // ---- statements (parser.cpp)
    Body body(Ends ends);
    std::unique_ptr<Statement> statement();
    std::unique_ptr<Statement> if_statement();
    std::unique_ptr<Statement> for_statement();
    std::unique_ptr<Statement> set_statement();
    std::unique_ptr<Statement> macro_statement();
    std::unique_ptr<Statement> call_statement();
    std::unique_ptr<Statement> filter_statement();
    std::unique_ptr<Statement> with_statement();
    std::vector<Parameter> parameters();
    ExpressionPtr target(bool with_attribute, Ends ends);

    // ---- expressions (parse_expression.cpp), loosest first
    ExpressionPtr expression() { return choice(); }
    ExpressionPtr tuple(bool parenthesised, Ends ends = {});
    ExpressionPtr choice();
    ExpressionPtr logical_or();
    ExpressionPtr logical_and();
    ExpressionPtr logical_not();
    ExpressionPtr comparison();
    ExpressionPtr sum();
    ExpressionPtr concatenation();
    ExpressionPtr product();
    ExpressionPtr power();
    ExpressionPtr unary(bool with_filter = true);
    ExpressionPtr primary();
    ExpressionPtr postfix(ExpressionPtr node);
    ExpressionPtr filters_and_tests(ExpressionPtr node);
    ExpressionPtr filter(ExpressionPtr operand);
    ExpressionPtr test(ExpressionPtr operand);
    ExpressionPtr subscript(ExpressionPtr object);
    ExpressionPtr subscript_index();
    ExpressionPtr list();
    ExpressionPtr dict();
    ExpressionPtr number(const Token& token);
    ArgumentList arguments();
    ExpressionPtr make(Kind kind, Place place) const;
    // Gives `node` a child; chains of operators nest without recursion here, and must not without limit.
    void adopt(Expression& node, ExpressionPtr child) const;
    void adopt(Expression& node, ArgumentList arguments) const;
    ExpressionPtr binary(Operation operation, ExpressionPtr left, ExpressionPtr right, Place place) const;

    // Counts levels, so that a hostile source cannot exhaust the stack.
    struct Level {
        explicit Level(Parser& parser);
        ~Level() { ++parser.depth_left_; }
        Parser& parser;
    };

    std::vector<Token> tokens_;
    std::size_t at_ = 0;
    int depth_left_;
    int most_levels_;                                    // of nodes
    bool names_varargs_ = false, names_kwargs_ = false;  // since the macro began
    int loops_ = 0;                                      // that the statement is inside of, within its macro
};

}  // namespace foresay::jinja
