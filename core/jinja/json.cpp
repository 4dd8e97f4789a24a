// JSON as Python's json.dumps writes it, with what is input in it marked so.
#include <algorithm>
#include <cmath>

#include "core/jinja/runtime.h"

namespace foresay::jinja {

namespace {

class Writer {
public:
    Writer(Runtime& runtime, int indent, bool sort_keys, const std::string& item, const std::string& key, bool ascii)
        : runtime_(runtime), indent_(indent), sort_keys_(sort_keys), item_(item), key_(key), ascii_(ascii) {}

    void write(const Value& value, int level) {
        runtime_.step();
        switch (value.kind()) {
            case Kind::none:
                out_.append("null");
                return;
            case Kind::boolean:
                out_.append(value.boolean() ? "true" : "false");
                return;
            case Kind::integer:
                out_.append(std::to_string(value.integer()));
                return;
            case Kind::real:
                out_.append(real(value.number()));
                return;
            case Kind::string:
                string(value.text());
                return;
            case Kind::list:
                if (value.is_generator()) throw TemplateError("a generator is not JSON; make it a list with |list");
                list(value.list(), level);
                return;
            case Kind::dict:
                dict(value.dict(), level);
                return;
            default:
                throw TemplateError("Object of type " + type_name(value) + " is not JSON serializable");
        }
    }

    Text take() {
        runtime_.charge(out_);
        return std::move(out_);
    }

private:
    static std::string real(double value) {
        if (std::isnan(value)) return "NaN";
        if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
        return float_text(value);
    }

    void escape(char32_t code, bool input) {
        constexpr char kHex[] = "0123456789abcdef";
        std::string out = "\\u";
        for (int shift = 12; shift >= 0; shift -= 4) out += kHex[code >> shift & 15];
        out_.append(out, input);
    }

    void string(const Text& text) {
        constexpr std::string_view kPlain = "\"\\\b\f\n\r\t", kNames = "\"\\bfnrt";
        const std::string& bytes = text.bytes();
        out_.append("\"");
        for (std::size_t at = 0; at < bytes.size();) {
            const std::size_t length = character_bytes(bytes, at);
            const char32_t code = character_code(bytes, at);
            const bool input = text.is_input(at);
            const std::size_t named = length == 1 ? kPlain.find(bytes[at]) : kPlain.npos;
            if (named != kPlain.npos) {
                out_.append(std::string("\\") + kNames[named], input);
            } else if (code < 0x20 || (ascii_ && code > 0x7e && code < 0x10000)) {
                escape(code, input);
            } else if (ascii_ && code >= 0x10000) {
                escape(0xd800 + ((code - 0x10000) >> 10), input);
                escape(0xdc00 + ((code - 0x10000) & 0x3ff), input);
            } else {
                out_.append(text, at, at + length);
            }
            at += length;
        }
        out_.append("\"");
    }

    void line(int level) {
        if (indent_ < 0) return;
        runtime_.charge(static_cast<std::size_t>(indent_) * static_cast<std::size_t>(level));
        out_.append("\n" + std::string(static_cast<std::size_t>(indent_) * static_cast<std::size_t>(level), ' '));
    }

    void list(const List& list, int level) {
        if (list.items.empty()) return out_.append("[]");
        out_.append("[");
        for (std::size_t i = 0; i < list.items.size(); ++i) {
            if (i > 0) out_.append(item_);
            line(level + 1);
            write(list.items[i], level + 1);
        }
        line(level);
        out_.append("]");
    }

    Text key_text(const Value& key) {
        switch (key.kind()) {
            case Kind::string:
                return key.text();
            case Kind::none:
                return Text("null");
            case Kind::boolean:
                return Text(key.boolean() ? "true" : "false");
            case Kind::integer:
                return Text(std::to_string(key.integer()));
            case Kind::real:
                return Text(real(key.number()));
            default:
                throw TemplateError("keys of JSON must be strings or numbers, not " + type_name(key));
        }
    }

    void dict(const Dict& dict, int level) {
        if (dict.entries().empty()) return out_.append("{}");
        std::vector<const Dict::Entry*> entries;
        for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
        if (sort_keys_) {
            for (const Dict::Entry* entry : entries) {
                if (!compare(entry->first, entries.front()->first)) {
                    throw TemplateError("keys of different types cannot be sorted");
                }
            }
            std::stable_sort(entries.begin(), entries.end(), [](const Dict::Entry* a, const Dict::Entry* b) {
                return compare(a->first, b->first).value_or(0) < 0;
            });
        }
        out_.append("{");
        for (std::size_t i = 0; i < entries.size(); ++i) {
            if (i > 0) out_.append(item_);
            line(level + 1);
            string(key_text(entries[i]->first));
            out_.append(key_);
            write(entries[i]->second, level + 1);
        }
        line(level);
        out_.append("}");
    }

    Runtime& runtime_;
    int indent_;
    bool sort_keys_;
    const std::string& item_;
    const std::string& key_;
    bool ascii_;
    Text out_;
};

}  // namespace

Text dump_json(Runtime& runtime, const Value& value, int indent, bool sort_keys, const std::string& item_separator,
               const std::string& key_separator, bool ascii) {
    Writer writer(runtime, indent, sort_keys, item_separator, key_separator, ascii);
    writer.write(value, 0);
    return writer.take();
}

}  // namespace foresay::jinja
