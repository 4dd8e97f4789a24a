// Methods of strings, lists and dicts: Python's, those that change nothing.
#include <algorithm>

#include "core/jinja/runtime.h"
#include "core/jinja/strings.h"

namespace foresay::jinja {

namespace {

using Arguments = CallArguments;

Value texts(Runtime& runtime, std::vector<Text> parts) {
    List out;
    for (Text& part : parts) {
        runtime.charge(part.size() + sizeof(Value) + sizeof(Text));
        out.items.emplace_back(std::move(part));
    }
    return out;
}

// An argument that is a string, or nullptr when it is absent or none.
const std::string* optional_text(const char* what, const Arguments& arguments, std::size_t place,
                                 std::string_view name) {
    const Value* value = argument(arguments, place, name);
    return value == nullptr || value->is(Kind::none) ? nullptr : &text_of(what, *value).bytes();
}

const Value& required(const char* what, const Arguments& arguments, std::size_t place) {
    if (place >= arguments.positional.size()) throw TemplateError(std::string(what) + " needs an argument more");
    return arguments.positional[place];
}

// ----------------------------------------------------------------------------------------------------------- strings

template <bool kLeft, bool kRight>
Value strip_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
    check_arguments("strip", arguments, 1, {});
    runtime.charge(self.text());
    return strip(self.text(), kLeft, kRight, optional_text("strip", arguments, 0, ""));
}

template <bool kFromRight>
Value split_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
    check_arguments("split", arguments, 2, {"sep", "maxsplit"});
    const Value* most = argument(arguments, 1, "maxsplit");
    const std::string* separator = optional_text("split", arguments, 0, "sep");
    const std::int64_t count = most != nullptr ? whole_of("split", *most) : -1;
    runtime.charge(self.text());
    return texts(runtime,
                 kFromRight ? split_from_right(self.text(), separator, count) : split(self.text(), separator, count));
}

Value splitlines_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
    check_arguments("splitlines", arguments, 1, {"keepends"});
    const Value* keep = argument(arguments, 0, "keepends");
    runtime.charge(self.text());
    return texts(runtime, split_lines(self.text(), keep != nullptr && keep->truth()));
}

// startswith and endswith: a string or a tuple of them.
template <bool kEnd>
Value affix_method(Runtime&, const Value& self, const Arguments& arguments) {
    check_arguments("startswith", arguments, 1, {});
    const Value& wanted = required("startswith", arguments, 0);
    const std::string& bytes = self.text().bytes();
    const auto holds = [&](const Value& one) {
        const std::string& text = text_of("startswith", one).bytes();
        return kEnd ? bytes.ends_with(text) : bytes.starts_with(text);
    };
    if (!wanted.is_tuple()) return holds(wanted);
    return std::any_of(wanted.list().items.begin(), wanted.list().items.end(), holds);
}

// Python's Markup escapes what these methods put into it; no chat template needs that.
void refuse_markup(const Value& self, const char* what) {
    if (self.text().is_markup())
        throw TemplateError(std::string(what) + " of a text that is marked safe is not supported");
}

Value replace_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
    refuse_markup(self, "replace");
    check_arguments("replace", arguments, 3, {"count"});
    const Value* count = argument(arguments, 2, "count");
    return replaced(runtime, self.text(), text_of("replace", required("replace", arguments, 0)),
                    text_of("replace", required("replace", arguments, 1)),
                    count != nullptr ? whole_of("replace", *count) : -1);
}

// Of characters: -1 when it is not there.
template <bool kLast>
Value find_method_of(Runtime&, const Value& self, const Arguments& arguments) {
    check_arguments("find", arguments, 1, {});
    const std::string &bytes = self.text().bytes(), &wanted = text_of("find", required("find", arguments, 0)).bytes();
    const std::size_t at = kLast ? bytes.rfind(wanted) : bytes.find(wanted);
    if (at == bytes.npos) return std::int64_t{-1};
    return static_cast<std::int64_t>(count_characters(std::string_view(bytes).substr(0, at)));
}

template <bool kLast>
Value index_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
    const Value at = find_method_of<kLast>(runtime, self, arguments);
    if (at.integer() < 0) throw TemplateError("substring not found");
    return at;
}

Value count_method(Runtime&, const Value& self, const Arguments& arguments) {
    const std::string &bytes = self.text().bytes(), &wanted = text_of("count", required("count", arguments, 0)).bytes();
    if (wanted.empty()) return static_cast<std::int64_t>(count_characters(bytes)) + 1;
    std::int64_t count = 0;
    for (std::size_t at = bytes.find(wanted); at != bytes.npos; at = bytes.find(wanted, at + wanted.size())) ++count;
    return count;
}

Value join_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
    refuse_markup(self, "join");
    Text out;
    bool first = true;
    for (const Value& one : iterate(runtime, required("join", arguments, 0))) {
        if (!std::exchange(first, false)) out.append(self.text());
        const Text& text = text_of("join", one);
        runtime.charge(text.size() + self.text().size());
        out.append(text);
    }
    return out;
}

// "{} of {name}".format(...), without format specifications.
Value format_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
    refuse_markup(self, "format");
    const Text& pattern = self.text();
    const std::string& bytes = pattern.bytes();
    Text out;
    std::size_t next = 0;
    for (std::size_t at = 0; at < bytes.size(); ++at) {
        const char c = bytes[at];
        if (c != '{' && c != '}') {
            out.append(pattern, at, at + 1);
            continue;
        }
        if (at + 1 < bytes.size() && bytes[at + 1] == c) {
            out.append(pattern, at, at + 1);
            ++at;
            continue;
        }
        const std::size_t end = c == '{' ? bytes.find('}', at) : bytes.npos;
        if (end == bytes.npos) throw TemplateError(std::string("single '") + c + "' in a format string");
        const std::string name = bytes.substr(at + 1, end - at - 1);
        if (name.find_first_of(":!.[") != name.npos)
            throw TemplateError("the format '{" + name + "}' is not supported");
        const Value* value = nullptr;
        if (name.empty() || name.find_first_not_of("0123456789") == name.npos) {
            const std::size_t place = name.empty() ? next++ : name.size() < 4 ? std::stoul(name) : SIZE_MAX;
            if (place < arguments.positional.size()) value = &arguments.positional[place];
        } else {
            value = argument(arguments, SIZE_MAX, name);
        }
        if (value == nullptr)
            throw TemplateError("the format string names an argument that was not given: {" + name + "}");
        const Text text = to_text(*value);
        runtime.charge(text);
        out.append(text);
        at = end;
    }
    runtime.charge(out);
    return out;
}

template <Case kCase>
Value case_method(Runtime& runtime, const Value& self, const Arguments&) {
    return mapped_case(runtime, self.text(), kCase);
}

Value capitalize_method(Runtime& runtime, const Value& self, const Arguments&) {
    return capitalized(runtime, self.text());
}
Value title_method(Runtime& runtime, const Value& self, const Arguments&) {
    return titled(runtime, self.text(), TitleRule::after_no_letter);
}

template <Padding kPlace>
Value pad_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
    const std::string* fill = optional_text("a padding", arguments, 1, "");
    return padded(runtime, self.text(), whole_of("a padding", required("a padding", arguments, 0)),
                  fill != nullptr ? *fill : " ", kPlace);
}

Value zfill_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
    const Text& text = self.text();
    const bool has_sign = !text.empty() && (text.bytes()[0] == '-' || text.bytes()[0] == '+');
    const std::int64_t width = whole_of("zfill", required("zfill", arguments, 0));
    if (!has_sign) return padded(runtime, text, width, "0", Padding::right);
    Text out = text.slice(0, 1);
    out.append(padded(runtime, text.slice(1, text.size()), width - 1, "0", Padding::right));
    return out;
}

template <bool kEnd>
Value remove_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
    const std::string& affix = text_of("removeprefix", required("removeprefix", arguments, 0)).bytes();
    const Text& text = self.text();
    runtime.charge(text);
    if (kEnd && text.bytes().ends_with(affix)) return text.slice(0, text.size() - affix.size());
    if (!kEnd && text.bytes().starts_with(affix)) return text.slice(affix.size(), text.size());
    return text;
}

template <bool kFromRight>
Value partition_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
    const std::string& separator = text_of("partition", required("partition", arguments, 0)).bytes();
    if (separator.empty()) throw TemplateError("empty separator");
    const Text& text = self.text();
    runtime.charge(text);
    const std::size_t at = kFromRight ? text.bytes().rfind(separator) : text.bytes().find(separator);
    List out{.items = {}, .tuple = true};
    if (at == std::string::npos) {
        out.items = kFromRight ? std::vector<Value>{Value(""), Value(""), self}
                               : std::vector<Value>{self, Value(""), Value("")};
    } else {
        const std::size_t end = at + separator.size();
        out.items = {Value(text.slice(0, at)), Value(text.slice(at, end)), Value(text.slice(end, text.size()))};
    }
    return out;
}

bool is_digit(char32_t code) { return code >= '0' && code <= '9'; }
bool is_letter_or_digit(char32_t code) { return is_letter(code) || is_digit(code); }

// Whether there are characters and all are so.
template <bool (*kHolds)(char32_t)>
Value all_method(Runtime&, const Value& self, const Arguments&) {
    const std::string& bytes = self.text().bytes();
    for (std::size_t at = 0; at < bytes.size(); at += character_bytes(bytes, at)) {
        if (!kHolds(character_code(bytes, at))) return false;
    }
    return !bytes.empty();
}

Value upper_test(Runtime& runtime, const Value& self, const Arguments&) {
    return find_test("upper")(runtime, self, {});
}
Value lower_test(Runtime& runtime, const Value& self, const Arguments&) {
    return find_test("lower")(runtime, self, {});
}

// ---------------------------------------------------------------------------------------------------- lists and dicts

Value list_index(Runtime&, const Value& self, const Arguments& arguments) {
    const auto& items = self.list().items;
    const Value& wanted = required("index", arguments, 0);
    const auto found = std::find_if(items.begin(), items.end(), [&](const Value& one) { return equal(one, wanted); });
    if (found == items.end()) throw TemplateError("the value is not in the list");
    return static_cast<std::int64_t>(found - items.begin());
}

Value list_count(Runtime&, const Value& self, const Arguments& arguments) {
    const auto& items = self.list().items;
    const Value& wanted = required("count", arguments, 0);
    return static_cast<std::int64_t>(
        std::count_if(items.begin(), items.end(), [&](const Value& one) { return equal(one, wanted); }));
}

Value copy_method(Runtime&, const Value& self, const Arguments&) { return self; }

Value get_method(Runtime&, const Value& self, const Arguments& arguments) {
    check_arguments("get", arguments, 2, {});
    const Value* found = self.dict().find(required("get", arguments, 0));
    if (found != nullptr) return *found;
    return arguments.positional.size() > 1 ? arguments.positional[1] : Value();
}

Value items_method(Runtime& runtime, const Value& self, const Arguments&) {
    List out;
    for (const auto& [key, value] : self.dict().entries()) {
        runtime.charge(4 * sizeof(Value));
        out.items.emplace_back(List{.items = {key, value}, .tuple = true});
    }
    return runtime.checked(Value(std::move(out)));
}

template <bool kValues>
Value keys_method(Runtime& runtime, const Value& self, const Arguments&) {
    List out;
    for (const auto& [key, value] : self.dict().entries()) {
        runtime.charge(sizeof(Value));
        out.items.push_back(kValues ? value : key);
    }
    return runtime.checked(Value(std::move(out)));
}

using Named = std::pair<std::string_view, Method>;

constexpr Named kStringMethods[] = {
    {"capitalize", capitalize_method},
    {"casefold", case_method<Case::lower>},
    {"center", pad_method<Padding::center>},
    {"count", count_method},
    {"endswith", affix_method<true>},
    {"find", find_method_of<false>},
    {"format", format_method},
    {"index", index_method<false>},
    {"isalnum", all_method<is_letter_or_digit>},
    {"isalpha", all_method<is_letter>},
    {"isdecimal", all_method<is_digit>},
    {"isdigit", all_method<is_digit>},
    {"islower", lower_test},
    {"isnumeric", all_method<is_digit>},
    {"isspace", all_method<is_space>},
    {"isupper", upper_test},
    {"join", join_method},
    {"ljust", pad_method<Padding::left>},
    {"lower", case_method<Case::lower>},
    {"lstrip", strip_method<true, false>},
    {"partition", partition_method<false>},
    {"removeprefix", remove_method<false>},
    {"removesuffix", remove_method<true>},
    {"replace", replace_method},
    {"rfind", find_method_of<true>},
    {"rindex", index_method<true>},
    {"rjust", pad_method<Padding::right>},
    {"rpartition", partition_method<true>},
    {"rsplit", split_method<true>},
    {"rstrip", strip_method<false, true>},
    {"split", split_method<false>},
    {"splitlines", splitlines_method},
    {"startswith", affix_method<false>},
    {"strip", strip_method<true, true>},
    {"swapcase", case_method<Case::swapped>},
    {"title", title_method},
    {"upper", case_method<Case::upper>},
    {"zfill", zfill_method},
};
constexpr Named kListMethods[] = {{"copy", copy_method}, {"count", list_count}, {"index", list_index}};
constexpr Named kDictMethods[] = {{"copy", copy_method},
                                  {"get", get_method},
                                  {"items", items_method},
                                  {"keys", keys_method<false>},
                                  {"values", keys_method<true>}};
constexpr std::string_view kListChanges[] = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};

template <class Table>
Method look_up(const Table& table, std::string_view name) {
    const auto found =
        std::find_if(std::begin(table), std::end(table), [&](const Named& known) { return known.first == name; });
    return found != std::end(table) ? found->second : nullptr;
}

template <class Table>
void refuse_change(const Table& table, const Value& self, std::string_view name) {
    if (std::find(std::begin(table), std::end(table), name) != std::end(table)) {
        throw TemplateError("'" + type_name(self) + "." + std::string(name) +
                            "' would change a value, which chat templates may not do; build a new one with +");
    }
}

}  // namespace

Method find_method(const Value& self, std::string_view name) {
    switch (self.kind()) {
        case Kind::string:
            return look_up(kStringMethods, name);
        case Kind::list:
            if (!self.is_tuple()) refuse_change(kListChanges, self, name);
            return look_up(kListMethods, name);
        case Kind::dict:
            refuse_change(kDictChanges, self, name);
            return look_up(kDictMethods, name);
        default:
            return nullptr;
    }
}

}  // namespace foresay::jinja
