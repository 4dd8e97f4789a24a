#include "server/output/answer_grammar.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "server/error.h"
#include "server/output/call_syntax.h"

namespace foresay::server {

namespace {

using std::string_view;

// ------------------------------------------------------------------------------------------- parts of structural tags

Json constant(string_view text) { return Json::object({{"type", "const_string"}, {"value", text}}); }
// A mark, which may be a control token.
Json mark(string_view text) { return Json::object({{"type", "token"}, {"token", text}}); }
Json schema(Json json) { return Json::object({{"type", "json_schema"}, {"json_schema", std::move(json)}}); }
Json regex(string_view pattern) { return Json::object({{"type", "regex"}, {"pattern", pattern}}); }
Json sequence(Json::List parts) { return Json::object({{"type", "sequence"}, {"elements", Json(std::move(parts))}}); }
Json either(Json::List parts) {
    if (parts.size() == 1) return std::move(parts.front());
    return Json::object({{"type", "or"}, {"elements", Json(std::move(parts))}});
}
Json optional(Json part) { return Json::object({{"type", "optional"}, {"content", std::move(part)}}); }
Json star(Json part) { return Json::object({{"type", "star"}, {"content", std::move(part)}}); }
Json any_text(const Json::List& excludes = {}) {
    Json text = Json::object({{"type", "any_text"}});
    if (!excludes.empty()) text.set("excludes", Json(excludes));
    return text;
}
// `begin`, any text without `end`, `end`.
Json enclosed(string_view begin, string_view end, const Json::List& excludes = {}) {
    return Json::object({{"type", "tag"}, {"begin", begin}, {"content", any_text(excludes)}, {"end", end}});
}

// ------------------------------------------------------------------------------------------ arguments written one by
// one

bool is_text_alone(const Json& property) { return property.text("type") == "string" && !property.has("enum"); }

// The value of a parameter that is written as text between marks. Strings stand as they are, all else is JSON.
Json plain_value(const Tool& tool, const Json& property, const Json& whole, string_view begin, string_view end) {
    if (property["enum"].is_list() && property.text("type") == "string") {
        Json::List choices;
        for (const Json& choice : property["enum"].items()) {
            if (choice.is_string()) choices.push_back(constant(choice.string()));
        }
        if (!choices.empty()) return sequence({mark(begin), either(std::move(choices)), mark(end)});
    }
    if (is_text_alone(property)) {
        for (const char* keyword : {"pattern", "format", "minLength", "maxLength", "const"}) {
            if (tool.strict && property.has(keyword))
                throw wrong_value(tool.param, "'" + tool.param + "': this model writes strings without quotes, so '" +
                                                  keyword + "' cannot be kept; leave it or 'strict' out");
        }
        return enclosed(begin, end);
    }
    Json json = property.is_object() ? property : Json::object();
    for (const char* definitions : {"$defs", "definitions"}) {
        if (whole.has(definitions) && !json.has(definitions)) json.set(definitions, whole[definitions]);
    }
    return sequence({mark(begin), schema(std::move(json)), mark(end)});
}

// All parameters, in the order of the schema. `open` and `close` give the marks around one.
template <typename Open>
Json plain_parameters(const Tool& tool, const Json& whole, const Open& open, string_view close) {
    for (const char* keyword : {"$ref", "anyOf", "oneOf", "allOf", "patternProperties"}) {
        if (tool.strict && whole.has(keyword))
            throw wrong_value(tool.param, "'" + tool.param + "': this model writes parameters one by one, so '" +
                                              keyword + "' of the whole cannot be kept; leave it or 'strict' out");
    }
    Json::List parts;
    const Json& properties = whole["properties"];
    for (const auto& [name, property] : properties.is_object() ? properties.members() : Json::Object{}) {
        Json one = plain_value(tool, property, whole, open(name, is_text_alone(property)), close);
        const Json& required = whole["required"];
        const bool needed =
            required.is_list() && std::any_of(required.items().begin(), required.items().end(),
                                              [&name = name](const Json& r) { return r == Json(name); });
        parts.push_back(needed ? std::move(one) : optional(std::move(one)));
    }
    if (parts.empty()) return constant("");
    return sequence(std::move(parts));
}

// ----------------------------------------------------------------------------------------------------------- families

// A call: the mark that it begins with, if the family has one, what follows it, and what stands between two.
struct CallForm {
    string_view begin;
    Json rest;
    string_view between;
};

constexpr string_view kDeepseekCalls = "<｜tool▁calls▁begin｜>", kDeepseekCallsEnd = "<｜tool▁calls▁end｜>";
constexpr string_view kDsmlCalls = "<｜DSML｜function_calls>", kDsmlCallsEnd = "</｜DSML｜function_calls>";

class Builder {
public:
    Builder(const AnswerGrammar& facts, const Conversation& conversation) : facts_(facts), conversation_(conversation) {
        if (!conversation.tools.empty() && family() == OutputFamily::gemma)
            throw ApiError(Problem::invalid,
                           "this model's way to write calls is no JSON, and no grammar of it is here; leave '" +
                               conversation.call_param + "' out",
                           "unsupported_value", conversation.call_param);
    }

    // Calls from the first mark on; `after_mark`: that has been written.
    Json calls(bool after_mark) const {
        Json::List first, more;
        string_view between;
        for (const Tool& tool : conversation_.tools) {
            if (!conversation_.call_name.empty() && tool.name != conversation_.call_name) continue;
            CallForm form = call_form(tool);
            between = form.between;
            more.push_back(form.begin.empty() ? form.rest : sequence({mark(form.begin), form.rest}));
            first.push_back(std::move(form.rest));
        }
        Json whole = either(std::move(first));
        if (!conversation_.one_call && repeats()) {
            Json next = either(std::move(more));
            whole =
                sequence({std::move(whole),
                          star(between.empty() ? std::move(next) : sequence({constant(between), std::move(next)}))});
        }
        if (const string_view end = outer_end(); !end.empty()) whole = sequence({std::move(whole), mark(end)});
        if (family() == OutputFamily::mistral && !facts_.format.named_arguments)
            whole = sequence({constant("["), std::move(whole)});
        if (after_mark || begin().empty()) return whole;
        return sequence({mark(begin()), std::move(whole)});
    }

    // Text, which calls may follow. A call is known by its mark, or by the brace that an answer begins with.
    Json text_or_calls() const {
        if (family() == OutputFamily::harmony)
            return either({sequence({mark("<|channel|>final<|message|>"), any_text()}), calls(false)});
        Json::List marks, others;
        for (const string_view one : call_marks(family())) {
            marks.emplace_back(one);
            if (one != begin()) others.emplace_back(one);
        }
        if (!takes_bare_object(family()))
            return either({any_text(marks), sequence({enclosed("", begin(), others), calls(true)})});
        Json rest = any_text(marks);
        if (!begin().empty()) rest = either({std::move(rest), sequence({enclosed("", begin(), others), calls(true)})});
        return either({calls(false), optional(sequence({regex(no_call(marks)), std::move(rest)}))});
    }

    // What an answer consists of, before it is one.
    Json reasoning(Json rest) const {
        const core::AnswerMarkup& markup = facts_.markup;
        switch (markup.kind) {
            case core::AnswerMarkup::Kind::none:
                return rest;
            case core::AnswerMarkup::Kind::tags: {
                Json tag =
                    sequence({enclosed(facts_.in_reasoning ? "" : markup.open, markup.close), regex("\\n{0,2}")});
                return sequence({facts_.in_reasoning ? std::move(tag) : optional(std::move(tag)), std::move(rest)});
            }
            case core::AnswerMarkup::Kind::harmony: {
                Json message = sequence({either({enclosed("<|channel|>analysis<|message|>", "<|end|>"),
                                                 enclosed("<|channel|>commentary<|message|>", "<|end|>")}),
                                         mark("<|start|>assistant")});
                return sequence({star(std::move(message)), std::move(rest)});
            }
        }
        return rest;
    }

    Json content(Json form) const {
        if (facts_.markup.kind != core::AnswerMarkup::Kind::harmony) return form;
        return sequence({mark("<|channel|>final<|message|>"), std::move(form)});
    }

private:
    OutputFamily family() const { return facts_.format.family; }
    bool repeats() const { return family() != OutputFamily::harmony; }

    // The mark in front of all calls.
    string_view begin() const {
        switch (family()) {
            case OutputFamily::llama3:
                return {};
            case OutputFamily::mistral:
                return "[TOOL_CALLS]";
            case OutputFamily::harmony:
                return "<|channel|>";
            case OutputFamily::deepseek:
                return facts_.format.dsml ? kDsmlCalls : kDeepseekCalls;
            default:
                return "<tool_call>";
        }
    }
    string_view outer_end() const {
        if (family() == OutputFamily::deepseek) return facts_.format.dsml ? kDsmlCallsEnd : kDeepseekCallsEnd;
        return family() == OutputFamily::mistral && !facts_.format.named_arguments ? "]" : "";
    }

    CallForm call_form(const Tool& tool) const {
        const Json arguments = facts_.schema_of(tool);
        const std::string name = json_quoted(tool.name);
        switch (family()) {
            case OutputFamily::hermes:
                return {"<tool_call>",
                        sequence({constant("\n{\"name\": " + name + ", \"arguments\": "), schema(arguments),
                                  constant("}\n"), mark("</tool_call>")}),
                        "\n"};
            case OutputFamily::generic:
                return {"<tool_call>",
                        sequence({constant("{\"name\": " + name + ", \"arguments\": "), schema(arguments),
                                  constant("}"), mark("</tool_call>")}),
                        "\n"};
            case OutputFamily::qwen_coder: {
                const auto open = [](const std::string& key, bool) { return "<parameter=" + key + ">\n"; };
                return {"<tool_call>",
                        sequence({constant("\n"), mark("<function="), constant(tool.name + ">\n"),
                                  plain_parameters(tool, arguments, open, "\n</parameter>\n"), mark("</function>"),
                                  constant("\n"), mark("</tool_call>")}),
                        "\n"};
            }
            case OutputFamily::llama3:
                return {
                    "",
                    sequence({constant("{\"name\": " + name + ", \"parameters\": "), schema(arguments), constant("}")}),
                    "\n"};
            case OutputFamily::mistral:
                if (facts_.format.named_arguments)
                    return {"[TOOL_CALLS]", sequence({constant(tool.name), mark("[ARGS]"), schema(arguments)}), ""};
                return {"", list_item(name, arguments), ", "};
            case OutputFamily::harmony:
                return {"<|channel|>",
                        sequence({constant("commentary to=functions." + tool.name + " "), mark("<|constrain|>"),
                                  constant("json"), mark("<|message|>"), schema(arguments)}),
                        ""};
            case OutputFamily::deepseek:
                return {"", facts_.format.dsml ? invoke(tool, arguments) : deepseek_call(tool.name, arguments), ""};
            case OutputFamily::gemma:
                break;
        }
        return {};
    }
    // Of Mistral's older list, whose bracket is written once.
    static Json list_item(const std::string& name, const Json& arguments) {
        return sequence({constant("{\"name\": " + name + ", \"arguments\": "), schema(arguments), constant("}")});
    }
    Json deepseek_call(const std::string& name, const Json& arguments) const {
        constexpr string_view kCall = "<｜tool▁call▁begin｜>", kSeparator = "<｜tool▁sep｜>",
                              kEnd = "<｜tool▁call▁end｜>";
        if (!facts_.format.fenced_arguments)
            return sequence({mark(kCall), constant(name), mark(kSeparator), schema(arguments), mark(kEnd)});
        return sequence({mark(kCall), constant("function"), mark(kSeparator), constant(name + "\n```json\n"),
                         schema(arguments), constant("\n```"), mark(kEnd)});
    }
    static Json invoke(const Tool& tool, const Json& arguments) {
        const auto open = [](const std::string& key, bool text) {
            return "<｜DSML｜parameter name=\"" + key + "\" string=\"" + (text ? "true" : "false") + "\">";
        };
        return sequence({mark("\n<｜DSML｜invoke name=\""), constant(tool.name + "\">\n"),
                         plain_parameters(tool, arguments, open, "</｜DSML｜parameter>\n"),
                         mark("</｜DSML｜invoke>\n")});
    }

    // The beginning of a text that is no call: what it begins with, after blanks, is neither a brace nor a mark.
    static std::string no_call(const Json::List& marks) {
        const auto escaped = [](char c) {
            return std::string(string_view("\\^$.|?*+()[]{}").find(c) != string_view::npos ? "\\" : "") + c;
        };
        std::string firsts;
        std::string ways;
        for (const Json& one : marks) {
            const std::string& text = one.string();
            firsts += escaped(text[0]);
            std::string before = escaped(text[0]);
            for (std::size_t i = 1; i < text.size(); ++i) {
                ways += "|" + before + "[^" + escaped(text[i]) + "]";
                before += escaped(text[i]);
            }
        }
        return "\\s*([^\\s\\{" + firsts + "]" + ways + ")";
    }

    const AnswerGrammar& facts_;
    const Conversation& conversation_;
};

}  // namespace

bool AnswerGrammar::needed(const Conversation& conversation, const AnswerForm* form) {
    return form != nullptr || conversation.must_call ||
           std::any_of(conversation.tools.begin(), conversation.tools.end(), [](const Tool& t) { return t.strict; });
}

std::string AnswerGrammar::text(const Conversation& conversation, const AnswerForm* form) const {
    const Builder builder(*this, conversation);
    Json body;
    if (conversation.must_call) {
        body = builder.calls(false);
    } else if (form != nullptr) {
        body = builder.content(form->is_schema ? schema(form->schema)
                                               : Json::object({{"type", "grammar"}, {"grammar", form->gbnf}}));
        if (!conversation.tools.empty()) body = either({std::move(body), builder.calls(false)});
    } else {
        body = builder.text_or_calls();
    }
    return Json::object({{"type", "structural_tag"}, {"format", builder.reasoning(std::move(body))}}).dump();
}

}  // namespace foresay::server
