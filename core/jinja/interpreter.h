// core/jinja/interpreter.h: runs a parsed template.
//
// Scopes:   a template, each pass of a loop, macros, `with`, `generation` and the bodies of blocks that yield text have
//           names of their own; `if` has none. A name is looked up from the innermost scope outwards, then among the
//           variables, then among the functions that every template has.
// Life:     one for each rendering.
// Errors:   TemplateError with the place of the expression that failed.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "core/jinja/runtime.h"
#include "core/jinja/syntax.h"

namespace foresay::jinja {

struct Scope {
    std::shared_ptr<Scope> parent;
    std::vector<std::pair<std::string_view, Value>> names;  // views of the template's syntax tree

    Value* find(std::string_view name);
    void set(std::string_view name, Value value);
};
using ScopePtr = std::shared_ptr<Scope>;

class Interpreter {
public:
    Interpreter(const Dict& variables, const Limits& limits, const std::tm& now)
        : runtime_(limits, now), variables_(variables) {}
    Text render(const Body& body);

    // How a body was left.
    enum class Flow : std::uint8_t { done, stop_loop, next_turn };

    // For macros and recursive loops.
    Text capture(const Body& body, const ScopePtr& scope);
    Text loop(const Statement& statement, const Value& items, const ScopePtr& outer, int depth);
    Value evaluate(const Expression& expression, const ScopePtr& scope);
    Runtime& runtime() { return runtime_; }

private:
    // ---- statements (interpreter.cpp)
    Flow run(const Body& body, const ScopePtr& scope, Text& out);
    Flow run(const Statement& statement, const ScopePtr& scope, Text& out);
    Flow run_choice(const Statement& statement, const ScopePtr& scope, Text& out);
    void run_loop(const Statement& statement, const Value& items, const ScopePtr& outer, int depth, Text& out);
    std::vector<Value> loop_items(const Statement& statement, const Value& items, const ScopePtr& outer);
    void run_set(const Statement& statement, const ScopePtr& scope);
    void run_call_block(const Statement& statement, const ScopePtr& scope, Text& out);
    void run_with(const Statement& statement, const ScopePtr& scope, Text& out);
    void assign(const Expression& target, const Value& value, const ScopePtr& scope);
    Value make_macro(const Statement& statement, const ScopePtr& scope, std::string name);
    void write(const Text& text, Text& out);

    // ---- expressions (evaluate.cpp)
    Value evaluate_node(const Expression& expression, const ScopePtr& scope);
    Value look_up(const Expression& expression, const ScopePtr& scope);
    Value evaluate_operation(const Expression& expression, const ScopePtr& scope);
    Value evaluate_compare(const Expression& expression, const ScopePtr& scope);
    Value evaluate_item(const Expression& expression, const ScopePtr& scope);
    Value evaluate_call(const Expression& expression, const ScopePtr& scope, const Value* caller = nullptr);
    Value evaluate_filter(const Expression& expression, const ScopePtr& scope);
    bool evaluate_test(const Expression& expression, const ScopePtr& scope);
    Value evaluate_list(const Expression& expression, const ScopePtr& scope);
    Value evaluate_dict(const Expression& expression, const ScopePtr& scope);
    CallArguments evaluate_arguments(const ArgumentList& arguments, const ScopePtr& scope);
    // A filter, or a chain of them, applied to a text that a block has made.
    Value filtered(const Expression& chain, const Text& text, const ScopePtr& scope);

    // Counts levels of evaluation, so that no template exhausts the stack.
    struct Level {
        explicit Level(Interpreter& interpreter);
        ~Level() { --interpreter.level_; }
        Interpreter& interpreter;
    };

    Runtime runtime_;
    const Dict& variables_;
    int level_ = 0;
    const Value* block_text_ = nullptr;  // what a filter without an operand is applied to
};

}  // namespace foresay::jinja
