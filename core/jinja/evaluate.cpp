// The expressions of core/jinja/interpreter.h.
#include <algorithm>

#include "core/jinja/interpreter.h"

namespace foresay::jinja {

Value Interpreter::evaluate(const Expression& expression, const ScopePtr& scope) {
    const Level level(*this);
    runtime_.step();
    try {
        return evaluate_node(expression, scope);
    } catch (const TemplateError& problem) {
        if (problem.line() > 0) throw;
        throw TemplateError(problem.message(), expression.place.line, expression.place.column);
    }
}

Value Interpreter::evaluate_node(const Expression& expression, const ScopePtr& scope) {
    using Kind = Expression::Kind;
    switch (expression.kind) {
        case Kind::literal:
            return expression.value;
        case Kind::name:
            return look_up(expression, scope);
        case Kind::list:
        case Kind::tuple:
            return evaluate_list(expression, scope);
        case Kind::dict:
            return evaluate_dict(expression, scope);
        case Kind::operation:
            return evaluate_operation(expression, scope);
        case Kind::compare:
            return evaluate_compare(expression, scope);
        case Kind::choice:
            if (evaluate(*expression.children[0], scope).truth()) return evaluate(*expression.children[1], scope);
            if (expression.children.size() > 2) return evaluate(*expression.children[2], scope);
            return Value::undefined("the condition did not hold and there is no else");
        case Kind::attribute:
            return attribute(runtime_, evaluate(*expression.children[0], scope), expression.text);
        case Kind::item:
            return evaluate_item(expression, scope);
        case Kind::slice:
            throw TemplateError("a slice stands alone in its brackets");
        case Kind::call:
            return evaluate_call(expression, scope);
        case Kind::filter:
            return evaluate_filter(expression, scope);
        case Kind::test:
            return evaluate_test(expression, scope) != expression.negated;
    }
    return {};
}

Value Interpreter::look_up(const Expression& expression, const ScopePtr& scope) {
    for (Scope* at = scope.get(); at != nullptr; at = at->parent.get()) {
        if (const Value* value = at->find(expression.text)) return *value;
    }
    if (const Value* value = variables_.find_text(expression.text)) return *value;
    if (Object* function = find_function(runtime_, expression.text)) return function;
    return Value::undefined("'" + expression.text + "' is undefined");
}

Value Interpreter::evaluate_list(const Expression& expression, const ScopePtr& scope) {
    List out{.items = {}, .tuple = expression.kind == Expression::Kind::tuple};
    runtime_.charge(expression.children.size() * sizeof(Value));
    for (const ExpressionPtr& child : expression.children) out.items.push_back(evaluate(*child, scope));
    return runtime_.checked(Value(std::move(out)));
}

Value Interpreter::evaluate_dict(const Expression& expression, const ScopePtr& scope) {
    Dict out;
    runtime_.charge(expression.children.size() * 2 * sizeof(Value));
    for (std::size_t i = 0; i + 1 < expression.children.size(); i += 2) {
        const Value key = evaluate(*expression.children[i], scope);
        if (key.is(Kind::dict) || (key.is(Kind::list) && !key.is_tuple())) {
            throw TemplateError("a " + type_name(key) + " cannot be the key of a dict");
        }
        out.set(key, evaluate(*expression.children[i + 1], scope));
    }
    return runtime_.checked(Value(std::move(out)));
}

Value Interpreter::evaluate_operation(const Expression& expression, const ScopePtr& scope) {
    const auto child = [&](std::size_t i) { return evaluate(*expression.children[i], scope); };
    switch (expression.operation) {
        case Operation::logical_not:
            return !child(0).truth();
        case Operation::logical_and: {
            Value left = child(0);
            return left.truth() ? child(1) : left;
        }
        case Operation::logical_or: {
            Value left = child(0);
            return left.truth() ? left : child(1);
        }
        case Operation::negate:
        case Operation::plus: {
            const Value value = child(0);
            require_defined(value);
            if (!value.is_number()) throw TemplateError("a sign needs a number, not " + type_name(value));
            return operate(runtime_, expression.operation == Operation::negate ? Operation::subtract : Operation::add,
                           Value(std::int64_t{0}), value);
        }
        case Operation::concatenate: {
            Text out;
            for (std::size_t i = 0; i < expression.children.size(); ++i) {
                const Text text = to_text(child(i));
                runtime_.charge(text);
                out.append(text);
            }
            return out;
        }
        default: {
            const Value left = child(0);
            return operate(runtime_, expression.operation, left, child(1));
        }
    }
}

Value Interpreter::evaluate_compare(const Expression& expression, const ScopePtr& scope) {
    Value left = evaluate(*expression.children[0], scope);
    for (std::size_t i = 0; i < expression.operations.size(); ++i) {
        Value right = evaluate(*expression.children[i + 1], scope);
        if (!operate(runtime_, expression.operations[i], left, right).truth()) return false;
        left = std::move(right);
    }
    return true;
}

Value Interpreter::evaluate_item(const Expression& expression, const ScopePtr& scope) {
    const Value object = evaluate(*expression.children[0], scope);
    const Expression& index = *expression.children[1];
    if (index.kind != Expression::Kind::slice) return item(runtime_, object, evaluate(index, scope));
    Value parts[3];
    for (std::size_t i = 0; i < 3; ++i) {
        if (index.children[i]) parts[i] = evaluate(*index.children[i], scope);
    }
    return slice(runtime_, object, parts[0], parts[1], parts[2]);
}

CallArguments Interpreter::evaluate_arguments(const ArgumentList& arguments, const ScopePtr& scope) {
    CallArguments out;
    for (const ExpressionPtr& value : arguments.positional) out.positional.push_back(evaluate(*value, scope));
    for (const auto& [name, value] : arguments.named) out.named.emplace_back(name, evaluate(*value, scope));
    if (arguments.rest) {
        for (Value& value : iterate(runtime_, evaluate(*arguments.rest, scope))) {
            out.positional.push_back(std::move(value));
        }
    }
    if (arguments.named_rest) {
        const Value rest = evaluate(*arguments.named_rest, scope);
        if (!rest.is(Kind::dict)) throw TemplateError("** needs a dict, not " + type_name(rest));
        for (const auto& [key, value] : rest.dict().entries()) {
            out.named.emplace_back(text_of("**", key).bytes(), value);
        }
    }
    return out;
}

// Methods are called without a function object in between: templates call them all the time.
Value Interpreter::evaluate_call(const Expression& expression, const ScopePtr& scope, const Value* caller) {
    const Expression& callee = *expression.children[0];
    if (callee.kind == Expression::Kind::attribute && caller == nullptr) {
        const Value self = evaluate(*callee.children[0], scope);
        require_defined(self);
        if (const Method method = self.is(Kind::object) ? nullptr : find_method(self, callee.text)) {
            runtime_.scan(self);
            return method(runtime_, self, evaluate_arguments(expression.arguments, scope));
        }
        const Value function = attribute(runtime_, self, callee.text);
        return call_value(function, evaluate_arguments(expression.arguments, scope));
    }
    const Value function = evaluate(callee, scope);
    CallArguments arguments = evaluate_arguments(expression.arguments, scope);
    if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
    return call_value(function, arguments);
}

Value Interpreter::filtered(const Expression& chain, const Text& text, const ScopePtr& scope) {
    const Value value(text);
    const Value* outer = std::exchange(block_text_, &value);
    struct Restore {
        const Value*& place;
        const Value* before;
        ~Restore() { place = before; }
    } const restore{block_text_, outer};
    return evaluate(chain, scope);
}

Value Interpreter::evaluate_filter(const Expression& expression, const ScopePtr& scope) {
    const Filter filter = find_filter(expression.text);
    if (filter == nullptr) throw TemplateError("no filter named '" + expression.text + "'");
    const Value operand = expression.children[0] ? evaluate(*expression.children[0], scope) : *block_text_;
    runtime_.scan(operand);
    return filter(runtime_, operand, evaluate_arguments(expression.arguments, scope));
}

bool Interpreter::evaluate_test(const Expression& expression, const ScopePtr& scope) {
    const Test test = find_test(expression.text);
    if (test == nullptr) throw TemplateError("no test named '" + expression.text + "'");
    const Value operand = evaluate(*expression.children[0], scope);
    return test(runtime_, operand, evaluate_arguments(expression.arguments, scope));
}

}  // namespace foresay::jinja
