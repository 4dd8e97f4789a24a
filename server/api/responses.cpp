// OpenAI's Responses. A request brings the whole conversation, or goes on from an answer that was stored on demand.
#include <algorithm>
#include <utility>

#include "server/api/openai.h"

namespace foresay::server {

namespace {

// ------------------------------------------------------------------------------------------------------------ fields

const Shape& reasoning_shape() {
    static const Shape shape{"reasoning",
                             {{.name = "effort",
                               .kinds = kString,
                               .doc = "How much the model reasons, where its template can tell it.",
                               .choices = {"none", "minimal", "low", "medium", "high", "xhigh", "max"}}}};
    return shape;
}

const Shape& format_shape() {
    static const Shape shape{"format",
                             {{.name = "type",
                               .kinds = kString,
                               .doc = "text, json_object, or json_schema with the member schema.",
                               .choices = {"text", "json_object", "json_schema"}}}};
    return shape;
}

const Shape& text_shape() {
    static const Shape shape{
        "text", {{.name = "format", .kinds = kObject, .doc = "The form of the answer.", .shape = &format_shape()}}};
    return shape;
}

const Shape& input_shape() {
    static const Shape shape{
        "responses_input",
        {
            {.name = "model", .kinds = kString, .doc = "The name of the model."},
            {.name = "input",
             .kinds = kString | kList,
             .doc = "A text, or a list of items: messages, calls, results, reasoning.",
             .items = kObject,
             .required = true},
            {.name = "instructions", .kinds = kString, .doc = "The system prompt."},
            {.name = "tools",
             .kinds = kList,
             .doc = "Functions that the model may call; others are left out.",
             .items = kObject},
            {.name = "tool_choice",
             .kinds = kString | kObject,
             .doc = "none, auto, required, or the tool that must be called.",
             .choices = {"none", "auto", "required"}},
            {.name = "reasoning", .kinds = kObject, .doc = "How the model reasons.", .shape = &reasoning_shape()},
            {.name = "previous_response_id",
             .kinds = kString,
             .doc = "Of a stored response: the conversation goes on after it."},
        },
        &sampler_shape()};
    return shape;
}

const Shape& responses_shape() {
    static const Shape shape{
        "responses",
        {
            {.name = "stream", .kinds = kBoolean, .doc = "Whether the answer comes as events."},
            {.name = "max_output_tokens",
             .kinds = kInteger,
             .doc = "Most tokens of the answer.",
             .least = 1,
             .most = 1e9},
            {.name = "parallel_tool_calls", .kinds = kBoolean, .doc = "false: the first call alone counts."},
            {.name = "text", .kinds = kObject, .doc = "The form of the answer.", .shape = &text_shape()},
            {.name = "truncation", .kinds = kString, .doc = "Only disabled.", .choices = {"disabled"}},
            {.name = "background", .kinds = kBoolean, .doc = "Not supported but for false."},
            {.name = "store",
             .kinds = kBoolean,
             .doc = "true: the response is kept in memory for a while, for previous_response_id. Absent: it is not."},
            {.name = "include", .kinds = kAny, .doc = "Ignored.", .ignored = true},
            {.name = "metadata", .kinds = kAny, .doc = "Ignored.", .ignored = true},
            {.name = "client_metadata", .kinds = kAny, .doc = "Ignored.", .ignored = true},
            {.name = "stream_options", .kinds = kAny, .doc = "Ignored.", .ignored = true},
            {.name = "user", .kinds = kAny, .doc = "Ignored.", .ignored = true},
            {.name = "service_tier", .kinds = kAny, .doc = "Ignored.", .ignored = true},
            {.name = "safety_identifier", .kinds = kAny, .doc = "Ignored.", .ignored = true},
            {.name = "prompt_cache_key", .kinds = kAny, .doc = "Ignored here; gateways route by it.", .ignored = true},
        },
        &input_shape()};
    return shape;
}

// ----------------------------------------------------------------------------------------------------------- reading

// Calls and reasoning belong to the answer before them, if one is being told.
Message& answer_of(Conversation& out, const std::string& path) {
    if (out.messages.empty() || out.messages.back().role != "assistant") {
        Message message;
        message.role = "assistant";
        message.path = path;
        out.messages.push_back(std::move(message));
    }
    return out.messages.back();
}

void read_item(const Json& item, const std::string& path, Conversation& out) {
    const std::string& type = item.text("type");
    if (type == "function_call") {
        if (item.text("name").empty())
            throw ApiError(Problem::invalid, "'" + path + ".name' is missing", "missing_required_parameter",
                           path + ".name");
        answer_of(out, path).calls.push_back(
            {item.text("call_id"), item.text("name"),
             item.text("arguments").empty() ? std::string("{}") : item.text("arguments")});
    } else if (type == "function_call_output") {
        Message result;
        result.role = "tool";
        result.path = path;
        result.call_id = item.text("call_id");
        result.content = read_content(item["output"], path + ".output", {"input_text", "output_text", "text"});
        for (const Message& before : out.messages) {
            for (const ToolCall& call : before.calls) {
                if (!call.id.empty() && call.id == result.call_id) result.tool_name = call.name;
            }
        }
        out.messages.push_back(std::move(result));
    } else if (type == "reasoning") {
        const Json& content = item["content"];
        if (!content.is_list()) return;
        for (const Json& part : content.items()) answer_of(out, path).reasoning += part.text("text");
    } else if (type.empty() || type == "message") {
        const std::string& role = item.text("role");
        if (role != "user" && role != "assistant" && role != "system" && role != "developer")
            throw wrong_value(path + ".role", "'" + path + ".role' is '" + role +
                                                  "', but must be one of: user, assistant, system, developer");
        std::string content =
            read_content(item["content"], path + ".content", {"input_text", "output_text", "text", "refusal"});
        if (role == "assistant" && !out.messages.empty() && out.messages.back().role == "assistant" &&
            out.messages.back().calls.empty() && out.messages.back().content.empty()) {
            out.messages.back().content = std::move(content);  // after its reasoning
            return;
        }
        Message message;
        message.role = role;
        message.path = path;
        message.content = std::move(content);
        out.messages.push_back(std::move(message));
    }
    // Items of other types belong to other servers.
}

// The conversation up to a stored response, without the instructions, which each request states itself.
std::vector<Message> messages_before(const Call& call) {
    const std::string& id = call.body.text("previous_response_id");
    if (id.empty()) return {};
    const auto before = call.stored != nullptr ? call.stored->find(id, call.caller.name) : nullptr;
    if (before == nullptr)
        throw ApiError(Problem::not_found,
                       "the response '" + id +
                           "' is not here; only those with 'store' are kept, and the last ones of them: send the whole "
                           "conversation",
                       "previous_response_not_found", "previous_response_id");
    std::vector<Message> messages = before->messages;
    for (Message& message : messages) message.path = "previous_response_id";
    return messages;
}

Conversation read_input(const Call& call) {
    const Json& body = call.body;
    Conversation out;
    const auto add = [&](const char* role, const std::string& text, const char* path) {
        Message message;
        message.role = role;
        message.content = text;
        message.path = path;
        out.messages.push_back(std::move(message));
    };
    if (!body.text("instructions").empty()) add("system", body.text("instructions"), "instructions");
    for (Message& message : messages_before(call)) out.messages.push_back(std::move(message));
    const Json& input = body["input"];
    if (input.is_string()) {
        add("user", input.string(), "input");
    } else {
        for (std::size_t i = 0; i < input.items().size(); ++i)
            read_item(input.items()[i], "input[" + std::to_string(i) + "]", out);
    }
    if (out.messages.empty()) throw wrong_value("input", "'input' is empty, so there is nothing to answer");
    out.tools = read_tools(body["tools"], "tools");
    read_tool_choice(body, out);
    const std::string& effort = body["reasoning"].text("effort");
    out.reasoning = effort == "none"                         ? "off"
                    : effort == "minimal" || effort == "low" ? "low"
                    : effort == "xhigh" || effort == "max"   ? "high"
                                                             : effort;
    return out;
}

// ----------------------------------------------------------------------------------------------------------- writing

class ResponsesWriter final : public AnswerWriter {
public:
    // Where the response is kept, if it is to be; the conversation is that of the request.
    struct Keeping {
        StoredResponses* place = nullptr;
        std::string owner;
        std::vector<Message> messages;
    };
    ResponsesWriter(std::shared_ptr<Exchange> exchange, bool stream, Json request, Keeping keeping)
        : AnswerWriter(std::move(exchange), stream), request_(std::move(request)), keeping_(std::move(keeping)) {
        const Json& parallel = request_["parallel_tool_calls"];
        one_call_ = parallel.is_false();
    }

protected:
    HttpResponse error(const ApiError& error) override { return openai_error(error, facts_.id); }
    void late_error(const ApiError& error, std::string& out) override {
        Json failed = response("failed", Json::list());
        failed.set("error", Json::object({{"code", error.code.empty() ? "server_error" : error.code},
                                          {"message", error.what()}}));
        event("response.failed", Json::object({{"response", std::move(failed)}}), out);
    }

    Json usage() const {
        const std::int64_t completion = completion_tokens();
        return Json::object({{"input_tokens", facts_.prompt_tokens},
                             {"input_tokens_details", Json::object({{"cached_tokens", cached_tokens()}})},
                             {"output_tokens", completion},
                             {"output_tokens_details", Json::object({{"reasoning_tokens", reasoning_tokens()}})},
                             {"total_tokens", facts_.prompt_tokens + completion}});
    }
    Json response(const char* status, Json output) const {
        const auto asked = [&](const char* name, Json absent) {
            return request_.has(name) ? request_[name] : std::move(absent);
        };
        return Json::object(
            {{"id", "resp_" + facts_.id},
             {"object", "response"},
             {"created_at", facts_.created},
             {"status", status},
             {"background", false},
             {"error", nullptr},
             {"incomplete_details", nullptr},
             {"instructions", request_["instructions"]},
             {"max_output_tokens", request_["max_output_tokens"]},
             {"model", facts_.model},
             {"output", std::move(output)},
             {"parallel_tool_calls", !one_call_},
             {"previous_response_id", request_["previous_response_id"]},
             {"reasoning", asked("reasoning", Json::object({{"effort", nullptr}, {"summary", nullptr}}))},
             {"store", keeping_.place != nullptr},
             {"temperature", request_["temperature"]},
             {"text", asked("text", Json::object({{"format", Json::object({{"type", "text"}})}}))},
             {"tool_choice", asked("tool_choice", "auto")},
             {"tools", asked("tools", Json::list())},
             {"top_p", request_["top_p"]},
             {"truncation", "disabled"},
             {"usage", nullptr},
             {"metadata", asked("metadata", Json::object())},
             {"seed", facts_.seed},
             {"system_fingerprint", facts_.fingerprint}});
    }
    Json complete_response(Json output) const {
        const Choice& choice = choices_.front();
        const bool cut = choice.finish == Finish::length;
        Json json = response(cut ? "incomplete" : "completed", std::move(output));
        if (cut) json.set("incomplete_details", Json::object({{"reason", "max_output_tokens"}}));
        json.set("usage", usage());
        json.set("timings", timings_of(choice));
        tell_unfinished(choice, json);
        return json;
    }

    // ---- items
    static Json text_part(const std::string& text, bool reasoning) {
        if (reasoning) return Json::object({{"type", "reasoning_text"}, {"text", text}});
        return Json::object(
            {{"type", "output_text"}, {"text", text}, {"annotations", Json::list()}, {"logprobs", Json::list()}});
    }
    Json text_item(bool reasoning, std::size_t number, const char* status, Json content) const {
        const std::string id = (reasoning ? "rs_" : "msg_") + facts_.id + "_" + std::to_string(number);
        if (reasoning) {
            return Json::object({{"id", id},
                                 {"type", "reasoning"},
                                 {"status", status},
                                 {"summary", Json::list()},
                                 {"content", std::move(content)},
                                 {"encrypted_content", nullptr}});
        }
        return Json::object({{"id", id},
                             {"type", "message"},
                             {"status", status},
                             {"role", "assistant"},
                             {"content", std::move(content)}});
    }
    Json call_item(const ToolCall& call, std::size_t number, const char* status, const std::string& arguments) const {
        return Json::object({{"id", "fc_" + facts_.id + "_" + std::to_string(number)},
                             {"type", "function_call"},
                             {"status", status},
                             {"call_id", call_id(facts_, call, 0, number)},
                             {"name", call.name},
                             {"arguments", arguments}});
    }

    // ---- a stream
    void event(const char* type, Json members, std::string& out) {
        Json whole = Json::object({{"type", type}, {"sequence_number", sequence_++}});
        for (const auto& [name, value] : members.members()) whole.append(name, value);
        append_named_event(type, whole, out);
    }
    Json at(std::initializer_list<Json::Member> more) const {
        Json json = Json::object({{"item_id", item_id_}, {"output_index", index_}});
        for (const auto& [name, value] : more) json.append(name, value);
        return json;
    }
    void open(std::string& out) override {
        event("response.created", Json::object({{"response", response("in_progress", Json::list())}}), out);
        event("response.in_progress", Json::object({{"response", response("in_progress", Json::list())}}), out);
    }
    void begin_text(bool reasoning, std::string& out) {
        const Json item = text_item(reasoning, done_.size(), "in_progress", Json::list());
        item_id_ = item.text("id");
        open_ = true;
        reasons_ = reasoning;
        text_.clear();
        event("response.output_item.added", Json::object({{"output_index", index_}, {"item", item}}), out);
        event("response.content_part.added", at({{"content_index", 0}, {"part", text_part("", reasoning)}}), out);
    }
    void end_text(std::string& out) {
        if (!open_) return;
        open_ = false;
        const Json part = text_part(text_, reasons_);
        Json done = at({{"content_index", 0}, {"text", text_}});
        if (!reasons_) done.append("logprobs", Json::list());
        event(reasons_ ? "response.reasoning_text.done" : "response.output_text.done", std::move(done), out);
        event("response.content_part.done", at({{"content_index", 0}, {"part", part}}), out);
        const Json item = text_item(reasons_, done_.size(), "completed", Json::list({part}));
        event("response.output_item.done", Json::object({{"output_index", index_}, {"item", item}}), out);
        done_.push_back(item);
        ++index_;
    }
    void piece(std::size_t, const OutputEvent& piece, std::span<const TokenNote>, std::string& out) override {
        if (piece.kind == OutputEvent::Kind::call) {
            const std::size_t number = choices_.front().calls.size() - 1;
            if (one_call_ && number > 0) return;
            end_text(out);
            Json item = call_item(piece.call, number, "in_progress", "");
            item_id_ = item.text("id");
            event("response.output_item.added", Json::object({{"output_index", index_}, {"item", item}}), out);
            event("response.function_call_arguments.delta", at({{"delta", piece.call.arguments}}), out);
            event("response.function_call_arguments.done",
                  at({{"name", piece.call.name}, {"arguments", piece.call.arguments}}), out);
            item = call_item(piece.call, number, "completed", piece.call.arguments);
            event("response.output_item.done", Json::object({{"output_index", index_}, {"item", item}}), out);
            done_.push_back(std::move(item));
            ++index_;
            return;
        }
        const bool reasoning = piece.kind == OutputEvent::Kind::reasoning;
        if (open_ && reasons_ != reasoning) end_text(out);
        if (!open_) begin_text(reasoning, out);
        text_ += piece.text;
        Json delta = at({{"content_index", 0}, {"delta", piece.text}});
        if (!reasoning) delta.append("logprobs", Json::list());
        event(reasoning ? "response.reasoning_text.delta" : "response.output_text.delta", std::move(delta), out);
    }
    void close_choice(std::size_t, std::string& out) override { end_text(out); }
    void close(std::string& out) override {
        const bool cut = choices_.front().finish == Finish::length;
        const Json told = complete_response(done_);
        keep(told);
        event(cut ? "response.incomplete" : "response.completed", Json::object({{"response", told}}), out);
    }

    Json whole() override {
        const Choice& choice = choices_.front();
        Json::List output;
        if (!choice.reasoning.empty())
            output.push_back(text_item(true, 0, "completed", Json::list({text_part(choice.reasoning, true)})));
        if (!choice.content.empty() || choice.calls.empty())
            output.push_back(
                text_item(false, output.size(), "completed", Json::list({text_part(choice.content, false)})));
        const std::size_t calls = one_call_ ? std::min<std::size_t>(choice.calls.size(), 1) : choice.calls.size();
        for (std::size_t i = 0; i < calls; ++i)
            output.push_back(call_item(choice.calls[i], i, "completed", choice.calls[i].arguments));
        Json told = complete_response(std::move(output));
        keep(told);
        return told;
    }

private:
    // Before the client hears of it, so that its next request finds it.
    void keep(const Json& told) {
        if (keeping_.place == nullptr) return;
        const Choice& choice = choices_.front();
        Message answer;
        answer.role = "assistant";
        answer.content = choice.content;
        answer.reasoning = choice.reasoning;
        for (std::size_t i = 0; i < choice.calls.size() && !(one_call_ && i > 0); ++i) {
            answer.calls.push_back(choice.calls[i]);
            answer.calls.back().id = call_id(facts_, choice.calls[i], 0, i);
        }
        keeping_.messages.push_back(std::move(answer));
        const Json& input = request_["input"];
        Json items = input.is_list()
                         ? input
                         : Json::list({Json::object({{"type", "message"}, {"role", "user"}, {"content", input}})});
        keeping_.place->add(told.text("id"), {keeping_.owner, told.dump(), std::move(items), keeping_.messages});
    }

    Json request_;
    Keeping keeping_;
    bool one_call_ = false;
    std::int64_t sequence_ = 0, index_ = 0;
    std::string item_id_, text_;
    bool open_ = false, reasons_ = false;  // a text is being told
    Json::List done_;
};

// ------------------------------------------------------------------------------------------------------------ routes

Prompt prompt_of(const Call& call) {
    Prompt prompt;
    prompt.param = "input";
    prompt.conversation = read_input(call);
    return prompt;
}

void responses(Call& call) {
    const Json& body = call.body;
    if (body["background"].is_true())
        throw ApiError(Problem::invalid,
                       "'background' is not supported: the answer comes on the connection that asks for it",
                       "unsupported_value", "background");
    GenerationRequest wanted;
    read_format(body["text"]["format"], "text.format", wanted);
    read_samplers(responses_shape(), body, "", call.model, wanted);
    if (body.has("max_output_tokens")) {
        wanted.max_tokens = static_cast<std::int64_t>(body["max_output_tokens"].number());
        wanted.max_tokens_param = "max_output_tokens";
    }
    wanted.prompts.push_back(prompt_of(call));
    ResponsesWriter::Keeping keeping;
    if (body["store"].is_true() && call.stored != nullptr && call.stored->keeps()) {
        keeping = {call.stored, call.caller.name, wanted.prompts[0].conversation->messages};
        std::erase_if(keeping.messages, [](const Message& message) { return message.path == "instructions"; });
    }
    call.answer(std::move(wanted),
                std::make_shared<ResponsesWriter>(call.exchange, body["stream"].is_true(), body, std::move(keeping)),
                "responses");
}

void input_tokens(Call& call) {
    call.send(Json::object({{"object", "response.input_tokens"},
                            {"input_tokens", static_cast<std::int64_t>(call.model.count(prompt_of(call)).size())}}));
}

ApiError not_stored(const std::string& id) {
    return {Problem::not_found, "the response '" + id + "' is not here; only those with 'store' are kept for a while",
            "response_not_found"};
}

void stored(Call& call) {
    std::string id(call.tail);
    constexpr std::string_view kItems = "/input_items";
    const bool items = id.ends_with(kItems);
    if (items) id.resize(id.size() - kItems.size());
    const auto found = call.stored != nullptr ? call.stored->find(id, call.caller.name) : nullptr;
    if (found == nullptr) throw not_stored(id);
    if (items) return call.send(Json::object({{"object", "list"}, {"data", found->input}, {"has_more", false}}));
    HttpResponse response;
    response.body = found->response;
    call.exchange->send(std::move(response));
}

void forget(Call& call) {
    const std::string id(call.tail);
    if (call.stored == nullptr || !call.stored->remove(id, call.caller.name)) throw not_stored(id);
    call.send(Json::object({{"id", id}, {"object", "response"}, {"deleted", true}}));
}

}  // namespace

void add_responses(std::vector<Route>& routes) {
    for (const char* path : {"/v1/responses", "/responses"})
        routes.push_back({"POST", path, Right::api, &responses_shape(), responses, openai_error,
                          "Answers a conversation, in the form of Responses."});
    routes.push_back({"POST", "/v1/responses/input_tokens", Right::api, &input_shape(), input_tokens, openai_error,
                      "How many tokens a conversation has."});
    routes.push_back({"GET", "/v1/responses/", Right::api, nullptr, stored, openai_error,
                      "A stored response; with /input_items, what was asked."});
    routes.push_back(
        {"DELETE", "/v1/responses/", Right::api, nullptr, forget, openai_error, "Forgets a stored response."});
}

}  // namespace foresay::server
