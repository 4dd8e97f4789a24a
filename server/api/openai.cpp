// OpenAI's chat and completions, and the list of models.
#include <algorithm>
#include <array>
#include <utility>

#include "server/api/openai.h"

namespace foresay::server {

namespace {

// ----------------------------------------------------------------------------------------------------------- reading

void check_common(const Json& body) {
    for (const Json& kind : body["modalities"].is_list() ? body["modalities"].items() : Json::List{}) {
        if (kind.string() != "text")
            throw ApiError(Problem::invalid, "'modalities' may be text alone", "unsupported_value", "modalities");
    }
}

void read_common(const Json& body, const Shape& shape, const ServedModel& model, GenerationRequest& out) {
    read_samplers(shape, body, "", model, out);
    if (body.has("n")) out.n = static_cast<int>(body["n"].number());
    for (const char* name : {"n_predict", "max_tokens", "max_completion_tokens"}) {
        if (!body.has(name) || body[name].number() < 0) continue;
        out.max_tokens = static_cast<std::int64_t>(body[name].number());
        out.max_tokens_param = name;
    }
    if (body.has("cache_prompt")) out.reuse = body["cache_prompt"].boolean();
}

bool wants_usage(const Json& body) {
    const Json& usage = body["stream_options"]["include_usage"];
    return usage.is_true();
}

bool explains(const Json& body) {
    const Json& explain = body["foresay"]["explain"];
    return explain.is_true();
}

// A request in the form from before there were tools, which has one call at most.
bool old_functions(const Json& body) {
    return !body.has("tools") && !body.has("tool_choice") && (body.has("functions") || body.has("function_call"));
}

// ------------------------------------------------------------------------------------------------------------ routes

void chat(Call& call) {
    const Json& body = call.body;
    check_common(body);
    GenerationRequest wanted;
    read_common(body, chat_shape(), call.model, wanted);
    const bool logprobs = body["logprobs"].is_true();
    if (body.has("top_logprobs") && !logprobs)
        throw wrong_value("top_logprobs", "'top_logprobs' needs 'logprobs': true");
    if (logprobs) wanted.alternatives = body.has("top_logprobs") ? static_cast<int>(body["top_logprobs"].number()) : 0;
    read_format(body["response_format"], "response_format", "json_schema.schema", wanted);
    if (body.has("prediction")) wanted.prediction = read_content(body["prediction"]["content"], "prediction.content");
    Prompt prompt;
    prompt.param = "messages";
    prompt.conversation = read_conversation(body);
    const bool one_call = prompt.conversation->one_call;
    wanted.prompts.push_back(std::move(prompt));
    const OpenAiOptions options{.usage = wants_usage(body),
                                .logprobs = logprobs,
                                .explain = explains(body),
                                .one_call = one_call,
                                .old_calls = old_functions(body)};
    call.answer(std::move(wanted), make_chat_writer(call.exchange, body["stream"].is_true(), options), "chat");
}

void completions(Call& call) {
    const Json& body = call.body;
    GenerationRequest wanted;
    read_common(body, completion_shape(), call.model, wanted);
    if (body.has("best_of") && body["best_of"].number() != wanted.n)
        throw wrong_value("best_of", "'best_of' must be what 'n' is: answers are not compared here");
    const bool echo = body["echo"].is_true();
    if (body.has("logprobs") && echo)
        throw ApiError(Problem::invalid,
                       "'echo' with 'logprobs' is not supported: there are no log probabilities of a prompt's tokens; "
                       "ask without 'echo' for those of the answer",
                       "unsupported_value", "echo");
    if (body.has("logprobs")) wanted.alternatives = static_cast<int>(body["logprobs"].number());
    wanted.prompts = read_prompts(body["prompt"], "prompt");
    if (body.has("suffix") && !body.text("suffix").empty()) {
        if (!call.model.fills())
            throw wrong_value("suffix", "'suffix' needs a model that knows holes, and this one does not");
        for (Prompt& prompt : wanted.prompts) {
            if (prompt.parts.size() != 1 || !prompt.parts.front().is_text)
                throw wrong_type("prompt", "with 'suffix', 'prompt' must be a string");
            prompt.hole = Hole{prompt.parts.front().text, body.text("suffix"), {}};
        }
    }
    if (wanted.prompts.size() * static_cast<std::size_t>(wanted.n) > 64)
        throw wrong_value("n", "64 texts at most, of all prompts together");
    const OpenAiOptions options{
        .usage = wants_usage(body), .logprobs = body.has("logprobs"), .explain = explains(body)};
    call.answer(std::move(wanted), make_completion_writer(call.exchange, body["stream"].is_true(), options, echo),
                "completions");
}

// Mistral's: the prompt and the answer of a completion, in the form of a chat.
void fim(Call& call) {
    const Json& body = call.body;
    GenerationRequest wanted;
    read_common(body, fim_shape(), call.model, wanted);
    read_seed(body["random_seed"], wanted);
    if (!call.model.fills() && !body.text("suffix").empty())
        throw wrong_value("suffix", "'suffix' needs a model that knows holes, and this one does not");
    Prompt prompt;
    prompt.param = "prompt";
    prompt.hole = Hole{body.text("prompt"), body.text("suffix"), {}};
    wanted.prompts.push_back(std::move(prompt));
    const OpenAiOptions options{.usage = true};
    call.answer(std::move(wanted), make_chat_writer(call.exchange, body["stream"].is_true(), options), "fim");
}

Json model_entry(const Call& call) {
    const ServedModel& model = call.model;
    const core::ModelConfig& config = model.engine().target().config();
    Json meta = Json::object({{"n_ctx", model.context_length()},
                              {"n_ctx_train", config.context_length},
                              {"n_vocab", model.tokenizer().vocab_size()},
                              {"size", model.file_bytes()},
                              {"quantization", config.file_type},
                              {"architecture", config.architecture},
                              {"draft", call.model.engine().draft() != nullptr}});
    return Json::object({{"id", model.name()},
                         {"object", "model"},
                         {"created", model.created()},
                         {"owned_by", "foresay"},
                         {"meta", std::move(meta)}});
}

Json anthropic_entry(const Call& call) {
    return Json::object({{"type", "model"},
                         {"id", call.model.name()},
                         {"display_name", call.model.name()},
                         {"created_at", "2026-01-01T00:00:00Z"},
                         {"max_input_tokens", call.model.context_length() - 1},
                         {"max_tokens", call.model.context_length() - 1}});
}

bool for_anthropic(const Call& call) { return !call.request.header("anthropic-version").empty(); }

void models(Call& call) {
    const std::string& name = call.model.name();
    if (for_anthropic(call)) {
        call.send(Json::object({{"data", Json::list({anthropic_entry(call)})},
                                {"has_more", false},
                                {"first_id", name},
                                {"last_id", name}}));
        return;
    }
    const Json slug =
        Json::object({{"slug", name}, {"display_name", name}, {"context_window", call.model.context_length()}});
    call.send(
        Json::object({{"object", "list"}, {"data", Json::list({model_entry(call)})}, {"models", Json::list({slug})}}));
}

void model(Call& call) {
    if (!call.model.answers_to(call.tail))
        throw ApiError(Problem::not_found,
                       "the model '" + std::string(call.tail) + "' is not here; '" + call.model.name() + "' is",
                       "model_not_found", "model");
    call.send(for_anthropic(call) ? anthropic_entry(call) : model_entry(call));
}

void embeddings(Call&) { throw no_embeddings(); }

}  // namespace

Json openai_error_body(const ApiError& error) {
    const char* type = "server_error";
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
            type = "rate_limit_error";
            break;
        case Problem::unavailable:
            type = "unavailable_error";
            break;
        case Problem::failed:
            break;
        default:
            type = "invalid_request_error";
    }
    Json body = Json::object({{"message", error.what()},
                              {"type", type},
                              {"param", error.param.empty() ? Json() : Json(error.param)},
                              {"code", error.code.empty() ? Json() : Json(error.code)}});
    if (error.context_length > 0) {
        body.set("n_prompt_tokens", error.prompt_tokens);
        body.set("n_ctx", error.context_length);
    }
    return body;
}

HttpResponse openai_error(const ApiError& error, const std::string&) {
    HttpResponse response;
    response.status = error.status;
    response.body = Json::object({{"error", openai_error_body(error)}}).dump();
    return response;
}

// A call of a message before.
static ToolCall called(const Json& function, const std::string& id) {
    const Json& arguments = function["arguments"];
    return {id, function.text("name"),
            arguments.is_object()                ? arguments.dump()
            : function.text("arguments").empty() ? "{}"
                                                 : function.text("arguments")};
}

Conversation read_conversation(const Json& body, const std::string& param) {
    Conversation out;
    out.param = param;
    const Json::List& messages = body["messages"].items();
    if (messages.empty()) throw wrong_value(param, "'" + param + "' is empty, so there is nothing to answer");
    for (std::size_t i = 0; i < messages.size(); ++i) {
        const Json& message = messages[i];
        Message next;
        next.path = param + "[" + std::to_string(i) + "]";
        next.role = message.text("role") == "function" ? "tool" : message.text("role");
        next.content =
            read_content(message["content"], next.path + ".content", {"text", "refusal", "input_text", "output_text"});
        if (message["content"].is_null() && next.role != "assistant" && message.text("role") != "function")
            throw missing(next.path + ".content");
        next.reasoning = message.text("reasoning_content");
        next.call_id = message.text("tool_call_id");
        if (next.role == "tool") next.tool_name = message.text("name");
        if (next.role == "assistant" && message["tool_calls"].is_list()) {
            for (const Json& call : message["tool_calls"].items()) {
                if (call["function"].text("name").empty())
                    throw ApiError(Problem::invalid, "'" + next.path + ".tool_calls' has a call without a name",
                                   "invalid_value", next.path + ".tool_calls");
                next.calls.push_back(called(call["function"], call.text("id")));
            }
        }
        if (next.role == "assistant" && message["function_call"].is_object()) {
            if (message["function_call"].text("name").empty()) throw missing(next.path + ".function_call.name");
            next.calls.push_back(called(message["function_call"], ""));
        }
        // A result is told by the name of what was called.
        if (next.role == "tool" && next.tool_name.empty()) {
            for (const Message& before : out.messages) {
                for (const ToolCall& call : before.calls) {
                    if (!call.id.empty() && call.id == next.call_id) next.tool_name = call.name;
                }
            }
        }
        out.messages.push_back(std::move(next));
    }
    out.tools = read_tools(body["tools"], "tools", "function.name");
    if (out.tools.empty()) out.tools = read_tools(body["functions"], "functions", "name");
    read_tool_choice(body, out);
    const std::string& effort = body.text("reasoning_effort");
    if (effort == "none") {
        out.reasoning = "off";
    } else if (effort == "minimal" || effort == "low") {
        out.reasoning = "low";
    } else if (effort == "xhigh" || effort == "max") {
        out.reasoning = "high";
    } else {
        out.reasoning = effort;
    }
    out.template_arguments = body["chat_template_kwargs"];
    if (body.has("continue_final_message")) out.continue_last = body["continue_final_message"].boolean();
    if (body.has("add_generation_prompt")) out.generation_prompt = body["add_generation_prompt"].boolean();
    return out;
}

void read_tool_choice(const Json& body, Conversation& conversation) {
    const Json& parallel = body["parallel_tool_calls"];
    conversation.one_call = parallel.is_false() || old_functions(body);
    for (const char* name : {"tool_choice", "function_call"}) {
        const Json& choice = body[name];
        if (choice.is_null()) continue;
        const std::string& type = choice.text("type");
        const std::string& mode = choice.is_string() ? choice.string() : type;
        if (choice.is_string() || type == "auto" || type == "none" || type == "required") {
            if (mode == "none") conversation.tools.clear();
            if (mode == "required") require_call(conversation, "", name);
            continue;
        }
        const Json& allowed = choice["allowed_tools"];
        if (type != "allowed_tools" && !allowed.is_object()) {
            const bool nested = choice["function"].is_object();
            const std::string place = std::string(name) + (nested ? ".function.name" : ".name");
            const std::string& tool = nested ? choice["function"].text("name") : choice.text("name");
            if (tool.empty()) throw missing(place);
            require_call(conversation, tool, place);
            continue;
        }
        // Responses has the list and the mode in the choice itself.
        const Json& chosen = allowed.is_object() ? allowed : choice;
        std::vector<Tool> kept;
        for (const Tool& tool : conversation.tools) {
            const Json& names = chosen["tools"];
            const bool named =
                names.is_list() && std::any_of(names.items().begin(), names.items().end(), [&](const Json& one) {
                    return one.text("name") == tool.name || one["function"].text("name") == tool.name;
                });
            if (named) kept.push_back(tool);
        }
        conversation.tools = std::move(kept);
        if (chosen.text("mode") == "required") require_call(conversation, "", std::string(name) + ".mode");
    }
}

void add_openai(std::vector<Route>& routes) {
    for (const char* path : {"/v1/chat/completions", "/chat/completions"})
        routes.push_back({"POST", path, Right::api, &chat_shape(), chat, openai_error, "Answers a conversation."});
    for (const char* path : {"/v1/completions"})
        routes.push_back(
            {"POST", path, Right::api, &completion_shape(), completions, openai_error, "Continues a text."});
    routes.push_back({"POST", "/v1/fim/completions", Right::api, &fim_shape(), fim, openai_error,
                      "The text between two others, as Mistral's clients ask for it."});
    for (const char* path : {"/v1/models", "/models"})
        routes.push_back({"GET", path, Right::api, nullptr, models, openai_error, "The models."});
    routes.push_back({"GET", "/v1/models/", Right::api, nullptr, model, openai_error, "One model."});
    routes.push_back({"POST", "/v1/embeddings", Right::api, nullptr, embeddings, openai_error, "Not supported."});
}

}  // namespace foresay::server
