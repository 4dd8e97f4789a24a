// Filters of lists, dicts and other things that can be gone over.
#include <algorithm>

#include "base/split.h"
#include "core/jinja/runtime.h"

namespace foresay::jinja {

namespace {

using Arguments = CallArguments;

List list_of(Runtime& runtime, const Value& value) { return {.items = iterate(runtime, value), .tuple = false}; }

// The value that "a.b.0" names, as filters with an attribute have it.
Value by_path(Runtime& runtime, const Value& value, const Value& path) {
    if (!path.is(Kind::string)) return item(runtime, value, path);
    Value out = value;
    const std::string& text = path.text().bytes();
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find('.', begin), text.size());
        const std::string part = text.substr(begin, end - begin);
        const bool digits = !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == part.npos;
        if (out.is(Kind::undefined)) require_defined(out);
        out = digits ? item(runtime, out, Value(static_cast<std::int64_t>(std::stoll(part))))
                     : item(runtime, out, Value(part));
        begin = end + 1;
    }
    return out;
}

// What a filter with an optional attribute looks at: the attribute of `value`, or `value` itself without one.
Value part_of(Runtime& runtime, const Value& value, const Value* path) {
    return path != nullptr && !path->is(Kind::none) ? by_path(runtime, value, *path) : value;
}

// compare(), which throws where Python would.
int order_of(const Value& a, const Value& b) {
    const auto order = compare(a, b);
    if (!order) throw TemplateError("'" + type_name(a) + "' and '" + type_name(b) + "' cannot be ordered");
    return *order;
}

Value lowered(Runtime& runtime, const Value& value, bool case_sensitive) {
    if (case_sensitive || !value.is(Kind::string)) return value;
    return find_filter("lower")(runtime, value, {});
}

// Jinja2's lazy filters make nothing of what is false, and fail at what is not iterable when their result is gone over,
// not when it is made.
bool cannot_be_gone_over(const Value& value) {
    return value.is(Kind::none) || value.is_number() || value.is(Kind::object);
}
Value lazily_nothing(const Value& value) {
    List out;
    out.generator = true;
    if (value.truth()) out.fails = "'" + type_name(value) + "' object is not iterable";
    return out;
}

bool flag(const Arguments& arguments, std::size_t place, std::string_view name) {
    const Value* value = argument(arguments, place, name);
    return value != nullptr && value->truth();
}

// Sorts by keys, stably. Keys that Python would refuse to compare are refused.
template <class Key>
void sort_by(std::vector<Value>& items, bool reverse, Key&& key) {
    std::vector<std::pair<Value, std::size_t>> keys;
    for (std::size_t i = 0; i < items.size(); ++i) keys.emplace_back(key(items[i]), i);
    // A comparison that throws must do so before the algorithm relies on it.
    for (std::size_t i = 1; i < keys.size(); ++i) order_of(keys[i - 1].first, keys[i].first);
    std::stable_sort(keys.begin(), keys.end(), [&](const auto& a, const auto& b) {
        return reverse ? order_of(b.first, a.first) < 0 : order_of(a.first, b.first) < 0;
    });
    std::vector<Value> sorted;
    for (const auto& [value, place] : keys) sorted.push_back(items[place]);
    items = std::move(sorted);
}

Value filter_batch(Runtime& runtime, const Value& value, const Arguments& arguments) {
    check_arguments("batch", arguments, 2, {"linecount", "fill_with"});
    const Value* count = argument(arguments, 0, "linecount");
    const Value* fill = argument(arguments, 1, "fill_with");
    const std::int64_t size = count != nullptr ? whole_of("batch", *count) : 0;
    if (size < 1 || size > 1'000'000) throw TemplateError("batch needs a size from 1 to 1000000");
    List out, row;
    for (const Value& one : iterate(runtime, value)) {
        runtime.step();
        if (static_cast<std::int64_t>(row.items.size()) == size) out.items.emplace_back(std::exchange(row, {}));
        row.items.push_back(one);
    }
    if (!row.items.empty()) {
        while (fill != nullptr && !fill->is(Kind::none) && static_cast<std::int64_t>(row.items.size()) < size) {
            runtime.charge(sizeof(Value));
            row.items.push_back(*fill);
        }
        out.items.emplace_back(std::move(row));
    }
    out.generator = true;
    return runtime.checked(Value(std::move(out)));
}

Value filter_dictsort(Runtime& runtime, const Value& value, const Arguments& arguments) {
    check_arguments("dictsort", arguments, 3, {"case_sensitive", "by", "reverse"});
    const Value* by = argument(arguments, 1, "by");
    const std::string what = by != nullptr ? text_of("dictsort", *by).bytes() : "key";
    if (what != "key" && what != "value") throw TemplateError("dictsort sorts by 'key' or 'value'");
    if (!value.is(Kind::dict)) throw TemplateError("dictsort needs a dict, not " + type_name(value));
    std::vector<Value> pairs;
    for (const auto& [key, one] : value.dict().entries()) {
        runtime.step();
        runtime.charge(4 * sizeof(Value));
        pairs.emplace_back(List{.items = {key, one}, .tuple = true});
    }
    const bool sensitive = flag(arguments, 0, "case_sensitive");
    sort_by(pairs, flag(arguments, 2, "reverse"),
            [&](const Value& pair) { return lowered(runtime, pair.list().items[what == "key" ? 0 : 1], sensitive); });
    return runtime.checked(Value(List{.items = std::move(pairs)}));
}

Value filter_first(Runtime& runtime, const Value& value, const Arguments&) {
    if (value.is_generator()) {
        const List& list = value.list();
        if (list.taken < list.items.size()) return list.items[list.taken++];
    }
    const std::vector<Value> items = iterate(runtime, value);
    return items.empty() ? Value::undefined("No first item, sequence was empty.") : items.front();
}

Value filter_last(Runtime& runtime, const Value& value, const Arguments&) {
    const std::vector<Value> items = iterate(runtime, value);
    return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value filter_groupby(Runtime& runtime, const Value& value, const Arguments& arguments) {
    check_arguments("groupby", arguments, 3, {"attribute", "default", "case_sensitive"});
    const Value* path = argument(arguments, 0, "attribute");
    const Value* otherwise = argument(arguments, 1, "default");
    if (path == nullptr) throw TemplateError("groupby needs an attribute");
    const bool sensitive = flag(arguments, 2, "case_sensitive");
    const auto key_of = [&](const Value& one) {
        Value key = by_path(runtime, one, *path);
        return key.is(Kind::undefined) && otherwise != nullptr ? *otherwise : key;
    };
    std::vector<Value> items = iterate(runtime, value);
    sort_by(items, false, [&](const Value& one) { return lowered(runtime, key_of(one), sensitive); });
    List out;
    for (std::size_t i = 0; i < items.size();) {
        const Value key = key_of(items[i]), folded = lowered(runtime, key, sensitive);
        List group;
        for (; i < items.size() && equal(lowered(runtime, key_of(items[i]), sensitive), folded); ++i) {
            group.items.push_back(items[i]);
        }
        if (group.items.empty()) group.items.push_back(items[i++]);  // a key that does not equal itself
        runtime.charge(8 * sizeof(Value));
        out.items.emplace_back(List{.items = {key, Value(std::move(group))}, .tuple = true});
    }
    return runtime.checked(Value(std::move(out)));
}

Value filter_items(Runtime& runtime, const Value& value, const Arguments&) {
    List out;
    out.generator = true;
    if (value.is(Kind::undefined)) return out;
    if (!value.is(Kind::dict)) throw TemplateError("items needs a dict, not " + type_name(value));
    for (const auto& [key, one] : value.dict().entries()) {
        runtime.step();
        runtime.charge(4 * sizeof(Value));
        out.items.emplace_back(List{.items = {key, one}, .tuple = true});
    }
    out.generator = true;
    return runtime.checked(Value(std::move(out)));
}

Value filter_join(Runtime& runtime, const Value& value, const Arguments& arguments) {
    check_arguments("join", arguments, 2, {"d", "attribute"});
    const Value* between = argument(arguments, 0, "d");
    const Value* path = argument(arguments, 1, "attribute");
    const Text separator = between != nullptr ? to_text(*between) : Text();
    Text out;
    bool first = true;
    for (const Value& one : iterate(runtime, value)) {
        runtime.step();
        if (!std::exchange(first, false)) out.append(separator);
        const Text text = to_text(part_of(runtime, one, path));
        runtime.charge(text.size() + separator.size());
        out.append(text);
    }
    return out;
}

Value filter_length(Runtime& runtime, const Value& value, const Arguments&) {
    switch (value.kind()) {
        case Kind::undefined:
            return std::int64_t{0};
        case Kind::string:
            runtime.scan(value.text().size());
            return static_cast<std::int64_t>(count_characters(value.text().bytes()));
        case Kind::list:
            if (value.is_generator()) throw TemplateError("a generator has no length; make it a list with |list");
            return static_cast<std::int64_t>(value.list().items.size());
        case Kind::dict:
            return static_cast<std::int64_t>(value.dict().entries().size());
        default:
            throw TemplateError("object of type '" + type_name(value) + "' has no length");
    }
}

Value filter_list(Runtime& runtime, const Value& value, const Arguments&) {
    return runtime.checked(Value(list_of(runtime, value)));
}

Value filter_map(Runtime& runtime, const Value& value, const Arguments& arguments) {
    if (!value.truth() || cannot_be_gone_over(value)) return lazily_nothing(value);
    List out;
    const bool by_attribute = arguments.positional.empty();
    const Value* path = argument(arguments, SIZE_MAX, "attribute");
    const Value* otherwise = argument(arguments, SIZE_MAX, "default");
    if (by_attribute && path == nullptr) throw TemplateError("map needs a filter or an attribute");
    Filter filter = nullptr;
    Arguments rest;
    if (!by_attribute) {
        const std::string& name = text_of("map", arguments.positional.front()).bytes();
        filter = find_filter(name);
        if (filter == nullptr) throw TemplateError("no filter named '" + name + "'");
        rest.positional.assign(arguments.positional.begin() + 1, arguments.positional.end());
        rest.named = arguments.named;
    }
    for (const Value& one : iterate(runtime, value)) {
        runtime.step();
        if (by_attribute) {
            Value found = by_path(runtime, one, *path);
            out.items.push_back(found.is(Kind::undefined) && otherwise != nullptr ? *otherwise : found);
        } else {
            out.items.push_back(filter(runtime, one, rest));
        }
    }
    out.generator = true;
    return runtime.checked(Value(std::move(out)));
}

Value extreme(Runtime& runtime, const Value& value, const Arguments& arguments, int sign) {
    check_arguments(sign < 0 ? "min" : "max", arguments, 2, {"case_sensitive", "attribute"});
    const Value* path = argument(arguments, 1, "attribute");
    const bool sensitive = flag(arguments, 0, "case_sensitive");
    std::vector<Value> items = iterate(runtime, value);
    if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
    const auto key = [&](const Value& one) { return lowered(runtime, part_of(runtime, one, path), sensitive); };
    std::size_t best = 0;
    Value best_key = key(items[0]);
    for (std::size_t i = 1; i < items.size(); ++i) {
        Value next = key(items[i]);
        if (order_of(next, best_key) * sign <= 0) continue;
        best = i;
        best_key = std::move(next);
    }
    return items[best];
}
Value filter_max(Runtime& runtime, const Value& value, const Arguments& a) { return extreme(runtime, value, a, 1); }
Value filter_min(Runtime& runtime, const Value& value, const Arguments& a) { return extreme(runtime, value, a, -1); }

// select, reject, selectattr, rejectattr.
Value choose(Runtime& runtime, const Value& value, const Arguments& arguments, bool keep, bool by_attribute) {
    if (!value.truth() || cannot_be_gone_over(value)) return lazily_nothing(value);
    const std::size_t at = by_attribute ? 1 : 0;
    if (by_attribute && arguments.positional.empty()) throw TemplateError("the name of an attribute is missing");
    Test test = nullptr;
    Arguments rest;
    if (arguments.positional.size() > at) {
        const std::string& name = text_of("a test", arguments.positional[at]).bytes();
        test = find_test(name);
        if (test == nullptr) throw TemplateError("no test named '" + name + "'");
        rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                               arguments.positional.end());
        rest.named = arguments.named;
    }
    List out;
    for (const Value& one : iterate(runtime, value)) {
        runtime.step();
        const Value looked_at = by_attribute ? by_path(runtime, one, arguments.positional.front()) : one;
        const bool holds = test != nullptr ? test(runtime, looked_at, rest) : looked_at.truth();
        if (holds == keep) out.items.push_back(one);
    }
    out.generator = true;
    return runtime.checked(Value(std::move(out)));
}
Value filter_select(Runtime& r, const Value& value, const Arguments& a) { return choose(r, value, a, true, false); }
Value filter_reject(Runtime& r, const Value& value, const Arguments& a) { return choose(r, value, a, false, false); }
Value filter_selectattr(Runtime& r, const Value& value, const Arguments& a) { return choose(r, value, a, true, true); }
Value filter_rejectattr(Runtime& r, const Value& value, const Arguments& a) { return choose(r, value, a, false, true); }

Value filter_reverse(Runtime& runtime, const Value& value, const Arguments&) {
    if (value.is(Kind::string)) {
        return slice(runtime, value, Value(), Value(), Value(std::int64_t{-1}));
    }
    List out = list_of(runtime, value);
    std::reverse(out.items.begin(), out.items.end());
    out.generator = true;
    return runtime.checked(Value(std::move(out)));
}

Value filter_slice(Runtime& runtime, const Value& value, const Arguments& arguments) {
    check_arguments("slice", arguments, 2, {"slices", "fill_with"});
    const Value* count = argument(arguments, 0, "slices");
    const Value* fill = argument(arguments, 1, "fill_with");
    const std::int64_t slices = count != nullptr ? whole_of("slice", *count) : 0;
    if (slices < 1 || slices > 100'000) throw TemplateError("slice needs a number from 1 to 100000");
    const std::vector<Value> items = iterate(runtime, value);
    const std::size_t n = static_cast<std::size_t>(slices), each = items.size() / n, more = items.size() % n;
    List out;
    std::size_t at = 0;
    for (std::size_t i = 0; i < n; ++i) {
        runtime.step();
        runtime.charge(2 * sizeof(Value));
        List part;
        for (const std::size_t end = at + each + (i < more ? 1 : 0); at < end; ++at) part.items.push_back(items[at]);
        if (fill != nullptr && !fill->is(Kind::none) && i >= more) part.items.push_back(*fill);
        out.items.emplace_back(std::move(part));
    }
    out.generator = true;
    return runtime.checked(Value(std::move(out)));
}

Value filter_sort(Runtime& runtime, const Value& value, const Arguments& arguments) {
    check_arguments("sort", arguments, 3, {"reverse", "case_sensitive", "attribute"});
    const Value* path = argument(arguments, 2, "attribute");
    const bool sensitive = flag(arguments, 1, "case_sensitive");
    List out = list_of(runtime, value);
    sort_by(out.items, flag(arguments, 0, "reverse"), [&](const Value& one) {
        if (path == nullptr || path->is(Kind::none)) return lowered(runtime, one, sensitive);
        List keys{.items = {}, .tuple = true};
        const std::string text = to_text(*path).bytes();
        for (const std::string_view part : foresay::split(text, ','))
            keys.items.push_back(lowered(runtime, by_path(runtime, one, Value(std::string(part))), sensitive));
        return keys.items.size() == 1 ? keys.items.front() : Value(std::move(keys));
    });
    return runtime.checked(Value(std::move(out)));
}

Value filter_sum(Runtime& runtime, const Value& value, const Arguments& arguments) {
    check_arguments("sum", arguments, 2, {"attribute", "start"});
    const Value* path = argument(arguments, 0, "attribute");
    const Value* start = argument(arguments, 1, "start");
    Value total = start != nullptr ? *start : Value(std::int64_t{0});
    for (const Value& one : iterate(runtime, value)) {
        runtime.step();
        total = operate(runtime, Operation::add, total, part_of(runtime, one, path));
    }
    return total;
}

Value filter_unique(Runtime& runtime, const Value& value, const Arguments& arguments) {
    check_arguments("unique", arguments, 2, {"case_sensitive", "attribute"});
    const Value* path = argument(arguments, 1, "attribute");
    const bool sensitive = flag(arguments, 0, "case_sensitive");
    Dict seen;
    List out;
    for (const Value& one : iterate(runtime, value)) {
        runtime.step();
        const Value key = lowered(runtime, part_of(runtime, one, path), sensitive);
        if (!key.is(Kind::string)) {  // looked for one by one
            for (std::size_t i = 0; i < seen.entries().size(); i += 64) runtime.step();
        }
        if (seen.find(key) != nullptr) continue;
        seen.set(key, Value());
        out.items.push_back(one);
    }
    out.generator = true;
    return runtime.checked(Value(std::move(out)));
}

}  // namespace

Filter find_sequence_filter(std::string_view name) {
    constexpr std::pair<std::string_view, Filter> kFilters[] = {
        {"batch", filter_batch},     {"count", filter_length},    {"dictsort", filter_dictsort},
        {"first", filter_first},     {"groupby", filter_groupby}, {"items", filter_items},
        {"join", filter_join},       {"last", filter_last},       {"length", filter_length},
        {"list", filter_list},       {"map", filter_map},         {"max", filter_max},
        {"min", filter_min},         {"reject", filter_reject},   {"rejectattr", filter_rejectattr},
        {"reverse", filter_reverse}, {"select", filter_select},   {"selectattr", filter_selectattr},
        {"slice", filter_slice},     {"sort", filter_sort},       {"sum", filter_sum},
        {"unique", filter_unique},
    };
    const auto found =
        std::find_if(std::begin(kFilters), std::end(kFilters), [&](const auto& known) { return known.first == name; });
    return found != std::end(kFilters) ? found->second : nullptr;
}

}  // namespace foresay::jinja
