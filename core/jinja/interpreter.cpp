#include "core/jinja/interpreter.h"

#include <algorithm>

namespace foresay::jinja {

namespace {

constexpr int kLevelsPerDepth = 8;  // of evaluation, for each level of depth that the limits allow

class Macro final : public Object {
public:
    Macro(Interpreter& interpreter, const Statement& statement, ScopePtr scope, std::string name)
        : interpreter_(interpreter), statement_(statement), scope_(std::move(scope)), name_(std::move(name)) {}

    std::string type() const override { return "Macro"; }
    std::string repr() const override { return "<Macro '" + name_ + "'>"; }
    bool callable() const override { return true; }
    Value attribute(std::string_view name) const override {
        return name == "name" ? Value(name_) : Object::attribute(name);
    }

    Value call(const CallArguments& given) override {
        auto scope = std::make_shared<Scope>();
        scope->parent = scope_;
        const auto& parameters = statement_.parameters;
        std::vector<bool> used(given.named.size(), false);
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            const Parameter& parameter = parameters[i];
            Value value = Value::undefined("parameter '" + parameter.name + "' was not provided");
            bool found = i < given.positional.size();
            if (found) value = given.positional[i];
            for (std::size_t n = 0; n < given.named.size(); ++n) {
                if (given.named[n].first != parameter.name) continue;
                if (found) fail("got several values for the argument '" + parameter.name + "'");
                value = given.named[n].second;
                found = used[n] = true;
            }
            if (!found && parameter.fallback) value = interpreter_.evaluate(*parameter.fallback, scope);
            scope->set(parameter.name, value);
        }
        take_extras(given, used, *scope);
        return interpreter_.capture(statement_.body, scope);
    }

private:
    [[noreturn]] void fail(const std::string& what) const { throw TemplateError("macro '" + name_ + "' " + what); }

    void take_extras(const CallArguments& given, const std::vector<bool>& used, Scope& scope) const {
        List positional{.items = {}, .tuple = true};
        for (std::size_t i = statement_.parameters.size(); i < given.positional.size(); ++i) {
            positional.items.push_back(given.positional[i]);
        }
        if (!positional.items.empty() && !statement_.extra_positional) {
            fail("takes at most " + std::to_string(statement_.parameters.size()) + " arguments, not " +
                 std::to_string(given.positional.size()));
        }
        Dict named;
        for (std::size_t n = 0; n < given.named.size(); ++n) {
            if (used[n]) continue;
            if (given.named[n].first == "caller") {
                scope.set("caller", given.named[n].second);
            } else if (statement_.extra_named) {
                named.set(Value(given.named[n].first), given.named[n].second);
            } else {
                fail("has no argument '" + given.named[n].first + "'");
            }
        }
        if (statement_.extra_positional)
            scope.set("varargs", interpreter_.runtime().checked(Value(std::move(positional))));
        if (statement_.extra_named) scope.set("kwargs", interpreter_.runtime().checked(Value(std::move(named))));
    }

    Interpreter& interpreter_;
    const Statement& statement_;
    ScopePtr scope_;
    std::string name_;
};

// The variable `loop`.
class Loop final : public Object {
public:
    Loop(Interpreter& interpreter, const Statement& statement, ScopePtr outer, const std::vector<Value>& items,
         int depth)
        : interpreter_(interpreter), statement_(statement), outer_(std::move(outer)), items_(&items), depth_(depth) {}

    void go_to(std::size_t place) { place_ = place; }
    // The loop has ended; what was kept of this object must not see its items.
    void end() { items_ = nullptr; }

    std::string type() const override { return "LoopContext"; }
    bool callable() const override { return statement_.recursive; }
    Value call(const CallArguments& arguments) override {
        if (!statement_.recursive) throw TemplateError("the loop is not recursive: write {% for ... recursive %}");
        check_arguments("loop", arguments, 1, {});
        if (arguments.positional.empty()) throw TemplateError("loop needs what to go over");
        return interpreter_.loop(statement_, arguments.positional.front(), outer_, depth_ + 1);
    }

    Value attribute(std::string_view name) const override {
        if (items_ == nullptr) throw TemplateError("'loop' is used after its loop");
        const auto count = static_cast<std::int64_t>(items_->size()), place = static_cast<std::int64_t>(place_);
        if (name == "index") return place + 1;
        if (name == "index0") return place;
        if (name == "revindex") return count - place;
        if (name == "revindex0") return count - place - 1;
        if (name == "first") return place == 0;
        if (name == "last") return place + 1 == count;
        if (name == "length") return count;
        if (name == "depth") return static_cast<std::int64_t>(depth_);
        if (name == "depth0") return static_cast<std::int64_t>(depth_ - 1);
        if (name == "previtem")
            return place > 0 ? (*items_)[place_ - 1] : Value::undefined("there is no previous item");
        if (name == "nextitem")
            return place + 1 < count ? (*items_)[place_ + 1] : Value::undefined("there is no next item");
        if (name == "cycle" || name == "changed") return function(std::string(name));
        return Object::attribute(name);
    }

private:
    Value function(const std::string& name) const {
        auto* self = const_cast<Loop*>(this);
        return interpreter_.runtime().make<Function>(name, [self, name](const CallArguments& arguments) -> Value {
            if (name == "cycle") {
                if (arguments.positional.empty()) throw TemplateError("cycle needs values");
                return arguments.positional[self->place_ % arguments.positional.size()];
            }
            const Value now(List{.items = arguments.positional, .tuple = true});
            const bool changed = !self->changed_from_ || !equal(*self->changed_from_, now);
            self->changed_from_ = now;
            return changed;
        });
    }

    Interpreter& interpreter_;
    const Statement& statement_;
    ScopePtr outer_;
    const std::vector<Value>* items_;
    std::size_t place_ = 0;
    int depth_;
    std::optional<Value> changed_from_;
};

ScopePtr inner(const ScopePtr& parent) {
    auto scope = std::make_shared<Scope>();
    scope->parent = parent;
    return scope;
}

}  // namespace

Value* Scope::find(std::string_view name) {
    for (auto& [key, value] : names) {
        if (key == name) return &value;
    }
    return nullptr;
}

void Scope::set(std::string_view name, Value value) {
    if (Value* known = find(name)) {
        *known = std::move(value);
    } else {
        names.emplace_back(name, std::move(value));
    }
}

Interpreter::Level::Level(Interpreter& interpreter) : interpreter(interpreter) {
    if (++interpreter.level_ > kLevelsPerDepth * interpreter.runtime_.limits().depth) {
        --interpreter.level_;
        throw TemplateError("the template calls itself too deeply");
    }
}

Text Interpreter::render(const Body& body) {
    const auto scope = std::make_shared<Scope>();
    Text out;
    run(body, scope, out);
    scope->names.clear();  // macros hold the scope that holds them
    return out;
}

Text Interpreter::capture(const Body& body, const ScopePtr& scope) {
    Text out;
    run(body, scope, out);
    return out;
}

void Interpreter::write(const Text& text, Text& out) {
    if (out.size() + text.size() > runtime_.limits().output_bytes) {
        throw TemplateError("the template writes more than " + std::to_string(runtime_.limits().output_bytes) +
                            " bytes");
    }
    runtime_.charge(text);
    out.append(text);
}

Interpreter::Flow Interpreter::run(const Body& body, const ScopePtr& scope, Text& out) {
    for (const auto& statement : body) {
        const Flow flow = run(*statement, scope, out);
        if (flow != Flow::done) return flow;
    }
    return Flow::done;
}

Interpreter::Flow Interpreter::run(const Statement& statement, const ScopePtr& scope, Text& out) {
    const Level level(*this);
    runtime_.step();
    using Kind = Statement::Kind;
    switch (statement.kind) {
        case Kind::text:
            write(Text(statement.text), out);
            return Flow::done;
        case Kind::output:
            write(to_text(evaluate(*statement.value, scope)), out);
            return Flow::done;
        case Kind::choice:
            return run_choice(statement, scope, out);
        case Kind::loop:
            run_loop(statement, evaluate(*statement.value, scope), scope, 1, out);
            return Flow::done;
        case Kind::set:
        case Kind::set_block:
            run_set(statement, scope);
            return Flow::done;
        case Kind::macro:
            scope->set(statement.text, make_macro(statement, scope, statement.text));
            return Flow::done;
        case Kind::call_block:
            run_call_block(statement, scope, out);
            return Flow::done;
        case Kind::filter_block:
            write(to_text(filtered(*statement.value, capture(statement.body, inner(scope)), scope)), out);
            return Flow::done;
        case Kind::with:
            run_with(statement, scope, out);
            return Flow::done;
        case Kind::scope:
            return run(statement.body, inner(scope), out);
        case Kind::stop_loop:
            return Flow::stop_loop;
        case Kind::next_turn:
            return Flow::next_turn;
    }
    return Flow::done;
}

Interpreter::Flow Interpreter::run_choice(const Statement& statement, const ScopePtr& scope, Text& out) {
    for (const Branch& branch : statement.branches) {
        if (evaluate(*branch.condition, scope).truth()) return run(branch.body, scope, out);
    }
    return run(statement.otherwise, scope, out);
}

Text Interpreter::loop(const Statement& statement, const Value& items, const ScopePtr& outer, int depth) {
    Text out;
    run_loop(statement, items, outer, depth, out);
    return out;
}

// What the loop goes over, its condition applied.
std::vector<Value> Interpreter::loop_items(const Statement& statement, const Value& items, const ScopePtr& outer) {
    std::vector<Value> all = iterate(runtime_, items);
    if (!statement.condition) return all;
    std::vector<Value> kept;
    for (const Value& item : all) {
        const ScopePtr scope = inner(outer);
        assign(*statement.target, item, scope);
        if (evaluate(*statement.condition, scope).truth()) kept.push_back(item);
    }
    return kept;
}

void Interpreter::run_loop(const Statement& statement, const Value& given, const ScopePtr& outer, int depth,
                           Text& out) {
    const Level level(*this);
    std::vector<Value> items;
    try {
        items = loop_items(statement, given, outer);
    } catch (const TemplateError& problem) {
        if (problem.line() > 0) throw;
        throw TemplateError(problem.message(), statement.place.line, statement.place.column);
    }
    if (items.empty()) {
        run(statement.otherwise, inner(outer), out);
        return;
    }
    auto* loop = runtime_.make<Loop>(*this, statement, outer, items, depth);
    struct End {
        Loop* loop;
        ~End() { loop->end(); }
    } const end{loop};
    ScopePtr scope;
    for (std::size_t i = 0; i < items.size(); ++i) {
        runtime_.step();
        if (scope && scope.use_count() == 1) {
            scope->names.clear();
        } else {
            scope = inner(outer);
        }
        loop->go_to(i);
        scope->set("loop", loop);
        assign(*statement.target, items[i], scope);
        if (run(statement.body, scope, out) == Flow::stop_loop) break;
    }
}

void Interpreter::run_set(const Statement& statement, const ScopePtr& scope) {
    if (statement.kind == Statement::Kind::set) {
        assign(*statement.target, evaluate(*statement.value, scope), scope);
        return;
    }
    const Text text = capture(statement.body, inner(scope));
    assign(*statement.target, statement.value ? filtered(*statement.value, text, scope) : Value(text), scope);
}

void Interpreter::assign(const Expression& target, const Value& value, const ScopePtr& scope) {
    const auto fail = [&](const std::string& message) {
        throw TemplateError(message, target.place.line, target.place.column);
    };
    switch (target.kind) {
        case Expression::Kind::name:
            scope->set(target.text, value);
            return;
        case Expression::Kind::attribute: {
            const Value object = evaluate(*target.children[0], scope);
            auto* space = object.is(Kind::object) ? dynamic_cast<Namespace*>(object.object()) : nullptr;
            if (space == nullptr) fail("only attributes of a namespace can be set, not of '" + type_name(object) + "'");
            space->set(target.text, value);
            return;
        }
        default: {
            if (!value.is(Kind::list)) fail("'" + type_name(value) + "' cannot be unpacked");
            const std::vector<Value>& items = value.list().items;
            if (items.size() != target.children.size()) {
                fail("expected " + std::to_string(target.children.size()) + " values to unpack, got " +
                     std::to_string(items.size()));
            }
            for (std::size_t i = 0; i < items.size(); ++i) assign(*target.children[i], items[i], scope);
        }
    }
}

Value Interpreter::make_macro(const Statement& statement, const ScopePtr& scope, std::string name) {
    return runtime_.make<Macro>(*this, statement, scope, std::move(name));
}

void Interpreter::run_call_block(const Statement& statement, const ScopePtr& scope, Text& out) {
    const Value caller = make_macro(statement, scope, "caller");
    write(to_text(evaluate_call(*statement.value, scope, &caller)), out);
}

void Interpreter::run_with(const Statement& statement, const ScopePtr& scope, Text& out) {
    const ScopePtr body = inner(scope);
    for (const auto& [target, value] : statement.bindings) assign(*target, evaluate(*value, scope), body);
    run(statement.body, body, out);
}

}  // namespace foresay::jinja
