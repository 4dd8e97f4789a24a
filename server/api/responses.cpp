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
                               .choices = {"none", "minimal", "low", "medium", "high", "xhigh", "max"}},
                              {.name = "summary", .kinds = kAny, .doc = "Ignored.", .ignored = true},
                              {.name = "generate_summary", .kinds = kAny, .doc = "Ignored.", .ignored = true}}};
    return shape;
}

const Shape& item_shape() {
    static const Shape shape{
        .name = "item",
        .fields =
            {{.name = "type",
              .kinds = kString,
              .doc =
                  "message, function_call, function_call_output or reasoning; items of other types are left out, and "
                  "one without a type is a message."},
             {.name = "role",
              .kinds = kString,
              .doc = "Of a message: who speaks.",
              .choices = {"user", "assistant", "system", "developer"}},
             {.name = "content",
              .kinds = kString | kList,
              .doc = "Of a message: a text, or a list of parts. Of reasoning: a list of parts.",
              .items = kString | kObject,
              .shape = &chat_part_shape()},
             {.name = "call_id", .kinds = kString, .doc = "Of a call, and of its output."},
             {.name = "name", .kinds = kString, .doc = "Of a call: the function."},
             {.name = "arguments", .kinds = kString, .doc = "Of a call: a JSON object as text."},
             {.name = "output",
              .kinds = kString | kList,
              .doc = "Of an output: a text, or a list of parts.",
              .items = kString | kObject,
              .shape = &chat_part_shape()},
             {.name = "id", .kinds = kAny, .doc = "Ignored.", .ignored = true},
             {.name = "status", .kinds = kAny, .doc = "Ignored.", .ignored = true},
             {.name = "summary", .kinds = kAny, .doc = "Ignored.", .ignored = true},
             {.name = "encrypted_content", .kinds = kAny, .doc = "Ignored.", .ignored = true}},
        .types = {"message", "function_call", "function_call_output", "reasoning"}};
    return shape;
}

const Shape& text_shape() {
    static const Shape shape{
        "text",
        {{.name = "format", .kinds = kObject, .doc = "The form of the answer.", .shape = &schema_format_shape()},
         {.name = "verbosity", .kinds = kAny, .doc = "Ignored.", .ignored = true}}};
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
             .shape = &item_shape(),
             .required = true},
            {.name = "instructions", .kinds = kString, .doc = "The system prompt."},
            {.name = "tools",
             .kinds = kList,
             .doc = "Functions that the model may call; others are left out.",
             .items = kObject,
             .shape = &chat_tool_shape()},
            {.name = "tool_choice",
             .kinds = kString | kObject,
             .doc = "none, auto, required, or the tool that must be called.",
             .choices = {"none", "auto", "required"},
             .shape = &chat_choice_shape()},
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
            {.name = "include",
             .kinds = kList,
             .doc = "message.output_text.logprobs: log probabilities of the tokens of messages, before any sampler. "
                    "Others are left out.",
             .items = kString},
            {.name = "top_logprobs",
             .kinds = kInteger,
             .doc = "How many of the likeliest tokens are told; asks for log probabilities as include does.",
             .least = 0,
             .most = 20},
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
        if (item.text("name").empty()) throw missing(path + ".name");
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
        if (item["content"].is_null() && role != "assistant") throw missing(path + ".content");
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
    out.tools = read_tools(body["tools"], "tools", "name");
    read_tool_choice(body, out);
    const std::string& effort = body["reasoning"].text("effort");
    out.reasoning = effort == "none"                         ? "off"
                    : effort == "minimal" || effort == "low" ? "low"
                    : effort == "xhigh" || effort == "max"   ? "high"
                                                             : effort;
    return out;
}

// ----------------------------------------------------------------------------------------------------------- writing

bool wants_logprobs(const Json& body) {
    const Json& include = body["include"];
    const auto asks = [](const Json& what) { return what.string() == "message.output_text.logprobs"; };
    return body.has("top_logprobs") ||
           (include.is_list() && std::any_of(include.items().begin(), include.items().end(), asks));
}

class ResponsesWriter final : public AnswerWriter {
public:
    // Where the response is kept, if it is to be; the conversation is that of the request.
    struct Keeping {
        StoredResponses* place = nullptr;
        std::string owner;
        std::vector<Message> messages;
    };
    ResponsesWriter(std::shared_ptr<Exchange> exchange, bool stream, Json request, Keeping keeping)
        : AnswerWriter(std::move(exchange), stream, request["parallel_tool_calls"].is_false()),
          request_(std::move(request)),
          keeping_(std::move(keeping)),
          logprobs_(wants_logprobs(request_)) {}

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
             {"parallel_tool_calls", !one_call()},
             {"previous_response_id", request_["previous_response_id"]},
             {"reasoning", asked("reasoning", Json::object({{"effort", nullptr}, {"summary", nullptr}}))},
             {"store", keeping_.place != nullptr},
             {"temperature", request_["temperature"]},
             {"text", asked("text", Json::object({{"format", Json::object({{"type", "text"}})}}))},
             {"tool_choice", asked("tool_choice", "auto")},
             {"tools", asked("tools", Json::list())},
             {"top_logprobs", asked("top_logprobs", 0)},
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

    // ---- items: what is streamed one after the other is what a whole answer has
    static Json text_part(const std::string& text, bool reasoning, Json logprobs = Json::list()) {
        if (reasoning) return Json::object({{"type", "reasoning_text"}, {"text", text}});
        return Json::object({{"type", "output_text"},
                             {"text", text},
                             {"annotations", Json::list()},
                             {"logprobs", std::move(logprobs)}});
    }
    // Where they are not asked for, there are none.
    Json logprobs(std::span<const TokenNote> notes) const {
        return logprobs_ ? logprob_entries(*facts_.tokenizer, notes) : Json::list();
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

    Json message_or_reasoning(std::size_t place, const char* status) const {
        const AnswerItem& item = choices_.front().items[place];
        const bool reasoning = item.kind == OutputEvent::Kind::reasoning;
        const auto notes = std::span(choices_.front().notes).subspan(item.first_note, item.end_note - item.first_note);
        return text_item(reasoning, place, status, Json::list({text_part(item.text, reasoning, logprobs(notes))}));
    }
    Json::List output() const {
        const Choice& choice = choices_.front();
        Json::List all;
        for (std::size_t i = 0; i < choice.items.size(); ++i) {
            const std::size_t call = choice.items[i].call;
            all.push_back(choice.items[i].kind == OutputEvent::Kind::call
                              ? call_item(choice.calls[call], call, "completed", choice.calls[call].arguments)
                              : message_or_reasoning(i, "completed"));
        }
        return all;
    }
    // An answer has a message or a call, though the message may be empty. True: it was missing.
    bool add_message() {
        std::vector<AnswerItem>& items = choices_.front().items;
        const auto reasons = [](const AnswerItem& item) { return item.kind == OutputEvent::Kind::reasoning; };
        if (!std::all_of(items.begin(), items.end(), reasons)) return false;
        items.emplace_back();
        return true;
    }

    // ---- a stream
    void event(const char* type, Json members, std::string& out) {
        Json whole = Json::object({{"type", type}, {"sequence_number", sequence_++}});
        for (const auto& [name, value] : members.members()) whole.append(name, value);
        append_named_event(type, whole, out);
    }
    Json at(std::initializer_list<Json::Member> more) const {
        Json json = Json::object({{"item_id", item_id_}, {"output_index", static_cast<std::int64_t>(index_)}});
        for (const auto& [name, value] : more) json.append(name, value);
        return json;
    }
    void open(std::string& out) override {
        event("response.created", Json::object({{"response", response("in_progress", Json::list())}}), out);
        event("response.in_progress", Json::object({{"response", response("in_progress", Json::list())}}), out);
    }
    // Of the item at index_, whose text may grow.
    bool reasons() const { return choices_.front().items[index_].kind == OutputEvent::Kind::reasoning; }
    void item_event(const char* type, Json item, std::string& out) {
        event(type, Json::object({{"output_index", static_cast<std::int64_t>(index_)}, {"item", std::move(item)}}),
              out);
    }
    void begin_text(std::string& out) {
        const Json item = text_item(reasons(), index_, "in_progress", Json::list());
        item_id_ = item.text("id");
        open_ = true;
        item_event("response.output_item.added", item, out);
        event("response.content_part.added", at({{"content_index", 0}, {"part", text_part("", reasons())}}), out);
    }
    void end_text(std::string& out) {
        if (!open_) return;
        open_ = false;
        const Json item = message_or_reasoning(index_, "completed");
        const Json& part = item["content"].items().front();
        Json done = at({{"content_index", 0}, {"text", part["text"]}});
        if (!reasons()) done.append("logprobs", part["logprobs"]);
        event(reasons() ? "response.reasoning_text.done" : "response.output_text.done", std::move(done), out);
        event("response.content_part.done", at({{"content_index", 0}, {"part", part}}), out);
        item_event("response.output_item.done", item, out);
        ++index_;
    }
    void tell_call(const ToolCall& call, std::size_t number, std::string& out) {
        const Json item = call_item(call, number, "in_progress", "");
        item_id_ = item.text("id");
        item_event("response.output_item.added", item, out);
        event("response.function_call_arguments.delta", at({{"delta", call.arguments}}), out);
        event("response.function_call_arguments.done", at({{"name", call.name}, {"arguments", call.arguments}}), out);
        item_event("response.output_item.done", call_item(call, number, "completed", call.arguments), out);
        ++index_;
    }
    void piece(std::size_t, const OutputEvent& piece, std::span<const TokenNote> notes, std::string& out) override {
        if (index_ + 1 < choices_.front().items.size()) end_text(out);
        if (piece.kind == OutputEvent::Kind::call)
            return tell_call(piece.call, choices_.front().items[index_].call, out);
        if (!open_) begin_text(out);
        Json delta = at({{"content_index", 0}, {"delta", piece.text}});
        if (!reasons()) delta.append("logprobs", logprobs(notes));
        event(reasons() ? "response.reasoning_text.delta" : "response.output_text.delta", std::move(delta), out);
    }
    void close_choice(std::size_t, std::string& out) override {
        end_text(out);
        if (!add_message()) return;
        begin_text(out);
        end_text(out);
    }
    void close(std::string& out) override {
        const bool cut = choices_.front().finish == Finish::length;
        const Json told = complete_response(output());
        keep(told);
        event(cut ? "response.incomplete" : "response.completed", Json::object({{"response", told}}), out);
    }

    Json whole() override {
        add_message();
        Json told = complete_response(output());
        keep(told);
        return told;
    }

private:
    // Before the client hears of it, so that its next request finds it.
    void keep(const Json& told) {
        if (keeping_.place == nullptr) return;
        // As a client would send it back.
        Conversation answer;
        for (const Json& item : told["output"].items()) read_item(item, "previous_response_id", answer);
        for (Message& message : answer.messages) keeping_.messages.push_back(std::move(message));
        const Json& input = request_["input"];
        Json items = input.is_list()
                         ? input
                         : Json::list({Json::object({{"type", "message"}, {"role", "user"}, {"content", input}})});
        keeping_.place->add(told.text("id"), {keeping_.owner, told.dump(), std::move(items), keeping_.messages});
    }

    Json request_;
    Keeping keeping_;
    const bool logprobs_;
    std::int64_t sequence_ = 0;
    std::size_t index_ = 0;  // of the item that is told, or the next one
    std::string item_id_;
    bool open_ = false;  // the item has a text that may grow
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
    read_format(body["text"]["format"], "text.format", "schema", wanted);
    read_samplers(responses_shape(), body, "", call.model, wanted);
    if (body.has("max_output_tokens")) {
        wanted.max_tokens = static_cast<std::int64_t>(body["max_output_tokens"].number());
        wanted.max_tokens_param = "max_output_tokens";
    }
    if (wants_logprobs(body))
        wanted.alternatives = body.has("top_logprobs") ? static_cast<int>(body["top_logprobs"].number()) : 0;
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
