// Filters of single values: text, numbers, JSON. Those of sequences are in filters_sequence.cpp.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/jinja/runtime.h"
#include "core/jinja/strings.h"

namespace foresay::jinja {

namespace {

using Arguments = CallArguments;

Text as_text(const Value& value) { return value.is(Kind::string) ? value.text() : to_text(value); }

Value filter_abs(Runtime&, const Value& value, const Arguments&) {
    require_defined(value);
    if (value.is(Kind::real)) return std::fabs(value.number());
    const std::int64_t whole = whole_of("abs", value);
    if (whole == INT64_MIN) throw TemplateError("the result of a calculation is too large");
    return whole < 0 ? -whole : whole;
}

Value filter_attr(Runtime& runtime, const Value& value, const Arguments& arguments) {
    check_arguments("attr", arguments, 1, {"name"});
    const Value* name = argument(arguments, 0, "name");
    if (name == nullptr) throw TemplateError("attr needs the name of an attribute");
    const std::string& text = text_of("attr", *name).bytes();
    if (value.is(Kind::dict))
        return find_method(value, text) != nullptr ? attribute(runtime, value, text)
                                                   : Value::undefined("'dict object' has no attribute '" + text + "'");
    return attribute(runtime, value, text);
}

Value filter_capitalize(Runtime& runtime, const Value& value, const Arguments&) {
    return capitalized(runtime, as_text(value));
}

Value filter_center(Runtime& runtime, const Value& value, const Arguments& arguments) {
    check_arguments("center", arguments, 1, {"width"});
    const Value* width = argument(arguments, 0, "width");
    return padded(runtime, as_text(value), width != nullptr ? whole_of("center", *width) : 80, " ", Padding::center);
}

Value filter_default(Runtime&, const Value& value, const Arguments& arguments) {
    check_arguments("default", arguments, 2, {"default_value", "boolean"});
    const Value* otherwise = argument(arguments, 0, "default_value");
    const Value* boolean = argument(arguments, 1, "boolean");
    const bool replaced = value.is(Kind::undefined) || (boolean != nullptr && boolean->truth() && !value.truth());
    if (!replaced) return value;
    return otherwise != nullptr ? *otherwise : Value("");
}

Value filter_escape(Runtime& runtime, const Value& value, const Arguments&) { return escaped(runtime, as_text(value)); }

Value filter_safe(Runtime&, const Value& value, const Arguments&) { return as_text(value).set_markup(true); }

Value filter_float(Runtime&, const Value& value, const Arguments& arguments) {
    check_arguments("float", arguments, 1, {"default"});
    const Value* otherwise = argument(arguments, 0, "default");
    const Value fallback = otherwise != nullptr ? *otherwise : Value(0.0);
    if (value.is_number()) return value.number();
    if (!value.is(Kind::string)) return fallback;
    const std::string text = strip(value.text(), true, true).bytes();
    double number = 0.0;
    const char* begin = text.data() + (!text.empty() && text.front() == '+' ? 1 : 0);
    const auto [end, error] = std::from_chars(begin, text.data() + text.size(), number);
    return error == std::errc() && end == text.data() + text.size() && end != begin ? Value(number) : fallback;
}

Value filter_format(Runtime& runtime, const Value& value, const Arguments& arguments) {
    List values{.items = arguments.positional, .tuple = true};
    if (!arguments.named.empty()) throw TemplateError("format with names is not supported");
    return operate(runtime, Operation::modulo, Value(as_text(value)), Value(std::move(values)));
}

Value filter_indent(Runtime& runtime, const Value& value, const Arguments& arguments) {
    check_arguments("indent", arguments, 3, {"width", "first", "blank"});
    const Value* width = argument(arguments, 0, "width");
    const Value* first = argument(arguments, 1, "first");
    const Value* blank = argument(arguments, 2, "blank");
    Text indent(std::string(4, ' '));
    if (width != nullptr && width->is(Kind::string)) {
        indent = width->text();
    } else if (width != nullptr) {
        const std::int64_t count = whole_of("indent", *width);
        if (count > 1000) throw TemplateError("indent is limited to 1000 spaces");
        indent = Text(std::string(static_cast<std::size_t>(std::max<std::int64_t>(count, 0)), ' '));
    }
    const Text text = as_text(value);
    const bool blanks = blank != nullptr && blank->truth();
    Text out;
    bool begins = first != nullptr && first->truth();
    // A line end more, so that a text that ends with one has an empty last line.
    Text ended = text;
    ended.append("\n");
    const std::vector<Text> lines = split_lines(ended, false);
    for (std::size_t i = 0; i < lines.size(); ++i) {
        if (i > 0) out.append("\n");
        if ((i > 0 || begins) && (blanks || !lines[i].empty() || i == 0)) out.append(indent);
        out.append(lines[i]);
        runtime.charge(indent.size() + lines[i].size());
    }
    return out;
}

Value filter_int(Runtime&, const Value& value, const Arguments& arguments) {
    check_arguments("int", arguments, 2, {"default", "base"});
    const Value* otherwise = argument(arguments, 0, "default");
    const Value* base = argument(arguments, 1, "base");
    const Value fallback = otherwise != nullptr ? *otherwise : Value(std::int64_t{0});
    if (const auto whole = value.whole()) return *whole;
    const auto from_real = [&](double number) {
        return std::fabs(number) < 9e18 ? Value(static_cast<std::int64_t>(number)) : fallback;
    };
    if (value.is(Kind::real)) return from_real(value.number());
    if (!value.is(Kind::string)) return fallback;
    std::string text = strip(value.text(), true, true).bytes();
    std::erase(text, '_');
    const std::int64_t radix = base != nullptr ? whole_of("int", *base) : 10;
    if (radix < 2 || radix > 36) throw TemplateError("int needs a base from 2 to 36");
    const std::string prefix = text.substr(0, 2);
    if ((radix == 16 && (prefix == "0x" || prefix == "0X")) || (radix == 2 && (prefix == "0b" || prefix == "0B")) ||
        (radix == 8 && (prefix == "0o" || prefix == "0O"))) {
        text.erase(0, 2);
    }
    std::int64_t number = 0;
    const char* begin = text.data() + (!text.empty() && text.front() == '+' ? 1 : 0);
    const auto [end, error] = std::from_chars(begin, text.data() + text.size(), number, static_cast<int>(radix));
    if (error == std::errc() && end == text.data() + text.size() && end != begin) return number;
    double real = 0.0;
    const auto [stop, wrong] = std::from_chars(begin, text.data() + text.size(), real);
    return wrong == std::errc() && stop == text.data() + text.size() && stop != begin ? from_real(real) : fallback;
}

Value filter_lower(Runtime& runtime, const Value& value, const Arguments&) {
    return mapped_case(runtime, as_text(value), Case::lower);
}
Value filter_upper(Runtime& runtime, const Value& value, const Arguments&) {
    return mapped_case(runtime, as_text(value), Case::upper);
}

Value filter_title(Runtime& runtime, const Value& value, const Arguments&) {
    return titled(runtime, as_text(value), TitleRule::after_separators);
}

Value filter_replace(Runtime& runtime, const Value& value, const Arguments& arguments) {
    check_arguments("replace", arguments, 3, {"old", "new", "count"});
    const Value* from = argument(arguments, 0, "old");
    const Value* to = argument(arguments, 1, "new");
    const Value* count = argument(arguments, 2, "count");
    if (from == nullptr || to == nullptr) throw TemplateError("replace needs the old and the new text");
    const std::int64_t most = count == nullptr || count->is(Kind::none) ? -1 : whole_of("replace", *count);
    return replaced(runtime, as_text(value), as_text(*from), as_text(*to), most).set_markup(false);
}

Value filter_round(Runtime&, const Value& value, const Arguments& arguments) {
    check_arguments("round", arguments, 2, {"precision", "method"});
    const Value* precision = argument(arguments, 0, "precision");
    const Value* method = argument(arguments, 1, "method");
    if (!value.is_number()) throw TemplateError("round needs a number, not " + type_name(value));
    const std::int64_t digits = precision != nullptr ? whole_of("round", *precision) : 0;
    const std::string how = method != nullptr ? text_of("round", *method).bytes() : "common";
    if (digits < -300 || digits > 300) throw TemplateError("round is limited to 300 digits");
    const double factor = std::pow(10.0, static_cast<double>(digits));
    if (how == "ceil") return std::ceil(value.number() * factor) / factor;
    if (how == "floor") return std::floor(value.number() * factor) / factor;
    if (how != "common") throw TemplateError("round knows the methods common, ceil and floor");
    if (const auto whole = value.whole()) {
        if (digits >= 0) return *whole;
        return static_cast<std::int64_t>(std::nearbyint(static_cast<double>(*whole) * factor) / factor);
    }
    if (digits < 0) return std::nearbyint(value.number() * factor) / factor;
    // As Python rounds: by the exact decimal value, halves to even.
    char buffer[700];
    const int length = std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(digits), value.number());
    double out = 0.0;
    std::from_chars(buffer, buffer + length, out);
    return out;
}

Value filter_string(Runtime&, const Value& value, const Arguments&) { return as_text(value); }

Value filter_tojson(Runtime& runtime, const Value& value, const Arguments& arguments) {
    check_arguments("tojson", arguments, 4, {"ensure_ascii", "indent", "separators", "sort_keys"});
    const Value* ascii = argument(arguments, 0, "ensure_ascii");
    const Value* indent = argument(arguments, 1, "indent");
    const Value* separators = argument(arguments, 2, "separators");
    const Value* sorted = argument(arguments, 3, "sort_keys");
    int spaces = -1;
    if (indent != nullptr && !indent->is(Kind::none)) {
        const std::int64_t count = whole_of("the indent of tojson", *indent);
        if (count > 100) throw TemplateError("the indent of tojson is limited to 100");
        spaces = static_cast<int>(std::max<std::int64_t>(count, 0));
    }
    std::string item = spaces < 0 ? ", " : ",", key = ": ";
    if (separators != nullptr && !separators->is(Kind::none)) {
        if (!separators->is(Kind::list) || separators->list().items.size() != 2) {
            throw TemplateError("the separators of tojson are two strings");
        }
        item = text_of("a separator", separators->list().items[0]).bytes();
        key = text_of("a separator", separators->list().items[1]).bytes();
    }
    require_defined(value);
    return dump_json(runtime, value, spaces, sorted != nullptr && sorted->truth(), item, key,
                     ascii != nullptr && ascii->truth());
}

Value filter_trim(Runtime& runtime, const Value& value, const Arguments& arguments) {
    check_arguments("trim", arguments, 1, {"chars"});
    const Value* characters = argument(arguments, 0, "chars");
    const Text text = as_text(value);
    runtime.charge(text);
    if (characters == nullptr || characters->is(Kind::none)) return strip(text, true, true);
    return strip(text, true, true, &text_of("trim", *characters).bytes());
}

Value filter_truncate(Runtime& runtime, const Value& value, const Arguments& arguments) {
    check_arguments("truncate", arguments, 4, {"length", "killwords", "end", "leeway"});
    const Value* length = argument(arguments, 0, "length");
    const Value* cut = argument(arguments, 1, "killwords");
    const Value* end = argument(arguments, 2, "end");
    const Value* leeway = argument(arguments, 3, "leeway");
    const Text text = as_text(value), dots = end != nullptr ? text_of("truncate", *end) : Text("...");
    const std::int64_t most = length != nullptr ? whole_of("truncate", *length) : 255;
    const std::int64_t slack = leeway != nullptr && !leeway->is(Kind::none) ? whole_of("truncate", *leeway) : 5;
    const std::vector<std::size_t> at = character_offsets(text.bytes());
    const auto count = static_cast<std::int64_t>(at.size()) - 1;
    const auto end_count = static_cast<std::int64_t>(count_characters(dots.bytes()));
    if (most < end_count) throw TemplateError("truncate needs a length that its end fits into");
    if (slack < 0) throw TemplateError("the leeway of truncate cannot be negative");
    if (count <= most + slack) return text;
    Text out = text.slice(0, at[static_cast<std::size_t>(most - end_count)]);
    if (cut == nullptr || !cut->truth()) {
        const std::size_t space = out.bytes().rfind(' ');
        if (space != std::string::npos) out = out.slice(0, space);
    }
    out.append(dots);
    runtime.charge(out);
    return out;
}

Value filter_wordcount(Runtime&, const Value& value, const Arguments&) {
    return static_cast<std::int64_t>(split(as_text(value), nullptr, -1).size());
}

}  // namespace

Filter find_filter(std::string_view name) {
    constexpr std::pair<std::string_view, Filter> kFilters[] = {
        {"abs", filter_abs},       {"attr", filter_attr},           {"capitalize", filter_capitalize},
        {"center", filter_center}, {"d", filter_default},           {"default", filter_default},
        {"e", filter_escape},      {"escape", filter_escape},       {"float", filter_float},
        {"format", filter_format}, {"indent", filter_indent},       {"int", filter_int},
        {"lower", filter_lower},   {"replace", filter_replace},     {"round", filter_round},
        {"safe", filter_safe},     {"string", filter_string},       {"title", filter_title},
        {"tojson", filter_tojson}, {"trim", filter_trim},           {"truncate", filter_truncate},
        {"upper", filter_upper},   {"wordcount", filter_wordcount},
    };
    const auto found =
        std::find_if(std::begin(kFilters), std::end(kFilters), [&](const auto& known) { return known.first == name; });
    return found != std::end(kFilters) ? found->second : find_sequence_filter(name);
}

}  // namespace foresay::jinja
