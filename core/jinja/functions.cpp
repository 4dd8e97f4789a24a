// Functions that every template may call.
#include <algorithm>

#include "core/jinja/runtime.h"

namespace foresay::jinja {

namespace {

using Arguments = CallArguments;

Value range(Runtime& runtime, const Arguments& arguments) {
    constexpr std::int64_t kMost = 100'000;  // as Jinja2's sandbox
    check_arguments("range", arguments, 3, {});
    if (arguments.positional.empty()) throw TemplateError("range needs an end");
    std::int64_t parts[3] = {0, 0, 1};
    if (arguments.positional.size() == 1) {
        parts[1] = whole_of("range", arguments.positional[0]);
    } else {
        for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
            parts[i] = whole_of("range", arguments.positional[i]);
        }
    }
    const auto [begin, end, step] = parts;
    if (step == 0) throw TemplateError("the step of range must not be zero");
    List out;
    for (std::int64_t i = begin; step > 0 ? i < end : i > end;) {
        if (static_cast<std::int64_t>(out.items.size()) == kMost) {
            throw TemplateError("range is limited to " + std::to_string(kMost) + " numbers");
        }
        runtime.charge(sizeof(Value));
        out.items.emplace_back(i);
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    return out;
}

Value make_dict(Runtime& runtime, const Arguments& arguments) {
    check_arguments("dict", {arguments.positional, {}}, 1, {});
    Dict out;
    if (!arguments.positional.empty()) {
        const Value& given = arguments.positional.front();
        if (given.is(Kind::dict)) {
            out = given.dict();
        } else {
            for (const Value& pair : iterate(runtime, given)) {
                if (!pair.is(Kind::list) || pair.list().items.size() != 2) throw TemplateError("dict needs pairs");
                out.set(pair.list().items[0], pair.list().items[1]);
            }
        }
    }
    for (const auto& [name, value] : arguments.named) out.set(Value(name), value);
    runtime.charge(out.entries().size() * 4 * sizeof(Value));
    return runtime.checked(Value(std::move(out)));
}

Value make_namespace(Runtime& runtime, const Arguments& arguments) {
    auto* out = runtime.make<Namespace>();
    for (const Value& given : arguments.positional) {
        if (!given.is(Kind::dict)) throw TemplateError("namespace takes dicts and named values");
        for (const auto& [key, value] : given.dict().entries()) out->set(text_of("namespace", key).bytes(), value);
    }
    for (const auto& [name, value] : arguments.named) out->set(name, value);
    return out;
}

Value raise_exception(Runtime&, const Arguments& arguments) {
    const Value* message = argument(arguments, 0, "message");
    throw TemplateError("the template refuses this conversation: " +
                        (message != nullptr ? to_text(*message).bytes() : std::string("no reason given")));
}

Value strftime_now(Runtime& runtime, const Arguments& arguments) {
    const Value* format = argument(arguments, 0, "format");
    if (format == nullptr) throw TemplateError("strftime_now needs a format");
    const std::string& text = text_of("strftime_now", *format).bytes();
    if (text.size() > 256) throw TemplateError("the format of strftime_now is too long");
    if (text.empty()) return Text();
    char buffer[4096];
    const std::size_t size = std::strftime(buffer, sizeof buffer, text.c_str(), &runtime.now());
    return Text(std::string(buffer, size));
}

}  // namespace

Object* find_function(Runtime& runtime, std::string_view name) {
    using Body = Value (*)(Runtime&, const Arguments&);
    constexpr std::pair<std::string_view, Body> kFunctions[] = {{"range", range},
                                                                {"dict", make_dict},
                                                                {"namespace", make_namespace},
                                                                {"raise_exception", raise_exception},
                                                                {"strftime_now", strftime_now}};
    const auto found = std::find_if(std::begin(kFunctions), std::end(kFunctions),
                                    [&](const auto& known) { return known.first == name; });
    if (found == std::end(kFunctions)) return nullptr;
    return runtime.make<Function>(std::string(name), [&runtime, body = found->second](const Arguments& arguments) {
        return body(runtime, arguments);
    });
}

}  // namespace foresay::jinja
