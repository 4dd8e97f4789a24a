#include "server/api/fields.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "server/error.h"

namespace foresay::server {

namespace {

unsigned kind_of(const Json& value) {
    switch (value.kind()) {
        case Json::Kind::boolean:
            return kBoolean;
        case Json::Kind::integer:
        case Json::Kind::large:
            return kInteger | kNumber;
        case Json::Kind::real:
            // 3.0 is an integer for JavaScript, which has no others.
            return std::floor(value.number()) == value.number() && std::abs(value.number()) < 9e15 ? kInteger | kNumber
                                                                                                   : kNumber;
        case Json::Kind::string:
            return kString;
        case Json::Kind::list:
            return kList;
        case Json::Kind::object:
            return kObject;
        default:
            return 0;
    }
}

constexpr std::array<std::pair<unsigned, std::string_view>, 6> kNames = {{{kBoolean, "boolean"},
                                                                          {kInteger, "integer"},
                                                                          {kNumber, "number"},
                                                                          {kString, "string"},
                                                                          {kObject, "object"},
                                                                          {kList, "list"}}};

std::string number_text(double value) {
    return Json(value == std::floor(value) && std::abs(value) < 9e15 ? Json(static_cast<std::int64_t>(value))
                                                                     : Json(value))
        .dump();
}

// Whole numbers that are not integers here: those beyond 64 bits, or beyond what a real has exactly.
void check_large(const Field& field, const Json& value, const std::string& path) {
    if ((field.kinds & (kInteger | kNumber)) != kInteger || !value.is(Json::Kind::real) ||
        std::floor(value.number()) != value.number() || (kind_of(value) & kInteger) != 0)
        return;
    constexpr double kLeast = -0x1p63, kAboveMost = 0x1p64;  // of 64 bits, with a sign and without
    if (value.number() >= std::max(field.least, kLeast) && value.number() <= field.most && value.number() < kAboveMost)
        throw wrong_value(path, "'" + path + "' must be written in digits alone, without a point or an exponent");
    throw wrong_value(path,
                      "'" + path + "' is " + number_text(value.number()) + ", but must be " +
                          (has_range(field) ? range_text(field) : "from -9223372036854775808 to 18446744073709551615"));
}

void check_kind(unsigned allowed, const Json& value, const std::string& path) {
    if ((kind_of(value) & allowed) != 0) return;
    throw wrong_type(path, "'" + path + "' must be " + kinds_text(allowed) + ", not " + kinds_text(kind_of(value)));
}

void check_value(const Field& field, const Json& value, const std::string& path, std::vector<std::string>* unknown) {
    check_large(field, value, path);
    check_kind(field.kinds, value, path);
    if (value.is_number() && !(value.number() >= field.least && value.number() <= field.most))
        throw wrong_value(path,
                          "'" + path + "' is " + number_text(value.number()) + ", but must be " + range_text(field));
    if (value.is_string() && !field.choices.empty() &&
        std::find(field.choices.begin(), field.choices.end(), value.string()) == field.choices.end()) {
        std::string all;
        for (const std::string_view choice : field.choices) all += (all.empty() ? "" : ", ") + std::string(choice);
        if (const unsigned others = field.kinds & ~static_cast<unsigned>(kString); others != 0) {
            all += ", or " + kinds_text(others) + (has_range(field) ? " " + range_text(field) : "");
        }
        throw wrong_value(path, "'" + path + "' is '" + value.string() + "', but must be one of: " + all);
    }
    if (value.is_object() && field.shape != nullptr) check_shape(*field.shape, value, path, unknown);
    if (!value.is_list()) return;
    std::size_t index = 0;
    for (const Json& item : value.items()) {
        const std::string place = path + "[" + std::to_string(index++) + "]";
        if (field.items != 0) check_kind(field.items, item, place);
        if (item.is_object() && field.shape != nullptr) check_shape(*field.shape, item, place, unknown);
    }
}

}  // namespace

std::string kinds_text(unsigned kinds) {
    if (kinds == 0) return "null";
    if ((kinds & kNumber) != 0) kinds &= ~static_cast<unsigned>(kInteger);
    std::string text;
    for (const auto& [kind, name] : kNames) {
        if ((kinds & kind) == 0) continue;
        if (!text.empty()) text += " or ";
        text += (name[0] == 'i' || name[0] == 'o' ? "an " : "a ") + std::string(name);
    }
    return text;
}

bool has_range(const Field& field) { return std::isfinite(field.least) || std::isfinite(field.most); }

std::string range_text(const Field& field) {
    const bool below = std::isfinite(field.most), above = std::isfinite(field.least);
    if (below && above) return "from " + number_text(field.least) + " to " + number_text(field.most);
    return above ? "at least " + number_text(field.least) : "at most " + number_text(field.most);
}

void visit_fields(const Shape& shape, const std::function<void(const Field&)>& visit) {
    for (const Field& field : shape.fields) visit(field);
    if (shape.base != nullptr) visit_fields(*shape.base, visit);
}

const Field* find_field(const Shape& shape, std::string_view name) {
    for (const Field& field : shape.fields) {
        if (field.name == name) return &field;
    }
    return shape.base == nullptr ? nullptr : find_field(*shape.base, name);
}

void check_shape(const Shape& shape, const Json& object, const std::string& path, std::vector<std::string>* unknown) {
    if (!object.is_object())
        throw wrong_type(path, (path.empty() ? "the body" : "'" + path + "'") + " must be an object");
    const Json& type = object["type"];
    if (!shape.types.empty() && type.is_string() &&
        std::find(shape.types.begin(), shape.types.end(), type.string()) == shape.types.end())
        return;
    const std::string before = path.empty() ? "" : path + ".";
    for (const auto& [name, value] : object.members()) {
        const Field* field = find_field(shape, name);
        if (field == nullptr) {
            if (unknown != nullptr) unknown->push_back(before + name);
        } else if (!value.is_null() && !field->ignored) {
            check_value(*field, value, before + name, unknown);
        }
    }
    visit_fields(shape, [&](const Field& field) {
        if (field.required && object[field.name].is_null()) throw missing(before + std::string(field.name));
    });
}

Json schema_of(const Shape& shape) {
    Json properties = Json::object();
    Json required = Json::list();
    const auto types = [](unsigned kinds) {
        if ((kinds & kNumber) != 0) kinds &= ~static_cast<unsigned>(kInteger);
        Json all = Json::list();
        for (const auto& [kind, name] : kNames) {
            if ((kinds & kind) != 0) all.push(kind == kList ? Json("array") : Json(name));
        }
        return all.items().size() == 1 ? all.items()[0] : all;
    };
    visit_fields(shape, [&](const Field& field) {
        if (properties.has(field.name)) return;
        const bool nested = (field.kinds & kObject) != 0 && field.kinds != kAny && field.shape != nullptr;
        Json property = nested ? schema_of(*field.shape) : Json::object();
        if (field.kinds != kAny) property.set("type", types(field.kinds));
        property.set("description", field.doc);
        if (std::isfinite(field.least)) property.set("minimum", field.least);
        if (std::isfinite(field.most)) property.set("maximum", field.most);
        if (!field.choices.empty()) {
            Json choices = Json::list();
            for (const std::string_view choice : field.choices) choices.push(choice);
            if (field.kinds == kString) {
                property.set("enum", std::move(choices));
            } else {  // of the texts alone
                property.set("anyOf", Json::list({Json::object({{"type", "string"}, {"enum", std::move(choices)}}),
                                                  Json::object({{"type", types(field.kinds & ~kString)}})}));
            }
        }
        if ((field.kinds & kList) != 0 && field.kinds != kAny) {
            Json items =
                field.shape != nullptr && (field.items & kObject) != 0 ? schema_of(*field.shape) : Json::object();
            if (field.items != 0 && !(field.items == kObject && field.shape != nullptr))
                items.set("type", types(field.items));
            property.set("items", std::move(items));
        }
        properties.set(field.name, std::move(property));
        if (field.required) required.push(field.name);
    });
    Json schema = Json::object({{"type", "object"}});
    schema.set("properties", std::move(properties));
    if (!required.items().empty()) schema.set("required", std::move(required));
    return schema;
}

}  // namespace foresay::server
