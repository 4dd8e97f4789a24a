#include "core/jinja/template.h"

#include <set>

#include "core/jinja/interpreter.h"
#include "core/jinja/lexer.h"
#include "core/jinja/parser.h"

namespace foresay::jinja {

namespace {

std::string sentence(const std::string& message, int line, int column) {
    if (line == 0) return message;
    return "chat template, line " + std::to_string(line) + ", column " + std::to_string(column) + ": " + message;
}

}  // namespace

TemplateError::TemplateError(const std::string& message, int line, int column)
    : Error(sentence(message, line, column)), message_(message), line_(line) {}

struct Template::State {
    Limits limits;
    std::set<std::string, std::less<>> words;
    Body body;
};

Template::Template(std::string_view source, const Limits& limits) : state_(std::make_unique<State>()) {
    if (source.size() > limits.source_bytes) {
        throw TemplateError("the template has " + std::to_string(source.size()) + " bytes; at most " +
                            std::to_string(limits.source_bytes) + " are read");
    }
    state_->limits = limits;
    std::vector<Token> tokens = lex(source);
    for (const Token& token : tokens) {
        if (token.kind == Token::Kind::name || token.kind == Token::Kind::string) state_->words.insert(token.text);
    }
    state_->body = Parser(std::move(tokens), limits.depth).parse();
}

Template::~Template() = default;
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;

Text Template::render(const Dict& variables, const std::tm& now) const {
    return Interpreter(variables, state_->limits, now).render(state_->body);
}

bool Template::mentions(std::string_view name) const { return state_->words.count(name) > 0; }

}  // namespace foresay::jinja
