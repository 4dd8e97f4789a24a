#include "grammar/json_value.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "grammar/characters.h"

namespace foresay::grammar {
namespace {

constexpr int kMostLevels = 256;

class Reader {
public:
    explicit Reader(std::string_view text) : whole_(text), rest_(text) {}

    JsonValue read() {
        JsonValue result = value(0);
        space();
        if (!rest_.empty()) fail("something follows the value");
        return result;
    }

private:
    [[noreturn]] void fail(const std::string& what) const {
        const std::string_view before = whole_.substr(0, whole_.size() - rest_.size());
        const auto line = 1 + std::count(before.begin(), before.end(), '\n');
        const std::size_t begin = before.rfind('\n');
        const std::size_t column = before.size() - (begin == before.npos ? 0 : begin + 1) + 1;
        throw Error("this is not JSON: " + what + ", in line " + std::to_string(line) + ", column " +
                    std::to_string(column));
    }
    void space() {
        const std::size_t end = rest_.find_first_not_of(" \t\r\n");
        rest_.remove_prefix(end == rest_.npos ? rest_.size() : end);
    }
    bool take(std::string_view text) {
        if (!rest_.starts_with(text)) return false;
        rest_.remove_prefix(text.size());
        return true;
    }

    JsonValue value(int level) {
        if (level > kMostLevels) fail("values are nested more than 256 deep");
        space();
        JsonValue v;
        if (take("null")) return v;
        if (take("true") || rest_.starts_with("false")) {
            v.kind = JsonValue::Kind::boolean;
            v.truth = !take("false");
        } else if (rest_.starts_with('"')) {
            v.kind = JsonValue::Kind::string;
            v.text = string();
        } else if (take("[")) {
            v.kind = JsonValue::Kind::array;
            for (space(); !take("]"); space()) {
                if (!v.items.empty() && !take(",")) fail("a comma or ] is missing");
                v.items.push_back(value(level + 1));
            }
        } else if (take("{")) {
            v.kind = JsonValue::Kind::object;
            std::unordered_map<std::string, std::size_t> places;
            for (space(); !take("}"); space()) {
                if (!v.members.empty() && !take(",")) fail("a comma or } is missing");
                space();
                if (!rest_.starts_with('"')) fail("a name in quotes is missing");
                std::string name = string();
                space();
                if (!take(":")) fail("a colon is missing");
                const auto [place, fresh] = places.try_emplace(name, v.members.size());
                if (fresh) v.members.emplace_back(std::move(name), JsonValue{});
                v.members[place->second].second = value(level + 1);
            }
        } else {
            v.kind = JsonValue::Kind::number;
            v.text = number();
        }
        return v;
    }

    std::string number() {
        std::size_t i = 0;
        const auto digits = [&] {
            const std::size_t begin = i;
            while (i < rest_.size() && rest_[i] >= '0' && rest_[i] <= '9') ++i;
            return i - begin;
        };
        const auto at = [&](std::string_view any) { return i < rest_.size() && any.find(rest_[i]) != any.npos; };
        if (at("-")) ++i;
        const std::size_t first = i;
        const std::size_t whole = digits();
        bool good = whole == 1 || (whole > 1 && rest_[first] != '0');
        if (at(".")) ++i, good = digits() > 0 && good;
        if (at("eE")) {
            ++i;
            if (at("+-")) ++i;
            good = digits() > 0 && good;
        }
        if (!good) fail("a value is missing");
        std::string text(rest_.substr(0, i));
        rest_.remove_prefix(i);
        return text;
    }

    std::uint32_t hex() {
        std::uint32_t value = 0;
        for (int i = 0; i < 4; ++i) {
            const char c = rest_.empty() ? ' ' : rest_[0];
            const char low = static_cast<char>(c | 32);
            if (c >= '0' && c <= '9') {
                value = value * 16 + static_cast<std::uint32_t>(c - '0');
            } else if (low >= 'a' && low <= 'f') {
                value = value * 16 + static_cast<std::uint32_t>(low - 'a' + 10);
            } else {
                fail("\\u needs four hexadecimal digits");
            }
            rest_.remove_prefix(1);
        }
        return value;
    }

    std::string string() {
        std::string text;
        rest_.remove_prefix(1);
        while (!take("\"")) {
            if (rest_.empty()) fail("a string is not closed");
            if (static_cast<unsigned char>(rest_[0]) < 0x20) fail("a string has a control character");
            if (!take("\\")) {
                const std::int64_t c = take_utf8(rest_);
                if (c < 0) fail("a string is not UTF-8");
                append_utf8(text, static_cast<std::uint32_t>(c));
                continue;
            }
            const std::size_t letter = rest_.empty() ? 0 : std::string_view("\"\\/bfnrtu").find(rest_[0]);
            if (rest_.empty() || letter == std::string_view::npos) fail("an escape means nothing");
            rest_.remove_prefix(1);
            if (letter < 8) {
                text += "\"\\/\b\f\n\r\t"[letter];
                continue;
            }
            std::uint32_t c = hex();
            if (c >= 0xD800 && c < 0xDC00 && take("\\u")) {
                const std::uint32_t low = hex();
                c = low >= 0xDC00 && low < 0xE000 ? 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00) : 0xFFFD;
            }
            append_utf8(text, c >= 0xD800 && c < 0xE000 ? 0xFFFD : c);
        }
        return text;
    }

    std::string_view whole_;
    std::string_view rest_;
};

}  // namespace

JsonValue::JsonValue() = default;
JsonValue::JsonValue(const JsonValue&) = default;
JsonValue::JsonValue(JsonValue&&) noexcept = default;
JsonValue& JsonValue::operator=(const JsonValue&) = default;
JsonValue& JsonValue::operator=(JsonValue&&) noexcept = default;
JsonValue::~JsonValue() = default;

const JsonValue* JsonValue::find(std::string_view name) const {
    const auto found = std::find_if(members.begin(), members.end(), [&](const auto& m) { return m.first == name; });
    return found == members.end() ? nullptr : &found->second;
}

JsonValue read_json(std::string_view text) { return Reader(text).read(); }

bool equal(const JsonValue& a, const JsonValue& b) {
    if (a.kind != b.kind) return false;
    switch (a.kind) {
        case JsonValue::Kind::null:
            return true;
        case JsonValue::Kind::boolean:
            return a.truth == b.truth;
        case JsonValue::Kind::string:
            return a.text == b.text;
        case JsonValue::Kind::number: {
            Decimal x, y;
            if (!Decimal::read(a.text, x) || !Decimal::read(b.text, y)) return a.text == b.text;
            return Decimal::compare(x, y) == 0;
        }
        case JsonValue::Kind::array:
            return std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), equal);
        case JsonValue::Kind::object:
            break;
    }
    if (a.members.size() != b.members.size()) return false;
    // In the order of their names: a search for each would take its square.
    const auto sorted = [](const JsonValue& value) {
        std::vector<const std::pair<std::string, JsonValue>*> members;
        for (const auto& member : value.members) members.push_back(&member);
        std::sort(members.begin(), members.end(), [](const auto* x, const auto* y) { return x->first < y->first; });
        return members;
    };
    const auto x = sorted(a), y = sorted(b);
    return std::equal(x.begin(), x.end(), y.begin(), [](const auto* one, const auto* other) {
        return one->first == other->first && equal(one->second, other->second);
    });
}

}  // namespace foresay::grammar
