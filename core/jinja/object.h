// core/jinja/object.h: values that are more than data: functions, macros, namespaces, the variable `loop`.
//
// Life:     owned by the rendering that made them.
// Errors:   call() throws TemplateError.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/jinja/value.h"

namespace foresay::jinja {

// What a call passes: values in order, then by name.
struct CallArguments {
    std::vector<Value> positional;
    std::vector<std::pair<std::string, Value>> named;
};

class Object {
public:
    virtual ~Object() = default;
    virtual std::string type() const = 0;
    virtual std::string repr() const { return "<" + type() + ">"; }
    // The attribute `name`; undefined when there is none.
    virtual Value attribute(std::string_view name) const;
    virtual bool callable() const { return false; }
    virtual Value call(const CallArguments& arguments);
};

// A function of the host, or a method bound to a value.
class Function final : public Object {
public:
    using Body = std::function<Value(const CallArguments&)>;
    Function(std::string name, Body body) : name_(std::move(name)), body_(std::move(body)) {}
    std::string type() const override { return "function"; }
    std::string repr() const override { return "<function " + name_ + ">"; }
    bool callable() const override { return true; }
    Value call(const CallArguments& arguments) override { return body_(arguments); }

private:
    std::string name_;
    Body body_;
};

// namespace(): attributes that a loop may set for what follows it.
class Namespace final : public Object {
public:
    std::string type() const override { return "Namespace"; }
    Value attribute(std::string_view name) const override;
    void set(const std::string& name, const Value& value) { attributes_.set(Value(name), value); }

private:
    Dict attributes_;
};

}  // namespace foresay::jinja
