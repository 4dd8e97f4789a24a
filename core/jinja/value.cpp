#include "core/jinja/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/jinja/object.h"

namespace foresay::jinja {

// ------------------------------------------------------------------------------------------------------------- dicts

std::size_t Dict::place_of(const Value& key) const {
    if (key.is(Kind::string)) {
        const auto found = by_text_.find(key.text().bytes());
        return found == by_text_.end() ? entries_.size() : found->second;
    }
    for (std::size_t i = 0; i < entries_.size(); ++i) {
        if (equal(entries_[i].first, key)) return i;
    }
    return entries_.size();
}

const Value* Dict::find(const Value& key) const {
    const std::size_t place = place_of(key);
    return place < entries_.size() ? &entries_[place].second : nullptr;
}

const Value* Dict::find_text(std::string_view key) const {
    const auto found = by_text_.find(std::string(key));
    return found == by_text_.end() ? nullptr : &entries_[found->second].second;
}

void Dict::set(const Value& key, const Value& value) {
    depth_ = std::max({depth_, 1 + key.depth(), 1 + value.depth()});
    const std::size_t place = place_of(key);
    if (place < entries_.size()) {
        entries_[place].second = value;
        return;
    }
    if (key.is(Kind::string)) by_text_.emplace(key.text().bytes(), place);
    entries_.emplace_back(key, value);
}

// ------------------------------------------------------------------------------------------------------------ values

Value::Value(List list) {
    for (const Value& item : list.items) list.depth = std::max(list.depth, 1 + item.depth());
    data_ = std::make_shared<const List>(std::move(list));
}

Value::Value(Dict dict) : data_(std::make_shared<const Dict>(std::move(dict))) {}

Value Value::undefined(std::string why) {
    Value value;
    value.data_ = std::make_shared<const Undefined>(Undefined{std::move(why)});
    return value;
}

double Value::number() const {
    if (is(Kind::real)) return std::get<double>(data_);
    return is(Kind::integer) ? static_cast<double>(integer()) : boolean() ? 1.0 : 0.0;
}

std::optional<std::int64_t> Value::whole() const {
    if (is(Kind::integer)) return integer();
    if (is(Kind::boolean)) return boolean() ? 1 : 0;
    return std::nullopt;
}

bool Value::is_tuple() const { return is(Kind::list) && list().tuple; }

bool Value::is_generator() const { return is(Kind::list) && list().generator; }

bool Value::truth() const {
    switch (kind()) {
        case Kind::undefined:
        case Kind::none:
            return false;
        case Kind::boolean:
            return boolean();
        case Kind::integer:
            return integer() != 0;
        case Kind::real:
            return number() != 0.0;
        case Kind::string:
            return !text().empty();
        case Kind::list:
            return list().generator || !list().items.empty();
        case Kind::dict:
            return !dict().entries().empty();
        case Kind::object:
            return true;
    }
    return false;
}

int Value::depth() const {
    if (is(Kind::list)) return list().depth;
    if (is(Kind::dict)) return dict().depth();
    return 0;
}

// -------------------------------------------------------------------------------------------------------- comparisons

bool equal(const Value& a, const Value& b) {
    if (a.is_number() && b.is_number()) {
        const auto x = a.whole(), y = b.whole();
        return x && y ? *x == *y : a.number() == b.number();
    }
    if (a.kind() != b.kind()) return false;
    switch (a.kind()) {
        case Kind::undefined:
        case Kind::none:
            return true;
        case Kind::string:
            return a.text().bytes() == b.text().bytes();
        case Kind::list:
            if (a.list().generator || b.list().generator) return &a.list() == &b.list();
            return a.list().tuple == b.list().tuple && std::equal(a.list().items.begin(), a.list().items.end(),
                                                                  b.list().items.begin(), b.list().items.end(), equal);
        case Kind::dict: {
            if (a.dict().entries().size() != b.dict().entries().size()) return false;
            for (const auto& [key, value] : a.dict().entries()) {
                const Value* other = b.dict().find(key);
                if (other == nullptr || !equal(value, *other)) return false;
            }
            return true;
        }
        default:
            return a.is(Kind::object) && a.object() == b.object();
    }
}

bool same(const Value& a, const Value& b) {
    if (a.kind() != b.kind()) return false;
    if (a.is(Kind::list)) return &a.list() == &b.list();
    if (a.is(Kind::dict)) return &a.dict() == &b.dict();
    return equal(a, b);
}

std::optional<int> compare(const Value& a, const Value& b) {
    const auto order = [](const auto& x, const auto& y) { return x < y ? -1 : y < x ? 1 : 0; };
    if (a.is_number() && b.is_number()) {
        const auto x = a.whole(), y = b.whole();
        return x && y ? order(*x, *y) : order(a.number(), b.number());
    }
    // Bytes of UTF-8 have the order of the characters that they encode.
    if (a.is(Kind::string) && b.is(Kind::string)) return order(a.text().bytes(), b.text().bytes());
    if (a.is(Kind::list) && b.is(Kind::list) && type_name(a) == type_name(b) && !a.is_generator()) {
        const auto &x = a.list().items, &y = b.list().items;
        for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
            if (equal(x[i], y[i])) continue;
            return compare(x[i], y[i]);
        }
        return order(x.size(), y.size());
    }
    return std::nullopt;
}

// -------------------------------------------------------------------------------------------------------- as strings

std::string type_name(const Value& value) {
    switch (value.kind()) {
        case Kind::undefined:
            return "Undefined";
        case Kind::none:
            return "NoneType";
        case Kind::boolean:
            return "bool";
        case Kind::integer:
            return "int";
        case Kind::real:
            return "float";
        case Kind::string:
            return "str";
        case Kind::list:
            return value.list().generator ? "generator" : value.list().tuple ? "tuple" : "list";
        case Kind::dict:
            return "dict";
        case Kind::object:
            return value.object()->type();
    }
    return "object";
}

std::string float_text(double value) {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
    // The shortest digits, then Python's choice of notation: an exponent below 1e-4 and from 1e16 on.
    char digits[64];
    const auto end = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::scientific).ptr;
    const std::string scientific(digits, end);
    const std::size_t e = scientific.find('e');
    const int exponent = std::stoi(scientific.substr(e + 1));
    if (value != 0.0 && (exponent < -4 || exponent >= 16)) {
        std::string out = scientific.substr(0, e) + "e" + (exponent < 0 ? "-" : "+");
        const std::string magnitude = std::to_string(std::abs(exponent));
        return out + (magnitude.size() < 2 ? "0" : "") + magnitude;
    }
    char fixed[400];
    const auto stop = std::to_chars(fixed, fixed + sizeof fixed, value, std::chars_format::fixed).ptr;
    std::string out(fixed, stop);
    if (out.find('.') == out.npos) out += ".0";
    return out;
}

namespace {

// What str.isprintable() says: no controls, separators, format characters and private ones.
bool is_printable(char32_t code) {
    if (code < 0x7f) return code >= 0x20;
    if (code < 0xa1 || code == 0xad || code == 0xfeff || is_space(code)) return false;
    const auto within = [&](char32_t first, char32_t last) { return code >= first && code <= last; };
    return !(within(0x200b, 0x200f) || within(0x2028, 0x202e) || within(0x2060, 0x206f) || within(0xd800, 0xf8ff) ||
             within(0xfff9, 0xfffb) || within(0xe0000, 0xe007f) || within(0xf0000, 0x10ffff));
}

// repr of a string: what Python does not print is escaped; other characters stay, ASCII or not.
Text quoted(const Text& text) {
    const std::string& bytes = text.bytes();
    const bool single = bytes.find('\'') == bytes.npos || bytes.find('"') != bytes.npos;
    const char quote = single ? '\'' : '"';
    Text out;
    out.append(std::string_view(&quote, 1));
    for (std::size_t at = 0; at < bytes.size();) {
        const std::size_t length = character_bytes(bytes, at);
        const char32_t code = character_code(bytes, at);
        const bool input = text.is_input(at);
        std::string escaped;
        if (code == '\\' || code == static_cast<char32_t>(quote)) {
            escaped = std::string("\\") + static_cast<char>(code);
        } else if (code == '\n') {
            escaped = "\\n";
        } else if (code == '\r') {
            escaped = "\\r";
        } else if (code == '\t') {
            escaped = "\\t";
        } else if (!is_printable(code)) {
            constexpr char kHex[] = "0123456789abcdef";
            escaped = code < 0x100 ? "\\x" : code < 0x10000 ? "\\u" : "\\U";
            for (int shift = code < 0x100 ? 4 : code < 0x10000 ? 12 : 28; shift >= 0; shift -= 4) {
                escaped += kHex[code >> shift & 15];
            }
        } else {
            out.append(text, at, at + length);
        }
        if (!escaped.empty()) out.append(escaped, input);
        at += length;
    }
    out.append(std::string_view(&quote, 1));
    return out;
}

void append_repr(const Value& value, Text& out) {
    switch (value.kind()) {
        case Kind::string:
            out.append(quoted(value.text()));
            return;
        case Kind::list: {
            const List& list = value.list();
            if (list.generator) return out.append("<generator object>");
            out.append(list.tuple ? "(" : "[");
            for (std::size_t i = 0; i < list.items.size(); ++i) {
                if (i > 0) out.append(", ");
                append_repr(list.items[i], out);
            }
            if (list.tuple && list.items.size() == 1) out.append(",");
            out.append(list.tuple ? ")" : "]");
            return;
        }
        case Kind::dict: {
            out.append("{");
            bool first = true;
            for (const auto& [key, item] : value.dict().entries()) {
                if (!std::exchange(first, false)) out.append(", ");
                append_repr(key, out);
                out.append(": ");
                append_repr(item, out);
            }
            out.append("}");
            return;
        }
        case Kind::undefined:
            out.append("Undefined");
            return;
        default:
            out.append(to_text(value));
    }
}

}  // namespace

Text to_text(const Value& value) {
    switch (value.kind()) {
        case Kind::undefined:
            return {};
        case Kind::none:
            return Text("None");
        case Kind::boolean:
            return Text(value.boolean() ? "True" : "False");
        case Kind::integer:
            return Text(std::to_string(value.integer()));
        case Kind::real:
            return Text(float_text(value.number()));
        case Kind::string:
            return value.text();
        case Kind::object:
            return Text(value.object()->repr());
        default: {
            Text out;
            append_repr(value, out);
            return out;
        }
    }
}

Text to_repr(const Value& value) {
    Text out;
    append_repr(value, out);
    return out;
}

}  // namespace foresay::jinja
