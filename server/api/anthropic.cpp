// Anthropic's messages, and the counting of their tokens.
#include <algorithm>
#include <utility>

#include "server/api/protocol.h"

namespace foresay::server {

namespace {

// ------------------------------------------------------------------------------------------------------------ fields

const Shape& tool_shape() {
    static const Shape shape{
        .name = "tool",
        .fields = {{.name = "name", .kinds = kString, .doc = "The name by which it is called."},
                   {.name = "type", .kinds = kString, .doc = "custom; tools of other types are left out."},
                   {.name = "description", .kinds = kString, .doc = "What it does."},
                   {.name = "input_schema", .kinds = kObject, .doc = "A JSON Schema."},
                   {.name = "strict",
                    .kinds = kBoolean,
                    .doc = "true: the input of a call is valid under input_schema."},
                   {.name = "cache_control",
                    .kinds = kAny,
                    .doc = "Ignored: beginnings are cached anyway.",
                    .ignored = true}},
        .types = {"custom"}};
    return shape;
}

const Shape& block_shape() {
    static const Shape shape{
        .name = "block",
        .fields = {{.name = "type",
                    .kinds = kString,
                    .doc = "text, thinking, redacted_thinking, tool_use or tool_result; others are refused."},
                   {.name = "text", .kinds = kString, .doc = "Of text."},
                   {.name = "thinking", .kinds = kString, .doc = "Of thinking: the reasoning of an answer."},
                   {.name = "id", .kinds = kString, .doc = "Of tool_use: what its result refers to."},
                   {.name = "name", .kinds = kString, .doc = "Of tool_use: the tool."},
                   {.name = "input", .kinds = kObject, .doc = "Of tool_use: the arguments."},
                   {.name = "tool_use_id", .kinds = kString, .doc = "Of tool_result: which call it is of."},
                   {.name = "content",
                    .kinds = kString | kList,
                    .doc = "Of tool_result: a text, or a list of blocks of the type text.",
                    .items = kString | kObject,
                    .shape = &chat_part_shape()},
                   {.name = "is_error", .kinds = kBoolean, .doc = "Accepted; the content says it."},
                   {.name = "signature", .kinds = kAny, .doc = "Ignored.", .ignored = true},
                   {.name = "data", .kinds = kAny, .doc = "Ignored.", .ignored = true},
                   {.name = "citations", .kinds = kAny, .doc = "Ignored.", .ignored = true},
                   {.name = "cache_control", .kinds = kAny, .doc = "Ignored.", .ignored = true}},
        .types = {"text", "thinking", "redacted_thinking", "tool_use", "tool_result"}};
    return shape;
}

const Shape& message_shape() {
    static const Shape shape{"message",
                             {{.name = "role",
                               .kinds = kString,
                               .doc = "Who speaks.",
                               .choices = {"user", "assistant", "system"},
                               .required = true},
                              {.name = "content",
                               .kinds = kString | kList,
                               .doc = "A text, or a list of blocks.",
                               .items = kObject,
                               .shape = &block_shape(),
                               .required = true}}};
    return shape;
}

const Shape& tool_choice_shape() {
    static const Shape shape{
        "tool_choice",
        {{.name = "type",
          .kinds = kString,
          .doc = "auto, none, any, or tool with its name.",
          .choices = {"auto", "any", "tool", "none"},
          .required = true},
         {.name = "name", .kinds = kString, .doc = "Of the tool that must be called."},
         {.name = "disable_parallel_tool_use", .kinds = kBoolean, .doc = "The first call alone counts."}}};
    return shape;
}

const Shape& thinking_shape() {
    static const Shape shape{
        "thinking",
        {{.name = "type",
          .kinds = kString,
          .doc = "Whether the model reasons, where its template can tell it.",
          .choices = {"enabled", "disabled", "adaptive"},
          .required = true},
         {.name = "budget_tokens", .kinds = kInteger, .doc = "Accepted; not a limit here.", .least = 0}}};
    return shape;
}

const Shape& output_shape() {
    static const Shape shape{
        "output_config",
        {{.name = "effort",
          .kinds = kString,
          .doc = "How much the model reasons, where its template can tell it.",
          .choices = {"low", "medium", "high", "xhigh", "max"}},
         {.name = "format", .kinds = kObject, .doc = "The form of the answer.", .shape = &schema_format_shape()}}};
    return shape;
}

const Shape& count_shape() {
    static const Shape shape{
        "count_tokens",
        {{.name = "model", .kinds = kString, .doc = "The name of the model."},
         {.name = "messages",
          .kinds = kList,
          .doc = "The conversation.",
          .items = kObject,
          .shape = &message_shape(),
          .required = true},
         {.name = "system",
          .kinds = kString | kList,
          .doc = "The system prompt: a text, or a list of blocks of the type text.",
          .items = kObject,
          .shape = &chat_part_shape()},
         {.name = "tools", .kinds = kList, .doc = "What the model may call.", .items = kObject, .shape = &tool_shape()},
         {.name = "tool_choice", .kinds = kObject, .doc = "Whether it may call.", .shape = &tool_choice_shape()},
         {.name = "thinking", .kinds = kObject, .doc = "Whether it reasons.", .shape = &thinking_shape()}}};
    return shape;
}

const Shape& generation_shape() {
    static const Shape shape{
        "messages",
        {{.name = "max_tokens",
          .kinds = kInteger,
          .doc = "Most tokens of the answer.",
          .least = 1,
          .most = 1e9,
          .required = true},
         {.name = "stream", .kinds = kBoolean, .doc = "Whether the answer comes piece by piece."},
         {.name = "stop_sequences", .kinds = kList, .doc = "Texts before which the answer ends.", .items = kString},
         {.name = "output_config",
          .kinds = kObject,
          .doc = "How much effort, and the form of the answer.",
          .shape = &output_shape()},
         {.name = "metadata", .kinds = kAny, .doc = "Ignored.", .ignored = true},
         {.name = "service_tier", .kinds = kAny, .doc = "Ignored.", .ignored = true},
         {.name = "context_management", .kinds = kAny, .doc = "Ignored.", .ignored = true}},
        &count_shape()};
    return shape;
}

// Both: bases are a chain, so the samplers come last.
const Shape& messages_shape() {
    static const Shape shape = [] {
        Shape all{"messages", generation_shape().fields, &sampler_shape()};
        all.fields.insert(all.fields.end(), count_shape().fields.begin(), count_shape().fields.end());
        return all;
    }();
    return shape;
}

// ----------------------------------------------------------------------------------------------------------- reading

std::string block_text(const Json& content, const std::string& path) { return read_content(content, path, {"text"}); }

void read_blocks(const Json& message, const std::string& path, const std::string& role, Conversation& out) {
    const Json& content = message["content"];
    Message next;
    next.role = role;
    next.path = path;
    if (content.is_string()) {
        next.content = content.string();
        out.messages.push_back(std::move(next));
        return;
    }
    bool any = false;
    for (std::size_t i = 0; i < content.items().size(); ++i) {
        const Json& block = content.items()[i];
        const std::string place = path + ".content[" + std::to_string(i) + "]";
        const std::string& type = block.text("type");
        if (type == "text") {
            if (!block.has("text")) throw missing(place + ".text");
            next.content += block.text("text");
            any = true;
        } else if (type == "thinking") {
            next.reasoning += block.text("thinking");
        } else if (type == "redacted_thinking") {
            continue;
        } else if (type == "tool_use") {
            if (block.text("name").empty()) throw missing(place + ".name");
            next.calls.push_back({block.text("id"), block.text("name"),
                                  block["input"].is_object() ? block["input"].dump() : std::string("{}")});
            any = true;
        } else if (type == "tool_result") {
            Message result;
            result.role = "tool";
            result.path = place;
            result.call_id = block.text("tool_use_id");
            result.content = block_text(block["content"], place + ".content");
            for (const Message& before : out.messages) {
                for (const ToolCall& call : before.calls) {
                    if (!call.id.empty() && call.id == result.call_id) result.tool_name = call.name;
                }
            }
            out.messages.push_back(std::move(result));
        } else {
            throw ApiError(Problem::invalid,
                           "'" + place + "' is of the type '" + type + "', but this model reads text alone",
                           "unsupported_content", place);
        }
    }
    if (any || content.items().empty()) out.messages.push_back(std::move(next));
}

// Claude Code begins its system prompt with a line that changes with every request, which no cache would survive.
void normalise_billing_line(std::string& system) {
    constexpr std::string_view kLine = "x-anthropic-billing-header:", kValue = "cch=";
    if (!system.starts_with(kLine)) return;
    const std::size_t end = std::min(system.find('\n'), system.size());
    const std::size_t value = system.find(kValue);
    if (value == system.npos || value > end) return;
    for (std::size_t i = value + kValue.size(); i < end && std::isxdigit(static_cast<unsigned char>(system[i])) != 0;
         ++i)
        system[i] = '0';
}

Conversation read_messages(const Json& body) {
    Conversation out;
    std::string system = block_text(body["system"], "system");
    normalise_billing_line(system);
    if (!system.empty()) out.messages.push_back({.role = "system", .content = std::move(system), .path = "system"});
    const Json::List& messages = body["messages"].items();
    if (messages.empty()) throw wrong_value("messages", "'messages' is empty, so there is nothing to answer");
    for (std::size_t i = 0; i < messages.size(); ++i)
        read_blocks(messages[i], "messages[" + std::to_string(i) + "]", messages[i].text("role"), out);
    // A last message of the assistant is the beginning of its answer.
    out.continue_last = !out.messages.empty() && out.messages.back().role == "assistant";
    if (body["tools"].is_list()) {
        for (std::size_t i = 0; i < body["tools"].items().size(); ++i) {
            const Json& tool = body["tools"].items()[i];
            const std::string place = "tools[" + std::to_string(i) + "]";
            if (tool.has("type") && tool.text("type") != "custom") continue;
            if (tool.text("name").empty()) throw missing(place + ".name");
            const bool strict = tool["strict"].is_true();
            out.tools.push_back(
                {tool.text("name"), tool.text("description"), tool["input_schema"], strict, place + ".input_schema"});
        }
    }
    const std::string& choice = body["tool_choice"].text("type");
    if (choice == "none") out.tools.clear();
    if (choice == "any") require_call(out, "", "tool_choice.type");
    if (choice == "tool") require_call(out, body["tool_choice"].text("name"), "tool_choice.name");
    const Json& alone = body["tool_choice"]["disable_parallel_tool_use"];
    out.one_call = alone.is_true();
    const std::string& thinking = body["thinking"].text("type");
    if (thinking == "enabled") out.reasoning = "on";
    if (thinking == "disabled") out.reasoning = "off";
    const std::string& effort = body["output_config"].text("effort");
    if (thinking != "disabled" && !effort.empty())
        out.reasoning = effort == "xhigh" || effort == "max" ? "high" : effort;
    return out;
}

// ----------------------------------------------------------------------------------------------------------- writing

// A full queue is the server's load; other limits are the key's own.
bool overloaded(const ApiError& error) { return error.problem == Problem::busy && error.code == "queue_full"; }

Json error_json(const ApiError& error, const std::string& id) {
    const char* type = "api_error";
    switch (error.problem) {
        case Problem::authentication:
            type = "authentication_error";
            break;
        case Problem::permission:
            type = "permission_error";
            break;
        case Problem::not_found:
            type = "not_found_error";
            break;
        case Problem::busy:
            type = overloaded(error) ? "overloaded_error" : "rate_limit_error";
            break;
        case Problem::unavailable:
            type = "overloaded_error";
            break;
        case Problem::failed:
            break;
        case Problem::too_large:
            type = "request_too_large";
            break;
        default:
            type = "invalid_request_error";
    }
    std::string message = error.what();
    if (error.context_length > 0)
        message = "prompt is too long: " + std::to_string(error.prompt_tokens) + " tokens > " +
                  std::to_string(error.context_length - 1) + " maximum";
    if (!error.param.empty() && message.find(error.param) == std::string::npos) message += " (" + error.param + ")";
    return Json::object(
        {{"type", "error"}, {"error", Json::object({{"type", type}, {"message", message}})}, {"request_id", id}});
}

HttpResponse anthropic_error_response(const ApiError& error, const std::string& id) {
    HttpResponse response;
    response.status = overloaded(error) ? 529 : error.status;
    response.headers = {{"request-id", id}};
    response.body = error_json(error, id).dump();
    return response;
}

class MessagesWriter final : public AnswerWriter {
public:
    MessagesWriter(std::shared_ptr<Exchange> exchange, bool stream, bool one_call)
        : AnswerWriter(std::move(exchange), stream, one_call) {}

protected:
    std::string ping() const override { return "event: ping\ndata: {\"type\":\"ping\"}\n\n"; }
    HttpResponse error(const ApiError& error) override { return anthropic_error_response(error, "req_" + facts_.id); }
    void late_error(const ApiError& error, std::string& out) override {
        append_named_event("error", error_json(error, "req_" + facts_.id), out);
    }

    Json usage(bool complete) const {
        const std::int64_t cached = complete ? cached_tokens() : 0;
        return Json::object({{"input_tokens", facts_.prompt_tokens - cached},
                             {"cache_creation_input_tokens", 0},
                             {"cache_read_input_tokens", cached},
                             {"output_tokens", complete ? completion_tokens() : 0}});
    }
    Json message(Json content, Json stop_reason, Json stop_sequence, bool complete) const {
        Json told = Json::object({{"id", "msg_" + facts_.id},
                                  {"type", "message"},
                                  {"role", "assistant"},
                                  {"model", facts_.model},
                                  {"content", std::move(content)},
                                  {"stop_reason", std::move(stop_reason)},
                                  {"stop_sequence", std::move(stop_sequence)},
                                  {"usage", usage(complete)}});
        tell_seed(facts_, told);
        return told;
    }
    Json stop_reason() const {
        const Choice& choice = choices_.front();
        if (!choice.calls.empty() && choice.finish != Finish::length) return "tool_use";
        if (choice.finish == Finish::length) {
            const bool context = choice.prompt_tokens + choice.tokens >= context_length_;
            return context ? "model_context_window_exceeded" : "max_tokens";
        }
        return choice.stopped_by_string ? "stop_sequence" : "end_turn";
    }
    Json stop_sequence() const {
        const Choice& choice = choices_.front();
        return choice.stopped_by_string ? Json(choice.stop_string) : Json();
    }
    Json tool_block(const ToolCall& call, std::size_t index, bool with_input) const {
        Json input = Json::object();
        if (with_input) try_parse_json(call.arguments, input);
        return Json::object({{"type", "tool_use"},
                             {"id", call_id(facts_, call, 0, index, "toolu_")},
                             {"name", call.name},
                             {"input", std::move(input)}});
    }

    // ---- a stream: blocks of one kind after the other
    enum class Block { none, thinking, text };
    void event(const char* type, Json members, std::string& out) const {
        Json whole = Json::object({{"type", type}});
        for (const auto& [name, value] : members.members()) whole.set(name, value);
        append_named_event(type, whole, out);
    }
    void open(std::string& out) override {
        event("message_start", Json::object({{"message", message(Json::list(), {}, {}, false)}}), out);
        event("ping", Json::object(), out);
    }
    void start_block(Json block, std::string& out) {
        event("content_block_start", Json::object({{"index", index_}, {"content_block", std::move(block)}}), out);
    }
    void delta(Json change, std::string& out) {
        event("content_block_delta", Json::object({{"index", index_}, {"delta", std::move(change)}}), out);
    }
    void stop_block(std::string& out) {
        if (block_ == Block::none) return;
        if (block_ == Block::thinking) delta(Json::object({{"type", "signature_delta"}, {"signature", ""}}), out);
        event("content_block_stop", Json::object({{"index", index_}}), out);
        ++index_;
        block_ = Block::none;
    }
    void piece(std::size_t, const OutputEvent& piece, std::span<const TokenNote>, std::string& out) override {
        if (piece.kind == OutputEvent::Kind::call) {
            const std::size_t number = choices_.front().calls.size() - 1;
            stop_block(out);
            start_block(tool_block(piece.call, number, false), out);
            delta(Json::object({{"type", "input_json_delta"}, {"partial_json", piece.call.arguments}}), out);
            event("content_block_stop", Json::object({{"index", index_}}), out);
            ++index_;
            return;
        }
        const bool thinks = piece.kind == OutputEvent::Kind::reasoning;
        const Block wanted = thinks ? Block::thinking : Block::text;
        if (block_ != wanted) {
            stop_block(out);
            start_block(thinks ? Json::object({{"type", "thinking"}, {"thinking", ""}, {"signature", ""}})
                               : Json::object({{"type", "text"}, {"text", ""}}),
                        out);
            block_ = wanted;
        }
        delta(thinks ? Json::object({{"type", "thinking_delta"}, {"thinking", piece.text}})
                     : Json::object({{"type", "text_delta"}, {"text", piece.text}}),
              out);
    }
    void close_choice(std::size_t, std::string& out) override { stop_block(out); }
    void close(std::string& out) override {
        Json end =
            Json::object({{"delta", Json::object({{"stop_reason", stop_reason()}, {"stop_sequence", stop_sequence()}})},
                          {"usage", usage(true)}});
        tell_seed(facts_, end);
        tell_unfinished(choices_.front(), end);
        event("message_delta", std::move(end), out);
        event("message_stop", Json::object(), out);
    }

    Json whole() override {
        const Choice& choice = choices_.front();
        Json content = Json::list();
        for (const AnswerItem& item : choice.items) {
            if (item.kind == OutputEvent::Kind::call) {
                content.push(tool_block(choice.calls[item.call], item.call, true));
            } else if (item.kind == OutputEvent::Kind::reasoning) {
                content.push(Json::object({{"type", "thinking"}, {"thinking", item.text}, {"signature", ""}}));
            } else {
                content.push(Json::object({{"type", "text"}, {"text", item.text}}));
            }
        }
        Json told = message(std::move(content), stop_reason(), stop_sequence(), true);
        tell_unfinished(choice, told);
        return told;
    }

public:
    std::int64_t context_length_ = 0;

private:
    Block block_ = Block::none;
    std::int64_t index_ = 0;
};

// ------------------------------------------------------------------------------------------------------------ routes

Prompt prompt_of(const Json& body) {
    Prompt prompt;
    prompt.param = "messages";
    prompt.conversation = read_messages(body);
    return prompt;
}

void messages(Call& call) {
    const Json& body = call.body;
    GenerationRequest wanted;
    read_samplers(messages_shape(), body, "", call.model, wanted);
    wanted.max_tokens = static_cast<std::int64_t>(body["max_tokens"].number());
    wanted.max_tokens_param = "max_tokens";
    for (std::string& stop : read_stops(body["stop_sequences"])) wanted.stop.push_back(std::move(stop));
    read_format(body["output_config"]["format"], "output_config.format", "schema", wanted);
    wanted.prompts.push_back(prompt_of(body));
    const Json& single = body["tool_choice"]["disable_parallel_tool_use"];
    const bool stream = body["stream"].is_true();
    auto writer = std::make_shared<MessagesWriter>(call.exchange, stream, single.is_true());
    writer->context_length_ = call.model.context_length();
    call.answer(std::move(wanted), std::move(writer), "messages");
}

void count_tokens(Call& call) {
    call.model_name();
    call.send(
        Json::object({{"input_tokens", static_cast<std::int64_t>(call.model.count(prompt_of(call.body)).size())}}));
}

}  // namespace

HttpResponse anthropic_error(const ApiError& error, const std::string& id) {
    return anthropic_error_response(error, id);
}

void add_anthropic(std::vector<Route>& routes) {
    routes.push_back({"POST", "/v1/messages", Right::api, &messages_shape(), messages, anthropic_error_response,
                      "Answers a conversation, as Anthropic's clients ask."});
    routes.push_back({"POST", "/v1/messages/count_tokens", Right::api, &count_shape(), count_tokens,
                      anthropic_error_response, "How many tokens a conversation has."});
}

}  // namespace foresay::server
