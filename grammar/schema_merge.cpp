#include "grammar/schema_merge.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "grammar/json_formats.h"

namespace foresay::grammar {
namespace {

constexpr std::size_t kMostParts = 2'000;
constexpr std::size_t kMostWork = 200'000;

using Kind = JsonValue::Kind;

bool one_of(std::string_view word, std::initializer_list<std::string_view> list) {
    return std::find(list.begin(), list.end(), word) != list.end();
}

bool find_path(const JsonValue& from, const JsonValue* target, std::string& path) {
    if (&from == target) return true;
    const std::size_t size = path.size();
    for (std::size_t i = 0; i < from.items.size(); ++i) {
        path += "/" + std::to_string(i);
        if (find_path(from.items[i], target, path)) return true;
        path.resize(size);
    }
    for (const auto& [name, value] : from.members) {
        path += '/';
        for (const char c : name) path += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
        if (find_path(value, target, path)) return true;
        path.resize(size);
    }
    return false;
}

// %41 to A, then ~1 to / and ~0 to ~.
std::string unescape(std::string_view token) {
    std::string text;
    for (std::size_t i = 0; i < token.size(); ++i) {
        const auto hex = [](char c) {
            return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        };
        if (token[i] == '%' && i + 2 < token.size() && hex(token[i + 1]) >= 0 && hex(token[i + 2]) >= 0) {
            text += static_cast<char>(hex(token[i + 1]) * 16 + hex(token[i + 2]));
            i += 2;
        } else {
            text += token[i];
        }
    }
    std::string plain;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const bool escape = text[i] == '~' && i + 1 < text.size() && (text[i + 1] == '0' || text[i + 1] == '1');
        plain += escape ? (text[++i] == '0' ? '~' : '/') : text[i];
    }
    return plain;
}

}  // namespace

Goal join(Goal a, const Goal& b) {
    a.insert(a.end(), b.begin(), b.end());
    std::sort(a.begin(), a.end());
    a.erase(std::unique(a.begin(), a.end()), a.end());
    return a;
}

bool MergedSchema::only_types() const {
    return choices.empty() && bounds.empty() && multiples.empty() && least_characters == 0 &&
           most_characters == UINT32_MAX && patterns.empty() && formats.empty() && items.empty() && least_items == 0 &&
           most_items == UINT32_MAX && properties.empty() && required.empty() && least_properties == 0 &&
           most_properties == UINT32_MAX;
}

SchemaDocument::SchemaDocument(JsonValue root, Expressions& expressions)
    : root_(std::move(root)), expressions_(expressions) {
    if (!root_.is(Kind::object) && !root_.is(Kind::boolean)) throw Error("a JSON Schema is an object, true or false");
    if (const JsonValue* schema = root_.find("$schema")) {
        for (const char* draft : {"draft-03", "draft-04", "draft-05", "draft-06", "draft-07"})
            reference_alone_ = reference_alone_ || schema->text.find(draft) != std::string::npos;
        for (const char* draft : {"draft-03", "draft-04"})
            strict_integers_ = strict_integers_ || schema->text.find(draft) != std::string::npos;
    }
    for (const char* name : {"$id", "id"}) {
        const JsonValue* id = root_.find(name);
        if (id != nullptr && id->is(Kind::string)) id_ = id->text;
    }
    while (id_.ends_with('#')) id_.pop_back();
    index(root_);
}

void SchemaDocument::index(const JsonValue& value) {
    for (const JsonValue& item : value.items) index(item);
    for (const auto& [name, member] : value.members) {
        if (member.is(Kind::string)) {
            if (name == "$anchor") anchors_.emplace(member.text, &value);
            if ((name == "$id" || name == "id") && member.text.starts_with('#'))
                anchors_.emplace(member.text.substr(1), &value);
            if (name == "$ref") has_references_ = true;
        }
        index(member);
    }
}

std::string SchemaDocument::pointer_to(const JsonValue& schema) const {
    std::string path = "#";
    find_path(root_, &schema, path);
    return path;
}

void SchemaDocument::refuse(const JsonValue& schema, std::string_view keyword, const std::string& why) const {
    throw Error("the schema cannot be used: \"" + std::string(keyword) + "\" at " + pointer_to(schema) + " " + why);
}

std::uint32_t SchemaDocument::count(const JsonValue& schema, std::string_view keyword, const JsonValue& value) const {
    Decimal d;
    if (!value.is(Kind::number) || !Decimal::read(value.text, d) || d.negative || !d.fraction.empty())
        refuse(schema, keyword, "must be a number of 0 or more");
    if (d.whole.size() > 9) return 1'000'000'000;
    return d.whole.empty() ? 0 : static_cast<std::uint32_t>(std::stoul(d.whole));
}

Decimal SchemaDocument::decimal(const JsonValue& schema, std::string_view keyword, const JsonValue& value) const {
    Decimal d;
    if (!value.is(Kind::number)) refuse(schema, keyword, "must be a number");
    if (!Decimal::read(value.text, d)) refuse(schema, keyword, "has more than 400 digits");
    return d;
}

const JsonValue& SchemaDocument::resolve(const JsonValue& schema, const JsonValue& reference) const {
    if (!reference.is(Kind::string)) refuse(schema, "$ref", "must be a text");
    std::string_view text = reference.text;
    if (!id_.empty() && text.starts_with(id_)) {
        const std::string_view rest = text.substr(id_.size());
        if (rest.empty() || rest[0] == '#') text = rest;
    }
    if (text.empty() || text == "#") return root_;
    if (!text.starts_with('#'))
        refuse(schema, "$ref", "names another document (" + std::string(text.substr(0, 100)) + "): put it into $defs");
    text.remove_prefix(1);
    if (text[0] != '/') {
        const auto anchor = anchors_.find(unescape(text));
        if (anchor == anchors_.end()) refuse(schema, "$ref", "names nothing: #" + std::string(text.substr(0, 100)));
        return *anchor->second;
    }
    const JsonValue* value = &root_;
    while (value != nullptr && !text.empty()) {
        expressions_.spend(2 + value->members.size() / 16);
        const std::size_t end = text.find('/', 1);
        const std::string token = unescape(text.substr(1, end == text.npos ? text.npos : end - 1));
        text.remove_prefix(end == text.npos ? text.size() : end);
        if (value->is(Kind::array)) {
            const bool number = !token.empty() && token.size() < 9 &&
                                std::all_of(token.begin(), token.end(), [](char c) { return c >= '0' && c <= '9'; });
            const std::size_t i = number ? std::stoul(token) : value->items.size();
            value = i < value->items.size() ? &value->items[i] : nullptr;
        } else {
            value = value->find(token);
        }
    }
    if (value == nullptr) refuse(schema, "$ref", "names nothing: " + reference.text.substr(0, 100));
    return *value;
}

MergedSchema SchemaDocument::merge(const Goal& goal) const {
    expressions_.spend(10 + goal.size());
    MergedSchema merged;
    std::set<const JsonValue*> seen;
    // Those that have been dealt with first: where another one leads back to them, it adds nothing.
    for (const bool known : {true, false}) {
        for (const SchemaPart& part : goal) {
            if ((part.without != 0) == known) add(part, merged, seen);
        }
    }
    std::sort(merged.goal.begin(), merged.goal.end());
    merged.goal.erase(std::unique(merged.goal.begin(), merged.goal.end()), merged.goal.end());
    std::sort(merged.required.begin(), merged.required.end());
    merged.required.erase(std::unique(merged.required.begin(), merged.required.end()), merged.required.end());
    return merged;
}

// The goal that is kept has the schemas themselves: those that only point to others are replaced by them, so that
// different ways to say the same are one goal.
void SchemaDocument::add(const SchemaPart& part, MergedSchema& merged, std::set<const JsonValue*>& seen) const {
    const JsonValue& schema = *part.schema;
    if (schema.is(Kind::boolean)) {
        if (!schema.truth) {
            merged.never = true;
            merged.goal.push_back(part);
        }
        return;
    }
    if (!schema.is(Kind::object)) refuse(schema, "schema", "is no schema: it must be an object, true or false");
    if (!seen.insert(&schema).second) return;
    // A look at each keyword, and a search for several.
    expressions_.spend(8 + schema.members.size());
    if (++work_ > kMostWork) refuse(root_, "schema", "leads to too many combinations of its parts");
    if (seen.size() > kMostParts) refuse(schema, "allOf", "leads to more than 2000 schemas at once");
    const bool followed = (part.without & SchemaPart::kReferences) != 0;
    const JsonValue* reference = schema.find("$ref");
    if (reference != nullptr && !followed) {
        add({&resolve(schema, *reference), 0}, merged, seen);
        if (reference_alone_ || schema.members.size() == 1) return;
    }
    if (&schema != &root_ && has_references_) {
        for (const char* name : {"$id", "id"}) {
            const JsonValue* id = schema.find(name);
            if (id != nullptr && id->is(Kind::string) && !id->text.starts_with('#'))
                refuse(schema, name, "changes what $ref means: use $defs and #/ references");
        }
    }
    const SchemaPart kept{&schema, static_cast<std::uint8_t>(part.without | SchemaPart::kReferences)};
    merged.goal.push_back(kept);
    add_object(schema, merged);
    for (const auto& [name, value] : schema.members) {
        if (name == "allOf") {
            if (!value.is(Kind::array)) refuse(schema, name, "must be a list");
            if (followed) continue;
            for (const JsonValue& item : value.items) add({&item, 0}, merged, seen);
        } else if (name == "anyOf" || name == "oneOf") {
            if (!value.is(Kind::array) || value.items.empty()) refuse(schema, name, "must be a list that is not empty");
            const bool one = name == "oneOf";
            if ((part.without & (one ? SchemaPart::kOneOf : SchemaPart::kAnyOf)) == 0)
                merged.choices.push_back({kept, one, &value});
        } else if (name == "enum" || name == "const") {
            if (name == "enum" && !value.is(Kind::array)) refuse(schema, name, "must be a list");
            if ((part.without & SchemaPart::kValues) == 0) merged.values.push_back(&value);
        } else {
            add_keyword(schema, name, value, merged);
        }
    }
}

void SchemaDocument::add_object(const JsonValue& schema, MergedSchema& merged) const {
    MergedSchema::Properties properties{schema.find("properties"), schema.find("patternProperties"),
                                        schema.find("additionalProperties")};
    for (const auto& [value, name] :
         {std::pair{properties.named, "properties"}, std::pair{properties.patterns, "patternProperties"}}) {
        if (value != nullptr && !value->is(Kind::object)) refuse(schema, name, "must be an object");
    }
    if (properties.named != nullptr || properties.patterns != nullptr || properties.additional != nullptr)
        merged.properties.push_back(properties);
    MergedSchema::Items items{schema.find("prefixItems"), schema.find("items")};
    if (items.rest != nullptr && items.rest->is(Kind::array)) {  // before 2020-12
        items.first = items.rest;
        items.rest = schema.find("additionalItems");
    }
    if (items.first != nullptr && !items.first->is(Kind::array)) refuse(schema, "prefixItems", "must be a list");
    if (items.first != nullptr || items.rest != nullptr) merged.items.push_back(items);
}

void SchemaDocument::add_types(const JsonValue& schema, const JsonValue& value, MergedSchema& merged) const {
    unsigned types = 0;
    bool integer = false;
    bool number = false;
    const std::vector<JsonValue> single = {value};
    for (const JsonValue& type : value.is(Kind::array) ? value.items : single) {
        static const std::array<std::pair<std::string_view, unsigned>, 7> kTypes = {{{"null", MergedSchema::null},
                                                                                     {"boolean", MergedSchema::boolean},
                                                                                     {"number", MergedSchema::number},
                                                                                     {"integer", MergedSchema::number},
                                                                                     {"string", MergedSchema::string},
                                                                                     {"array", MergedSchema::array},
                                                                                     {"object", MergedSchema::object}}};
        const auto found = std::find_if(kTypes.begin(), kTypes.end(),
                                        [&](const auto& t) { return type.is(Kind::string) && t.first == type.text; });
        if (found == kTypes.end()) refuse(schema, "type", "names no type of JSON");
        types |= found->second;
        integer = integer || type.text == "integer";
        number = number || type.text == "number";
    }
    merged.types &= types;
    merged.integer = merged.integer || (integer && !number);
    merged.strict_integer = merged.integer && strict_integers_;
}

void SchemaDocument::add_keyword(const JsonValue& schema, const std::string& name, const JsonValue& value,
                                 MergedSchema& merged) const {
    const auto is_true = [&](const char* other) {
        const JsonValue* found = schema.find(other);
        return found != nullptr && found->is(Kind::boolean) && found->truth;
    };
    const auto bound = [&](Comparison comparison) {
        merged.bounds.emplace_back(comparison, decimal(schema, name, value));
    };
    if (name == "type") {
        add_types(schema, value, merged);
    } else if (name == "minimum") {
        bound(is_true("exclusiveMinimum") ? Comparison::above : Comparison::at_least);
    } else if (name == "maximum") {
        bound(is_true("exclusiveMaximum") ? Comparison::below : Comparison::at_most);
    } else if (name == "exclusiveMinimum") {
        if (!value.is(Kind::boolean)) bound(Comparison::above);  // draft 4: see minimum
    } else if (name == "exclusiveMaximum") {
        if (!value.is(Kind::boolean)) bound(Comparison::below);
    } else if (name == "multipleOf") {
        const Decimal d = decimal(schema, name, value);
        if (d.negative || d.zero()) refuse(schema, name, "must be more than 0");
        const std::string digits = d.whole + d.fraction;
        const std::string factor = digits.substr(std::min(digits.find_first_not_of('0'), digits.size()));
        if (factor.size() > 9 || d.fraction.size() > 200) refuse(schema, name, "has too many digits: 9 are supported");
        merged.multiples.emplace_back(std::stoull(factor), static_cast<std::uint32_t>(d.fraction.size()));
    } else if (name == "minLength") {
        merged.least_characters = std::max(merged.least_characters, count(schema, name, value));
    } else if (name == "maxLength") {
        merged.most_characters = std::min(merged.most_characters, count(schema, name, value));
    } else if (name == "pattern") {
        if (!value.is(Kind::string)) refuse(schema, name, "must be a text");
        merged.patterns.push_back(value.text);
    } else if (name == "format") {
        if (!value.is(Kind::string)) refuse(schema, name, "must be a text");
        std::string pattern;
        const FormatKind kind = find_format(value.text, pattern);
        if (kind == FormatKind::unsupported) refuse(schema, name, "is \"" + value.text + "\", which is not supported");
        if (kind == FormatKind::pattern) merged.formats.push_back(pattern);
        if (value.text == "hostname") merged.most_characters = std::min(merged.most_characters, 253u);
    } else if (name == "minItems") {
        merged.least_items = std::max(merged.least_items, count(schema, name, value));
    } else if (name == "maxItems") {
        merged.most_items = std::min(merged.most_items, count(schema, name, value));
    } else if (name == "minProperties") {
        const std::uint32_t least = count(schema, name, value);
        if (least > merged.least_properties) merged.least_properties_of = &schema;
        merged.least_properties = std::max(merged.least_properties, least);
    } else if (name == "maxProperties") {
        merged.most_properties = std::min(merged.most_properties, count(schema, name, value));
    } else if (name == "required") {
        if (value.is(Kind::boolean)) refuse(schema, name, "must be a list of names");
        for (const JsonValue& item : value.items) {
            if (!item.is(Kind::string)) refuse(schema, name, "must be a list of names");
            merged.required.push_back(item.text);
        }
    } else if (name == "uniqueItems") {
        if (!value.is(Kind::boolean) || value.truth) refuse(schema, name, "is not supported");
    } else if (name == "if") {
        if (schema.find("then") != nullptr || schema.find("else") != nullptr) refuse(schema, name, "is not supported");
    } else if (one_of(name, {"not", "dependentRequired", "dependentSchemas", "dependencies", "propertyNames",
                             "contains", "minContains", "maxContains", "unevaluatedItems", "unevaluatedProperties",
                             "$dynamicRef", "$recursiveRef", "divisibleBy", "disallow", "extends"})) {
        refuse(schema, name, "is not supported");
    }
    // What is left has been read elsewhere, or is a word that JSON Schema gives no power to restrict: title, default,
    // ...
}

}  // namespace foresay::grammar
