#include "server/output/call_syntax.h"

#include <algorithm>
#include <array>
#include <utility>

#include "server/json.h"

namespace foresay::server {

namespace {

using Status = CallAttempt::Status;
using std::string_view;

constexpr CallAttempt kNone{};
constexpr std::size_t kMostName = 256;  // bytes of a name or a header

bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.' || c == ':' || c == '/';
}

CallAttempt partial() { return {Status::partial, 0, {}}; }
CallAttempt complete(std::size_t bytes, std::vector<ToolCall> calls) {
    return {Status::complete, bytes, std::move(calls)};
}

// A place in a text that may go on.
class Cursor {
public:
    Cursor(string_view text, bool end) : text_(text), end_(end) {}

    std::size_t at() const { return at_; }
    void move(std::size_t at) { at_ = at; }
    string_view rest() const { return text_.substr(at_); }
    bool done() const { return at_ >= text_.size(); }
    bool ended() const { return end_; }
    char now() const { return text_[at_]; }
    void skip_blanks() {
        while (!done() && is_blank(now())) ++at_;
    }
    // Whether the text goes on with `word`; `open_`: more text may make it so.
    bool take(string_view word) {
        if (rest().starts_with(word)) {
            at_ += word.size();
            return true;
        }
        if (!end_ && word.starts_with(rest())) open_ = true;
        return false;
    }
    // The text up to `word`, which is passed; false: it does not come, or not yet.
    bool take_until(string_view word, string_view& out) {
        const std::size_t place = text_.find(word, at_);
        if (place == text_.npos) {
            open_ = open_ || !end_;
            return false;
        }
        out = text_.substr(at_, place - at_);
        at_ = place + word.size();
        return true;
    }
    // The same with kMostName bytes before the word at most: whether it comes later does not matter then.
    bool take_name(string_view word, string_view& out) {
        const string_view window = rest().substr(0, kMostName + word.size());
        const std::size_t place = window.find(word);
        if (place == window.npos) {
            open_ = open_ || (!end_ && window.size() < kMostName + word.size());
            return false;
        }
        out = window.substr(0, place);
        at_ += place + word.size();
        return true;
    }
    // As take_json(), of an object.
    bool take_object(string_view& out) { return !done() && now() == '{' && take_json(out); }
    // A JSON object or list, by its brackets.
    bool take_json(string_view& out) {
        bool in_string = false;
        int depth = 0;
        for (std::size_t i = at_; i < text_.size(); ++i) {
            const char c = text_[i];
            if (in_string) {
                if (c == '\\') {
                    ++i;
                } else if (c == '"') {
                    in_string = false;
                }
            } else if (c == '"') {
                in_string = true;
            } else if (c == '{' || c == '[') {
                ++depth;
            } else if ((c == '}' || c == ']') && --depth == 0) {
                out = text_.substr(at_, i + 1 - at_);
                at_ = i + 1;
                return true;
            }
        }
        open_ = open_ || !end_;
        return false;
    }
    // What to say when something that was wanted is not there.
    CallAttempt fail() const { return open_ || (done() && !end_) ? partial() : kNone; }

private:
    string_view text_;
    bool end_;
    std::size_t at_ = 0;
    bool open_ = false;
};

bool declared(const std::vector<Tool>& tools, string_view name) {
    return std::any_of(tools.begin(), tools.end(), [&](const Tool& tool) { return tool.name == name; });
}

// {"name": ..., "arguments" or "parameters": {...}} or the same below "function".
bool call_of(const Json& json, ToolCall& call) {
    const Json& object = json["function"].is_object() ? json["function"] : json;
    if (!object.is_object() || !object["name"].is_string() || object.text("name").empty()) return false;
    call.name = object.text("name");
    const Json& arguments = object.has("arguments") ? object["arguments"] : object["parameters"];
    if (arguments.is_string()) {
        Json parsed;
        if (!try_parse_json(arguments.string(), parsed) || !parsed.is_object()) return false;
        call.arguments = arguments.string();
    } else if (arguments.is_object()) {
        call.arguments = arguments.dump();
    } else if (arguments.is_null()) {
        call.arguments = "{}";
    } else {
        return false;
    }
    call.id = json.text("id");
    return true;
}

// What a parameter's text means, by the tool's schema: text where that is wanted or nothing is known, else JSON if it
// is.
Json typed_value(const std::vector<Tool>& tools, string_view name, string_view key, string_view text) {
    for (const Tool& tool : tools) {
        if (tool.name != name) continue;
        if (!tool.parameters["properties"].has(key)) break;
        const Json& type = tool.parameters["properties"][key]["type"];
        if (type == Json("string")) break;
        Json value;
        if (try_parse_json(text, value)) return value;
        break;
    }
    return Json(text);
}

string_view without_breaks(string_view text) {
    if (text.starts_with('\n')) text.remove_prefix(1);
    if (text.ends_with('\n')) text.remove_suffix(1);
    return text;
}

string_view trimmed(string_view text) {
    while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
    while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
    return text;
}

// ------------------------------------------------------------------------------------------------ hermes, qwen coder

// <function=NAME> parameters </function>
CallAttempt parse_function(Cursor& cursor, const std::vector<Tool>& tools, ToolCall& call) {
    constexpr string_view kClose = "</function>", kParameter = "<parameter=", kParameterEnd = "</parameter>";
    if (!cursor.take("<function=")) return cursor.fail();
    string_view name;
    if (!cursor.take_name(">", name)) return cursor.fail();
    call.name = trimmed(name);
    if (call.name.empty() || call.name.find('\n') != std::string::npos) return kNone;
    // The end is the first one that follows a parameter's end: a value may hold the same text.
    const string_view rest = cursor.rest();
    std::size_t close = rest.npos;
    for (std::size_t at = rest.find(kClose); at != rest.npos && close == rest.npos; at = rest.find(kClose, at + 1)) {
        const string_view before = trimmed(rest.substr(0, at));
        if (before.empty() || before.ends_with(kParameterEnd)) close = at;
    }
    if (close == rest.npos && cursor.ended()) close = rest.find(kClose);
    if (close == rest.npos) return cursor.ended() ? kNone : partial();
    string_view body = rest.substr(0, close);
    cursor.move(cursor.at() + close + kClose.size());
    Json arguments = Json::object();
    for (std::size_t at = body.find(kParameter); at != body.npos;) {
        const std::size_t begin = body.find('>', at);
        if (begin == body.npos) return kNone;
        const string_view key = trimmed(body.substr(at + kParameter.size(), begin - at - kParameter.size()));
        // A value ends where another parameter or nothing follows its end.
        std::size_t next = body.npos, end = body.npos;
        for (std::size_t stop = body.find(kParameterEnd, begin); stop != body.npos;
             stop = body.find(kParameterEnd, stop + 1)) {
            const string_view after = trimmed(body.substr(stop + kParameterEnd.size()));
            if (!after.empty() && !after.starts_with(kParameter)) continue;
            end = stop;
            next = after.empty() ? body.npos : body.find(kParameter, stop);
            break;
        }
        // The end was forgotten.
        const std::size_t other = body.find(kParameter, begin);
        if (end == body.npos || other < body.find(kParameterEnd, begin)) {
            next = other;
            end = std::min(other, body.size());
        }
        const string_view value = without_breaks(body.substr(begin + 1, end - begin - 1));
        arguments.set(key, typed_value(tools, call.name, key, value));
        at = next;
    }
    call.arguments = arguments.dump();
    return complete(cursor.at(), {});
}

CallAttempt parse_tagged(string_view text, const std::vector<Tool>& tools, bool end) {
    Cursor cursor(text, end);
    const bool tagged = text.starts_with("<tool_call>");
    if (tagged) {
        cursor.take("<tool_call>");
        cursor.skip_blanks();
        if (cursor.done()) return cursor.fail();
    }
    ToolCall call;
    if (!cursor.done() && cursor.now() == '<') {
        const CallAttempt function = parse_function(cursor, tools, call);
        if (function.status != Status::complete) return function;
    } else {
        string_view object;
        if (!cursor.take_object(object)) return cursor.fail();
        Json json;
        if (!try_parse_json(object, json) || !call_of(json, call)) return kNone;
    }
    const std::size_t body_end = cursor.at();
    if (!tagged) return complete(body_end, {call});
    cursor.skip_blanks();
    if (cursor.take("</tool_call>")) return complete(cursor.at(), {call});
    // The closing tag may be missing.
    return cursor.fail().status == Status::partial ? partial() : complete(body_end, {call});
}

// ----------------------------------------------------------------------------------------------------------- llama 3

CallAttempt parse_bare(string_view text, const std::vector<Tool>& tools, bool end) {
    Cursor cursor(text, end);
    cursor.take("<|python_tag|>");
    cursor.skip_blanks();
    string_view object;
    if (!cursor.take_object(object)) return cursor.fail();
    Json json;
    ToolCall call;
    // Any object could be meant as an answer; only one with the name of a tool is a call.
    if (!try_parse_json(object, json) || !call_of(json, call) || !declared(tools, call.name)) return kNone;
    return complete(cursor.at(), {call});
}

// The call ends with the object of its arguments.
CallAttempt end_with_arguments(Cursor& cursor, ToolCall& call) {
    cursor.skip_blanks();
    string_view object;
    if (!cursor.take_object(object)) return cursor.fail();
    Json json;
    if (!try_parse_json(object, json)) return kNone;
    call.arguments = object;
    return complete(cursor.at(), {call});
}

// ----------------------------------------------------------------------------------------------------------- mistral

CallAttempt parse_mistral(string_view text, bool end) {
    Cursor cursor(text, end);
    cursor.take("[TOOL_CALLS]");
    cursor.skip_blanks();
    if (cursor.done()) return cursor.fail();
    if (cursor.now() == '[' || cursor.now() == '{') {
        string_view list;
        if (!cursor.take_json(list)) return cursor.fail();
        Json json;
        if (!try_parse_json(list, json)) return kNone;
        std::vector<ToolCall> calls;
        for (const Json& item : json.is_list() ? json.items() : Json::List{json}) {
            if (!call_of(item, calls.emplace_back())) return kNone;
        }
        if (calls.empty()) return kNone;
        return complete(cursor.at(), std::move(calls));
    }
    ToolCall call;
    while (!cursor.done() && is_name(cursor.now()) && call.name.size() < kMostName) {
        call.name += cursor.now();
        cursor.move(cursor.at() + 1);
    }
    if (call.name.empty()) return kNone;
    if (cursor.done()) return cursor.fail();
    if (cursor.take("[CALL_ID]")) {
        while (!cursor.done() && is_name(cursor.now()) && call.id.size() < kMostName) {
            call.id += cursor.now();
            cursor.move(cursor.at() + 1);
        }
        if (cursor.done()) return cursor.fail();
    }
    cursor.take("[ARGS]");
    if (cursor.fail().status == Status::partial && (cursor.done() || cursor.now() == '[')) return partial();
    return end_with_arguments(cursor, call);
}

// ----------------------------------------------------------------------------------------------------------- harmony

CallAttempt parse_harmony(string_view text, bool end) {
    Cursor cursor(text, end);
    string_view header;
    if (!cursor.take_name("<|message|>", header)) return cursor.fail();
    const std::size_t to = header.find("to=");
    if (to == header.npos) return kNone;
    ToolCall call;
    string_view name = header.substr(to + 3);
    name = name.substr(0, name.find_first_of(" <"));
    if (name.starts_with("functions.")) name.remove_prefix(10);
    if (name.empty()) return kNone;
    call.name = name;
    return end_with_arguments(cursor, call);
}

// ---------------------------------------------------------------------------------------------------------- deepseek

constexpr string_view kCallsBegin = "<｜tool▁calls▁begin｜>", kCallsEnd = "<｜tool▁calls▁end｜>";
constexpr string_view kCallBegin = "<｜tool▁call▁begin｜>", kCallEnd = "<｜tool▁call▁end｜>";
constexpr string_view kSeparator = "<｜tool▁sep｜>";
constexpr string_view kDsmlBegin = "<｜DSML｜function_calls>", kDsmlEnd = "</｜DSML｜function_calls>";
constexpr string_view kInvoke = "<｜DSML｜invoke name=\"", kInvokeEnd = "</｜DSML｜invoke>";
constexpr string_view kDsmlParameter = "<｜DSML｜parameter name=\"", kDsmlParameterEnd = "</｜DSML｜parameter>";

CallAttempt parse_invoke(string_view text, const std::vector<Tool>& tools, bool end) {
    Cursor cursor(text, end);
    cursor.take(kInvoke);
    string_view name, body;
    if (!cursor.take_until("\">", name) || !cursor.take_until(kInvokeEnd, body)) return cursor.fail();
    if (name.empty()) return kNone;
    ToolCall call;
    call.name = name;
    Json arguments = Json::object();
    for (std::size_t at = body.find(kDsmlParameter); at != body.npos; at = body.find(kDsmlParameter, at)) {
        at += kDsmlParameter.size();
        const std::size_t quote = body.find('"', at), begin = body.find('>', at);
        const std::size_t stop = body.find(kDsmlParameterEnd, at);
        if (quote == body.npos || begin == body.npos || stop == body.npos || quote > begin || begin > stop)
            return kNone;
        const string_view key = body.substr(at, quote - at), value = body.substr(begin + 1, stop - begin - 1);
        const bool text_value = body.substr(quote, begin - quote).find("string=\"true\"") != string_view::npos;
        Json parsed;
        if (!text_value && try_parse_json(value, parsed)) {
            arguments.set(key, std::move(parsed));
        } else {
            arguments.set(key, text_value ? Json(value) : typed_value(tools, name, key, value));
        }
    }
    call.arguments = arguments.dump();
    return complete(cursor.at(), {call});
}

CallAttempt parse_deepseek(string_view text, const std::vector<Tool>& tools, bool end) {
    for (const string_view mark : {kCallsBegin, kCallsEnd, kDsmlBegin, kDsmlEnd}) {
        if (text.starts_with(mark)) return complete(mark.size(), {});
    }
    if (text.starts_with(kInvoke)) return parse_invoke(text, tools, end);
    Cursor cursor(text, end);
    cursor.take(kCallBegin);
    string_view name;
    if (!cursor.take_name(kSeparator, name)) return cursor.fail();
    ToolCall call;
    if (trimmed(name) == "function") {
        if (!cursor.take_until("\n", name)) return cursor.fail();
        cursor.skip_blanks();
        if (!cursor.take("```json")) return cursor.fail();
    }
    call.name = trimmed(name);
    cursor.skip_blanks();
    string_view object;
    if (!cursor.take_object(object)) return cursor.fail();
    Json json;
    if (call.name.empty() || !try_parse_json(object, json)) return kNone;
    call.arguments = object;
    const std::size_t body_end = cursor.at();
    cursor.skip_blanks();
    cursor.take("```");
    cursor.skip_blanks();
    if (cursor.take(kCallEnd)) return complete(cursor.at(), {call});
    return cursor.fail().status == Status::partial ? partial() : complete(body_end, {call});
}

// ------------------------------------------------------------------------------------------------------------- gemma

// {key:<|"|>text<|"|>,other:5}: JSON but for its strings and its keys.
class GemmaValues {
public:
    explicit GemmaValues(string_view text) : text_(text) {}
    bool object(Json& out) { return value(out, 0) && out.is_object() && trimmed(text_).empty(); }

private:
    bool take(string_view word) {
        while (!text_.empty() && is_blank(text_.front())) text_.remove_prefix(1);
        if (!text_.starts_with(word)) return false;
        text_.remove_prefix(word.size());
        return true;
    }
    bool string(Json& out) {
        for (const string_view quote : {string_view("<|\"|>"), string_view("<escape>")}) {
            if (!take(quote)) continue;
            const std::size_t end = text_.find(quote);
            if (end == text_.npos) return false;
            out = Json(text_.substr(0, end));
            text_.remove_prefix(end + quote.size());
            return true;
        }
        return false;
    }
    bool value(Json& out, int depth) {
        if (depth > kJsonDepth) return false;
        if (take("{")) {
            out = Json::object();
            if (take("}")) return true;
            do {
                const std::size_t colon = text_.find(':');
                if (colon == text_.npos) return false;
                string_view key = trimmed(text_.substr(0, colon));
                if (key.size() > 1 && key.front() == '"' && key.back() == '"') key = key.substr(1, key.size() - 2);
                text_.remove_prefix(colon + 1);
                Json member;
                if (!value(member, depth + 1)) return false;
                out.set(key, std::move(member));
            } while (take(","));
            return take("}");
        }
        if (take("[")) {
            out = Json::list();
            if (take("]")) return true;
            do {
                Json item;
                if (!value(item, depth + 1)) return false;
                out.push(std::move(item));
            } while (take(","));
            return take("]");
        }
        if (string(out)) return true;
        const std::size_t end = std::min(text_.find_first_of(",]}"), text_.size());
        if (!try_parse_json(trimmed(text_.substr(0, end)), out)) return false;
        text_.remove_prefix(end);
        return true;
    }
    string_view text_;
};

CallAttempt parse_gemma(string_view text, bool end) {
    Cursor cursor(text, end);
    const bool four = cursor.take("<|tool_call>");
    if (!four) cursor.take("<start_function_call>");
    cursor.skip_blanks();
    if (!cursor.take("call:")) return cursor.fail();
    string_view body;
    if (!cursor.take_until(four ? "<tool_call|>" : "<end_function_call>", body)) {
        if (!end) return partial();
        body = cursor.rest();  // the end of the answer ends it
        cursor.move(text.size());
    }
    const std::size_t brace = body.find('{');
    if (brace == body.npos) return kNone;
    ToolCall call;
    call.name = trimmed(body.substr(0, brace));
    Json arguments;
    if (call.name.empty() || !GemmaValues(body.substr(brace)).object(arguments)) return kNone;
    call.arguments = arguments.dump();
    return complete(cursor.at(), {call});
}

}  // namespace

std::span<const string_view> call_marks(OutputFamily family) {
    static constexpr std::array<string_view, 2> kTagged = {"<tool_call>", "<function="};
    static constexpr std::array<string_view, 1> kLlama = {"<|python_tag|>"}, kMistral = {"[TOOL_CALLS]"};
    static constexpr std::array<string_view, 2> kHarmony = {"<|channel|>", " to=functions."};
    static constexpr std::array<string_view, 6> kDeepseek = {kCallsBegin, kCallsEnd, kCallBegin,
                                                             kDsmlBegin,  kDsmlEnd,  kInvoke};
    static constexpr std::array<string_view, 2> kGemma = {"<|tool_call>", "<start_function_call>"};
    switch (family) {
        case OutputFamily::hermes:
        case OutputFamily::generic:
            return std::span(kTagged).first(1);
        case OutputFamily::qwen_coder:
            return kTagged;
        case OutputFamily::llama3:
            return kLlama;
        case OutputFamily::mistral:
            return kMistral;
        case OutputFamily::harmony:
            return kHarmony;
        case OutputFamily::deepseek:
            return kDeepseek;
        case OutputFamily::gemma:
            return kGemma;
    }
    return {};
}

bool takes_bare_object(OutputFamily family) {
    return family == OutputFamily::llama3 || family == OutputFamily::generic;
}

CallAttempt parse_call(OutputFamily family, string_view text, const std::vector<Tool>& tools, bool end) {
    if (takes_bare_object(family) && (text.starts_with('{') || text.starts_with("<|python_tag|>")))
        return parse_bare(text, tools, end);
    switch (family) {
        case OutputFamily::mistral:
            return parse_mistral(text, end);
        case OutputFamily::harmony:
            return parse_harmony(text, end);
        case OutputFamily::deepseek:
            return parse_deepseek(text, tools, end);
        case OutputFamily::gemma:
            return parse_gemma(text, end);
        default:
            return parse_tagged(text, tools, end);
    }
}

}  // namespace foresay::server
