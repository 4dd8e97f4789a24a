#include "core/jinja/object.h"

#include "core/jinja/template.h"

namespace foresay::jinja {

Value Object::attribute(std::string_view name) const {
    return Value::undefined("'" + type() + " object' has no attribute '" + std::string(name) + "'");
}

Value Object::call(const CallArguments&) { throw TemplateError("'" + type() + "' object is not callable"); }

Value Namespace::attribute(std::string_view name) const {
    const Value* value = attributes_.find_text(name);
    return value != nullptr ? *value : Object::attribute(name);
}

}  // namespace foresay::jinja
