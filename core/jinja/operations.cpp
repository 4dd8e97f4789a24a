// Operators, lookups and calls of core/jinja/runtime.h.
#include <algorithm>
#include <cmath>

#include "core/jinja/runtime.h"
#include "core/jinja/strings.h"

namespace foresay::jinja {

void Runtime::step() {
    if (++steps_ > limits_.steps) throw TemplateError("the template takes too many steps");
}

void Runtime::scan(std::size_t count) {
    constexpr std::size_t kEach = 64;  // as much work as evaluating a small expression
    steps_ += static_cast<std::int64_t>(count / kEach);
    if (steps_ > limits_.steps) throw TemplateError("the template takes too many steps");
}

void Runtime::scan(const Value& value) {
    if (value.is(Kind::string)) scan(value.text().size());
    if (value.is(Kind::list)) scan(value.list().items.size() * 16);
}

void Runtime::charge(std::size_t bytes) {
    if (bytes > static_cast<std::size_t>(limits_.bytes)) throw TemplateError("the template needs too much memory");
    bytes_ += static_cast<std::int64_t>(bytes);
    if (bytes_ > limits_.bytes) throw TemplateError("the template needs too much memory");
}

Value Runtime::checked(Value value) const {
    if (value.depth() > limits_.depth) throw TemplateError("a list or dict is nested too deeply");
    return value;
}

// --------------------------------------------------------------------------------------------------------- arguments

const Value* argument(const CallArguments& arguments, std::size_t place, std::string_view name) {
    if (place < arguments.positional.size()) return &arguments.positional[place];
    for (const auto& [key, value] : arguments.named) {
        if (key == name) return &value;
    }
    return nullptr;
}

void check_arguments(const char* what, const CallArguments& arguments, std::size_t most,
                     std::initializer_list<std::string_view> names) {
    if (arguments.positional.size() > most) {
        throw TemplateError(std::string(what) + " takes at most " + std::to_string(most) + " arguments, not " +
                            std::to_string(arguments.positional.size()));
    }
    for (const auto& [key, value] : arguments.named) {
        if (std::find(names.begin(), names.end(), key) == names.end()) {
            throw TemplateError(std::string(what) + " has no argument '" + key + "'");
        }
    }
}

const Text& text_of(const char* what, const Value& value) {
    require_defined(value);
    if (!value.is(Kind::string)) throw TemplateError(std::string(what) + " needs a string, not " + type_name(value));
    return value.text();
}

std::int64_t whole_of(const char* what, const Value& value) {
    require_defined(value);
    const auto whole = value.whole();
    if (!whole) throw TemplateError(std::string(what) + " needs a whole number, not " + type_name(value));
    return *whole;
}

void require_defined(const Value& value) {
    if (value.is(Kind::undefined)) throw TemplateError(value.why_undefined());
}

// --------------------------------------------------------------------------------------------------------- operators

namespace {

constexpr std::string_view sign_of(Operation operation) {
    switch (operation) {
        case Operation::add:
            return "+";
        case Operation::subtract:
            return "-";
        case Operation::multiply:
            return "*";
        case Operation::divide:
            return "/";
        case Operation::floor_divide:
            return "//";
        case Operation::modulo:
            return "%";
        case Operation::power:
            return "**";
        case Operation::less:
            return "<";
        case Operation::less_equal:
            return "<=";
        case Operation::greater:
            return ">";
        case Operation::greater_equal:
            return ">=";
        default:
            return "?";
    }
}

[[noreturn]] void refuse(Operation operation, const Value& left, const Value& right) {
    throw TemplateError("unsupported operand types for " + std::string(sign_of(operation)) + ": '" + type_name(left) +
                        "' and '" + type_name(right) + "'");
}

[[noreturn]] void too_large() { throw TemplateError("the result of a calculation is too large"); }

Value whole_power(std::int64_t base, std::int64_t exponent) {
    if (exponent < 0) {
        if (base == 0) throw TemplateError("0 cannot be raised to a negative power");
        return std::pow(static_cast<double>(base), static_cast<double>(exponent));
    }
    std::int64_t result = 1;
    for (; exponent > 0; exponent >>= 1) {
        if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) too_large();
        if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) too_large();
    }
    return result;
}

Value whole_numbers(Operation operation, std::int64_t x, std::int64_t y) {
    std::int64_t result = 0;
    bool over = false;
    switch (operation) {
        case Operation::add:
            over = __builtin_add_overflow(x, y, &result);
            break;
        case Operation::subtract:
            over = __builtin_sub_overflow(x, y, &result);
            break;
        case Operation::multiply:
            over = __builtin_mul_overflow(x, y, &result);
            break;
        case Operation::power:
            return whole_power(x, y);
        default: {
            if (y == 0) throw TemplateError("division by zero");
            if (operation == Operation::divide) return static_cast<double>(x) / static_cast<double>(y);
            if (y == -1) {  // the one quotient that may not fit
                if (operation == Operation::modulo) return std::int64_t{0};
                over = __builtin_sub_overflow(std::int64_t{0}, x, &result);
                break;
            }
            // Python rounds towards minus infinity.
            std::int64_t quotient = x / y, rest = x % y;
            if (rest != 0 && (rest < 0) != (y < 0)) --quotient, rest += y;
            return operation == Operation::floor_divide ? quotient : rest;
        }
    }
    if (over) too_large();
    return result;
}

Value real_numbers(Operation operation, double x, double y) {
    switch (operation) {
        case Operation::add:
            return x + y;
        case Operation::subtract:
            return x - y;
        case Operation::multiply:
            return x * y;
        case Operation::power:
            return std::pow(x, y);
        default:
            break;
    }
    if (y == 0.0) throw TemplateError("division by zero");
    if (operation == Operation::divide) return x / y;
    if (operation == Operation::floor_divide) return std::floor(x / y);
    double rest = std::fmod(x, y);
    if (rest != 0.0 && (rest < 0) != (y < 0)) rest += y;
    return rest;
}

Value repeat(Runtime& runtime, const Value& value, std::int64_t times) {
    if (times < 0) times = 0;
    const std::size_t count = static_cast<std::size_t>(times);
    if (value.is(Kind::string)) {
        const Text& text = value.text();
        if (!text.empty() && count > static_cast<std::size_t>(runtime.limits().bytes) / text.size()) too_large();
        runtime.charge(text.size() * count);
        Text out;
        for (std::size_t i = 0; i < count && !text.empty(); ++i) out.append(text);
        return out.set_markup(text.is_markup());
    }
    const List& list = value.list();
    const std::size_t bytes = list.items.size() * sizeof(Value);
    if (bytes > 0 && count > static_cast<std::size_t>(runtime.limits().bytes) / bytes) too_large();
    runtime.charge(bytes * count);
    List out{.items = {}, .tuple = list.tuple};
    for (std::size_t i = 0; i < count && bytes > 0; ++i) {
        out.items.insert(out.items.end(), list.items.begin(), list.items.end());
    }
    return out;
}

Value join_lists(Runtime& runtime, const List& left, const List& right) {
    runtime.charge((left.items.size() + right.items.size()) * sizeof(Value));
    List out = left;
    out.items.insert(out.items.end(), right.items.begin(), right.items.end());
    return runtime.checked(Value(std::move(out)));
}

// "%s of %d" % values.
Value format_percent(Runtime& runtime, const Text& pattern, const Value& values) {
    Text out;
    std::size_t used = 0;
    const bool several = values.is_tuple();
    const auto next = [&]() -> const Value& {
        if (several ? used >= values.list().items.size() : used > 0) {
            throw TemplateError("not enough arguments for the format string");
        }
        ++used;
        return several ? values.list().items[used - 1] : values;
    };
    const std::string& bytes = pattern.bytes();
    for (std::size_t at = 0; at < bytes.size(); ++at) {
        if (bytes[at] != '%') {
            out.append(pattern, at, at + 1);
            continue;
        }
        std::size_t end = at + 1;
        while (end < bytes.size() && std::string_view("-+ 0#.123456789").find(bytes[end]) != std::string_view::npos)
            ++end;
        if (end >= bytes.size()) throw TemplateError("the format string ends within a '%'");
        const std::string flags = bytes.substr(at + 1, end - at - 1);
        if (flags.size() > 6) throw TemplateError("a width in a format string is too large");
        char buffer[512];
        switch (bytes[end]) {
            case '%':
                out.append("%");
                break;
            case 's':
            case 'r':
                if (!flags.empty()) throw TemplateError("format flags are supported for numbers only");
                out.append(bytes[end] == 's' ? to_text(next()) : to_repr(next()));
                break;
            case 'd':
            case 'i': {
                const Value& value = next();
                if (!value.is_number()) throw TemplateError("%d needs a number, not " + type_name(value));
                const auto whole = value.whole();
                std::snprintf(buffer, sizeof buffer, ("%" + flags + "lld").c_str(),
                              static_cast<long long>(whole ? *whole : static_cast<std::int64_t>(value.number())));
                out.append(buffer);
                break;
            }
            case 'f':
            case 'e':
            case 'g': {
                const Value& value = next();
                if (!value.is_number()) throw TemplateError("a float format needs a number, not " + type_name(value));
                std::snprintf(buffer, sizeof buffer, ("%" + flags + bytes[end]).c_str(), value.number());
                out.append(buffer);
                break;
            }
            default:
                throw TemplateError("the format '%" + flags + bytes[end] + "' is not supported");
        }
        at = end;
    }
    if (several && used < values.list().items.size()) throw TemplateError("not all arguments fit the format string");
    runtime.charge(out);
    return out;
}

}  // namespace

Value operate(Runtime& runtime, Operation operation, const Value& left, const Value& right) {
    switch (operation) {
        case Operation::equal:
            return equal(left, right);
        case Operation::not_equal:
            return !equal(left, right);
        case Operation::in:
            runtime.scan(right);
            return contains(right, left);
        case Operation::not_in:
            runtime.scan(right);
            return !contains(right, left);
        case Operation::less:
        case Operation::less_equal:
        case Operation::greater:
        case Operation::greater_equal: {
            require_defined(left);
            require_defined(right);
            const auto order = compare(left, right);
            if (!order) refuse(operation, left, right);
            if (operation == Operation::less) return *order < 0;
            if (operation == Operation::less_equal) return *order <= 0;
            return operation == Operation::greater ? *order > 0 : *order >= 0;
        }
        default:
            break;
    }
    require_defined(left);
    require_defined(right);
    if (operation == Operation::modulo && left.is(Kind::string) && !left.text().is_markup())
        return format_percent(runtime, left.text(), right);
    if (left.is_number() && right.is_number()) {
        const auto x = left.whole(), y = right.whole();
        return x && y ? whole_numbers(operation, *x, *y) : real_numbers(operation, left.number(), right.number());
    }
    if (operation == Operation::add && left.is(Kind::string) && right.is(Kind::string)) {
        const bool markup = left.text().is_markup() || right.text().is_markup();
        Text out = markup ? escaped(runtime, left.text()) : left.text();
        out.append(markup ? escaped(runtime, right.text()) : right.text());
        runtime.charge(out);
        return out.set_markup(markup);
    }
    if (operation == Operation::add && left.is(Kind::list) && right.is(Kind::list) &&
        left.list().tuple == right.list().tuple && !left.is_generator() && !right.is_generator()) {
        return join_lists(runtime, left.list(), right.list());
    }
    if (operation == Operation::multiply) {
        const auto repeats = [](const Value& value) {
            return value.is(Kind::string) || (value.is(Kind::list) && !value.is_generator());
        };
        if (repeats(left) && right.whole()) return repeat(runtime, left, *right.whole());
        if (repeats(right) && left.whole()) return repeat(runtime, right, *left.whole());
    }
    refuse(operation, left, right);
}

bool contains(const Value& container, const Value& item) {
    switch (container.kind()) {
        case Kind::string:
            if (!item.is(Kind::string)) {
                require_defined(item);
                throw TemplateError("'in' a string needs a string on its left, not " + type_name(item));
            }
            return container.text().bytes().find(item.text().bytes()) != std::string::npos;
        case Kind::list: {
            const List& list = container.list();
            const auto begin = list.items.begin() + static_cast<std::ptrdiff_t>(list.taken);
            const auto found =
                std::find_if(begin, list.items.end(), [&](const Value& value) { return equal(value, item); });
            if (list.generator)
                list.taken += static_cast<std::size_t>(found - begin) + (found != list.items.end() ? 1 : 0);
            return found != list.items.end();
        }
        case Kind::dict:
            return container.dict().find(item) != nullptr;
        case Kind::undefined:
            return false;
        default:
            throw TemplateError("'" + type_name(container) + "' cannot be searched with 'in'");
    }
}

std::vector<Value> iterate(Runtime& runtime, const Value& value) {
    constexpr std::size_t kItem = 16;  // bytes that take as long to look at as a value to copy
    std::vector<Value> out;
    switch (value.kind()) {
        case Kind::undefined:
            break;
        case Kind::list: {
            const List& list = value.list();
            if (!list.fails.empty()) throw TemplateError(list.fails);
            runtime.scan((list.items.size() - list.taken) * kItem);
            runtime.charge(list.items.size() * sizeof(Value));
            out.assign(list.items.begin() + static_cast<std::ptrdiff_t>(list.taken), list.items.end());
            if (list.generator) list.taken = list.items.size();
            break;
        }
        case Kind::dict:
            runtime.scan(value.dict().entries().size() * kItem);
            runtime.charge(value.dict().entries().size() * sizeof(Value));
            for (const auto& [key, item] : value.dict().entries()) out.push_back(key);
            break;
        case Kind::string: {
            runtime.scan(value.text().size() * kItem);
            const std::vector<std::size_t> at = character_offsets(value.text().bytes());
            runtime.charge(at.size() * (sizeof(Value) + sizeof(Text)));
            for (std::size_t i = 0; i + 1 < at.size(); ++i) out.emplace_back(value.text().slice(at[i], at[i + 1]));
            break;
        }
        default:
            throw TemplateError("'" + type_name(value) + "' object is not iterable");
    }
    return out;
}

// ----------------------------------------------------------------------------------------------------------- lookups

Value attribute(Runtime& runtime, const Value& object, const std::string& name) {
    require_defined(object);
    if (object.is(Kind::object)) return object.object()->attribute(name);
    if (const Method method = find_method(object, name)) {
        return runtime.make<Function>(name, [&runtime, object, method](const CallArguments& arguments) {
            return method(runtime, object, arguments);
        });
    }
    if (object.is(Kind::dict)) {
        if (const Value* value = object.dict().find_text(name)) return *value;
    }
    return Value::undefined("'" + type_name(object) + " object' has no attribute '" + name + "'");
}

Value item(Runtime& runtime, const Value& object, const Value& key) {
    require_defined(object);
    if (object.is(Kind::dict)) {
        if (const Value* value = object.dict().find(key)) return *value;
    } else if (const auto index = key.whole();
               index && !object.is_generator() && (object.is(Kind::list) || object.is(Kind::string))) {
        if (object.is(Kind::string)) runtime.scan(object.text().size());
        const std::vector<std::size_t> at =
            object.is(Kind::string) ? character_offsets(object.text().bytes()) : std::vector<std::size_t>();
        const auto count =
            static_cast<std::int64_t>(object.is(Kind::string) ? at.size() - 1 : object.list().items.size());
        const std::int64_t place = *index < 0 ? *index + count : *index;
        if (place < 0 || place >= count) {
            return Value::undefined(type_name(object) + " object has no element " + std::to_string(*index));
        }
        const auto i = static_cast<std::size_t>(place);
        if (object.is(Kind::list)) return object.list().items[i];
        return object.text().slice(at[i], at[i + 1]);
    }
    if (key.is(Kind::string)) return attribute(runtime, object, key.text().bytes());
    return Value::undefined("'" + type_name(object) + " object' has no element " + to_repr(key).bytes());
}

Value slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop, const Value& step) {
    require_defined(object);
    if ((!object.is(Kind::list) && !object.is(Kind::string)) || object.is_generator()) {
        throw TemplateError("'" + type_name(object) + "' object cannot be sliced");
    }
    const bool text = object.is(Kind::string);
    if (text) runtime.scan(object.text().size());
    const std::vector<std::size_t> at = text ? character_offsets(object.text().bytes()) : std::vector<std::size_t>();
    const auto count = static_cast<std::int64_t>(text ? at.size() - 1 : object.list().items.size());
    const std::int64_t by = step.is(Kind::none) ? 1 : whole_of("a slice", step);
    if (by == 0) throw TemplateError("the step of a slice cannot be zero");
    const auto bound = [&](const Value& value, std::int64_t otherwise) {
        if (value.is(Kind::none)) return otherwise;
        std::int64_t place = whole_of("a slice", value);
        if (place < 0) place = std::max<std::int64_t>(place, -count - 1) + count;
        return by > 0 ? std::clamp<std::int64_t>(place, 0, count) : std::clamp<std::int64_t>(place, -1, count - 1);
    };
    const std::int64_t first = bound(start, by > 0 ? 0 : count - 1), last = bound(stop, by > 0 ? count : -1);
    if (text && by == 1) {
        if (first >= last) return Text();
        const std::size_t begin = at[static_cast<std::size_t>(first)], end = at[static_cast<std::size_t>(last)];
        runtime.charge(end - begin);
        return object.text().slice(begin, end);
    }
    runtime.scan(static_cast<std::size_t>(count) * 16);
    runtime.charge(static_cast<std::size_t>(count) * sizeof(Value));
    Text characters;
    List items{.items = {}, .tuple = object.is_tuple()};
    for (std::int64_t i = first; by > 0 ? i < last : i > last;) {
        const auto place = static_cast<std::size_t>(i);
        if (text) {
            characters.append(object.text(), at[place], at[place + 1]);
        } else {
            items.items.push_back(object.list().items[place]);
        }
        if (__builtin_add_overflow(i, by, &i)) break;
    }
    if (text) return characters.set_markup(object.text().is_markup());
    return items;
}

Value call_value(const Value& callee, const CallArguments& arguments) {
    require_defined(callee);
    if (!callee.is(Kind::object) || !callee.object()->callable()) {
        throw TemplateError("'" + type_name(callee) + "' object is not callable");
    }
    return callee.object()->call(arguments);
}

}  // namespace foresay::jinja
