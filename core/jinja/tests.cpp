// The tests of a template: the words after `is`.
#include <algorithm>

#include "core/jinja/runtime.h"
#include "core/jinja/strings.h"

namespace foresay::jinja {

namespace {

using Arguments = CallArguments;

const Value& operand(const Arguments& arguments) {
    if (arguments.positional.size() != 1) throw TemplateError("the test needs one operand");
    return arguments.positional.front();
}

template <Operation kOperation>
bool comparing(Runtime& runtime, const Value& value, const Arguments& arguments) {
    return operate(runtime, kOperation, value, operand(arguments)).boolean();
}

bool is_divisible(Runtime& runtime, const Value& value, const Arguments& arguments) {
    return equal(operate(runtime, Operation::modulo, value, operand(arguments)), Value(std::int64_t{0}));
}

bool parity(Runtime& runtime, const Value& value, std::int64_t rest) {
    return equal(operate(runtime, Operation::modulo, value, Value(std::int64_t{2})), Value(rest));
}

// Whether a text has letters, all of one case.
bool has_case(const Value& value, bool (*wanted)(char32_t), bool (*other)(char32_t)) {
    const Text text = to_text(value);
    bool any = false;
    for (std::size_t at = 0; at < text.size(); at += character_bytes(text.bytes(), at)) {
        const char32_t code = character_code(text.bytes(), at);
        if (other(code)) return false;
        any = any || wanted(code);
    }
    return any;
}

template <Kind... kKinds>
bool is_kind(Runtime&, const Value& value, const Arguments&) {
    return (value.is(kKinds) || ...);
}

}  // namespace

Test find_test(std::string_view name) {
    constexpr std::pair<std::string_view, Test> kTests[] = {
        {"boolean", is_kind<Kind::boolean>},
        {"callable",
         [](Runtime&, const Value& v, const Arguments&) { return v.is(Kind::object) && v.object()->callable(); }},
        {"defined", [](Runtime&, const Value& v, const Arguments&) { return !v.is(Kind::undefined); }},
        {"divisibleby", is_divisible},
        {"eq", comparing<Operation::equal>},
        {"equalto", comparing<Operation::equal>},
        {"==", comparing<Operation::equal>},
        {"escaped", [](Runtime&, const Value&, const Arguments&) { return false; }},
        {"even", [](Runtime& r, const Value& v, const Arguments&) { return parity(r, v, 0); }},
        {"false", [](Runtime&, const Value& v, const Arguments&) { return v.is(Kind::boolean) && !v.boolean(); }},
        {"filter", [](Runtime&, const Value& v,
                      const Arguments&) { return v.is(Kind::string) && find_filter(v.text().bytes()) != nullptr; }},
        {"float", is_kind<Kind::real>},
        {"ge", comparing<Operation::greater_equal>},
        {">=", comparing<Operation::greater_equal>},
        {"gt", comparing<Operation::greater>},
        {"greaterthan", comparing<Operation::greater>},
        {">", comparing<Operation::greater>},
        {"in", [](Runtime&, const Value& v, const Arguments& a) { return contains(operand(a), v); }},
        {"integer", is_kind<Kind::integer>},
        {"iterable", is_kind<Kind::undefined, Kind::string, Kind::list, Kind::dict>},
        {"le", comparing<Operation::less_equal>},
        {"<=", comparing<Operation::less_equal>},
        {"lower", [](Runtime&, const Value& v, const Arguments&) { return has_case(v, is_lower, is_upper); }},
        {"lt", comparing<Operation::less>},
        {"lessthan", comparing<Operation::less>},
        {"<", comparing<Operation::less>},
        {"mapping", is_kind<Kind::dict>},
        {"ne", comparing<Operation::not_equal>},
        {"!=", comparing<Operation::not_equal>},
        {"none", is_kind<Kind::none>},
        {"number", is_kind<Kind::integer, Kind::real, Kind::boolean>},
        {"odd", [](Runtime& r, const Value& v, const Arguments&) { return parity(r, v, 1); }},
        {"sameas", [](Runtime&, const Value& v, const Arguments& a) { return same(v, operand(a)); }},
        {"sequence",
         [](Runtime& r, const Value& v, const Arguments& a) {
             return !v.is_generator() && is_kind<Kind::undefined, Kind::string, Kind::list, Kind::dict>(r, v, a);
         }},
        {"string", is_kind<Kind::string>},
        {"test", [](Runtime&, const Value& v,
                    const Arguments&) { return v.is(Kind::string) && find_test(v.text().bytes()) != nullptr; }},
        {"true", [](Runtime&, const Value& v, const Arguments&) { return v.is(Kind::boolean) && v.boolean(); }},
        {"undefined", is_kind<Kind::undefined>},
        {"upper", [](Runtime&, const Value& v, const Arguments&) { return has_case(v, is_upper, is_lower); }},
    };
    const auto found =
        std::find_if(std::begin(kTests), std::end(kTests), [&](const auto& known) { return known.first == name; });
    return found != std::end(kTests) ? found->second : nullptr;
}

}  // namespace foresay::jinja
