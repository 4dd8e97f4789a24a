// Prompts as tokens: conversations by the model's template or format, texts, and holes in texts.
#include <algorithm>
#include <cctype>
#include <utility>

#include "base/error.h"
#include "core/text/bounded_encode.h"
#include "server/error.h"
#include "server/model.h"

namespace foresay::server {

namespace {

// Counting stops at so many times the context: the error then says "at least".
constexpr std::size_t kCountedContexts = 16;

jinja::Value input(std::string text) { return jinja::Value(jinja::Text(std::move(text), true)); }

// What a client sends is no markup of the template's.
jinja::Value to_value(const Json& json) {
    switch (json.kind()) {
        case Json::Kind::boolean:
            return jinja::Value(json.boolean());
        case Json::Kind::integer:
            return jinja::Value(json.integer());
        case Json::Kind::real:
        case Json::Kind::large:
            return jinja::Value(json.number());
        case Json::Kind::string:
            return input(json.string());
        case Json::Kind::list: {
            jinja::List list;
            for (const Json& item : json.items()) {
                list.items.push_back(to_value(item));
                list.depth = std::max(list.depth, list.items.back().depth() + 1);
            }
            return jinja::Value(std::move(list));
        }
        case Json::Kind::object: {
            jinja::Dict dict;
            for (const auto& [name, value] : json.members()) dict.set(input(name), to_value(value));
            return jinja::Value(std::move(dict));
        }
        default: {
            return jinja::Value();
        }
    }
}

Json json_of(const Tool& tool) {
    Json function = Json::object({{"name", tool.name}});
    if (!tool.description.empty()) function.set("description", tool.description);
    function.set("parameters", tool.parameters.is_object()
                                   ? tool.parameters
                                   : Json::object({{"type", "object"}, {"properties", Json::object()}}));
    return Json::object({{"type", "function"}, {"function", std::move(function)}});
}

// For models whose template has no place for tools.
std::string description_of(const std::vector<Tool>& tools) {
    std::string text =
        "You can call functions. To call one, answer with nothing but one line for each call:\n"
        "<tool_call>{\"name\": \"NAME\", \"arguments\": {ARGUMENTS}}</tool_call>\n"
        "You will then be told what it returned. The functions, as JSON:\n";
    for (const Tool& tool : tools) text += json_of(tool)["function"].dump() + "\n";
    return text;
}

std::string written_call(const ToolCall& call) {
    return "<tool_call>{\"name\": " + json_quoted(call.name) + ", \"arguments\": " + call.arguments + "}</tool_call>";
}

core::Reasoning reasoning_of(const std::string& name) {
    constexpr const char* kNames[] = {"", "off", "on", "low", "medium", "high"};
    for (int i = 0; i < 6; ++i) {
        if (name == kNames[i]) return static_cast<core::Reasoning>(i);
    }
    return core::Reasoning::automatic;
}

void join(std::string& to, const std::string& more) {
    if (!to.empty() && !more.empty()) to += "\n\n";
    to += more;
}

}  // namespace

// The messages in the roles that the template knows: one system message at most, in front.
static std::vector<Message> normalised(const Conversation& conversation, const core::ChatStyle& style,
                                       bool native_developer, bool native_tools) {
    std::vector<Message> out;
    std::string system = native_tools || conversation.tools.empty() ? "" : description_of(conversation.tools);
    bool leading = true;
    for (const Message& message : conversation.messages) {
        Message next = message;
        if (next.role == "developer" && !native_developer) next.role = "system";
        leading = leading && next.role == "system";
        if (leading) {
            std::string text = next.content;
            join(text, system);
            system = std::move(text);
            continue;
        }
        if (!native_tools) {
            for (const ToolCall& call : next.calls) {
                if (!next.content.empty()) next.content += '\n';
                next.content += written_call(call);
            }
            next.calls.clear();
            if (next.role == "tool") {
                next.role = "user";
                next.content =
                    "Result" + (next.tool_name.empty() ? "" : " of " + next.tool_name) + ":\n" + next.content;
            }
        }
        // Most templates want roles to take turns.
        const bool joins = !out.empty() && out.back().role == next.role && next.role == "user" && !native_tools;
        if (joins) {
            join(out.back().content, next.content);
        } else {
            out.push_back(std::move(next));
        }
    }
    if (system.empty()) system = style.system;
    if (system.empty()) return out;
    const bool takes_system = !style.chat || style.chat->why_no_system().empty();
    if (takes_system) {
        out.insert(out.begin(), Message{.role = "system", .content = system});
    } else if (const auto user = std::find_if(out.begin(), out.end(), [](const auto& m) { return m.role == "user"; });
               user != out.end()) {
        join(system, user->content);
        user->content = std::move(system);
    } else {
        out.insert(out.begin(), Message{.role = "user", .content = system});
    }
    return out;
}

jinja::Text ServedModel::render_template(const Conversation& conversation) const {
    std::vector<Message> messages = normalised(conversation, style_, native_developer_, takes_tools_);
    std::string beginning;
    if (conversation.continue_last && !messages.empty() && messages.back().role == "assistant") {
        beginning = messages.back().content;
        messages.pop_back();
    }
    jinja::List list;
    for (const Message& message : messages) {
        std::string raw = message.reasoning.empty()
                              ? ""
                              : style_.markup.open + message.reasoning + style_.markup.close + message.content;
        const core::ChatMessage plain{message.role, message.content, message.reasoning, std::move(raw)};
        jinja::Dict one = style_.chat->messages_value({&plain, 1}).list().items[0].dict();
        if (!message.calls.empty()) {
            jinja::List calls;
            for (const ToolCall& call : message.calls) {
                Json arguments;
                jinja::Dict function;
                function.set("name", input(call.name));
                const bool object =
                    object_arguments_ && try_parse_json(call.arguments, arguments) && arguments.is_object();
                function.set("arguments", object ? to_value(arguments) : input(call.arguments));
                jinja::Dict entry;
                entry.set("id", input(call.id));
                entry.set("type", jinja::Value("function"));
                entry.set("function", jinja::Value(std::move(function)));
                calls.items.emplace_back(std::move(entry));
                calls.depth = std::max(calls.depth, calls.items.back().depth() + 1);
            }
            one.set("tool_calls", jinja::Value(std::move(calls)));
        }
        if (message.role == "tool") {
            one.set("tool_call_id", input(message.call_id));
            if (!message.tool_name.empty()) one.set("name", input(message.tool_name));
        }
        list.items.emplace_back(std::move(one));
        list.depth = std::max(list.depth, list.items.back().depth() + 1);
    }
    core::ChatOptions options = style_.options;
    const core::Reasoning reasoning = reasoning_of(conversation.reasoning);
    // Clients send an effort to every model; to one that cannot be told it changes nothing.
    if (reasoning != core::Reasoning::automatic && style_.chat->why_not(reasoning).empty())
        options.reasoning = reasoning;
    if (conversation.template_arguments.is_object()) {
        for (const auto& [name, value] : conversation.template_arguments.members())
            options.arguments.emplace_back(name, to_value(value));
    }
    if (takes_tools_ && !conversation.tools.empty()) {
        Json tools = Json::list();
        for (const Tool& tool : conversation.tools) tools.push(json_of(tool));
        options.tools = to_value(tools);
    }
    options.add_generation_prompt = conversation.generation_prompt;
    jinja::Text text = style_.chat->render(jinja::Value(std::move(list)), options);
    text.append(beginning, true);
    return text;
}

// A format that is built in, or none at all: then the texts follow each other, as one document.
static std::vector<core::ChatPiece> render_pieces(const Conversation& conversation, const core::ChatStyle& style) {
    std::vector<Message> messages = normalised(conversation, style, false, false);
    if (style.format == core::ChatFormat::complete) {
        std::string text;
        for (std::size_t i = 0; i < messages.size(); ++i) {
            text += messages[i].content;
            const bool open = conversation.continue_last && i + 1 == messages.size();
            if (!open && !text.ends_with('\n')) text += '\n';
        }
        return {{text, false}};
    }
    std::string system, beginning;
    if (!messages.empty() && messages.front().role == "system") {
        system = messages.front().content;
        messages.erase(messages.begin());
    }
    if (conversation.continue_last && !messages.empty() && messages.back().role == "assistant") {
        beginning = messages.back().content;
        messages.pop_back();
    }
    std::vector<core::ChatTurn> turns;
    for (const Message& message : messages) {
        const bool assistant = message.role == "assistant";
        turns.push_back({assistant ? core::ChatTurn::Role::assistant : core::ChatTurn::Role::user, message.content});
    }
    std::vector<core::ChatPiece> pieces = core::render_chat(style.format, system, turns);
    if (!beginning.empty()) pieces.push_back({beginning, false});
    return pieces;
}

std::string ServedModel::render(const Conversation& conversation) const {
    try {
        if (style_.chat) return render_template(conversation).bytes();
    } catch (const jinja::TemplateError& problem) {
        throw wrong_value(conversation.param,
                          std::string("the model's chat template refuses these messages: ") + problem.what());
    }
    std::string text;
    for (const core::ChatPiece& piece : render_pieces(conversation, style_)) text += piece.text;
    return text;
}

std::vector<std::int32_t> ServedModel::encode_conversation(const Conversation& conversation) const {
    if (!style_.chat) return core::encode_chat(tokenizer(), render_pieces(conversation, style_), true);
    try {
        return style_.chat->encode(render_template(conversation));
    } catch (const jinja::TemplateError& problem) {
        throw wrong_value(conversation.param,
                          std::string("the model's chat template refuses these messages: ") + problem.what());
    }
}

std::vector<std::int32_t> ServedModel::encode_parts(const std::vector<Prompt::Part>& parts,
                                                    const std::string& param) const {
    std::vector<std::int32_t> tokens;
    bool first = true;
    for (const Prompt::Part& part : parts) {
        if (part.is_text) {
            core::EncodeOptions options{.add_special = first, .parse_special = true};
            options.enough = kCountedContexts * static_cast<std::size_t>(context_length());
            tokenizer().encode_append(part.text, options, tokens);
            // A text that brings its own needs no second one.
            if (first && tokenizer().adds_bos() && tokens.size() > 1 && tokens[0] == tokens[1] &&
                tokens[0] == tokenizer().special().bos)
                tokens.erase(tokens.begin());
        } else {
            for (const std::int32_t token : part.tokens) {
                if (token < 0 || token >= tokenizer().vocab_size())
                    throw wrong_value(param, "'" + param + "' has the token " + std::to_string(token) +
                                                 ", but the model's are 0 to " +
                                                 std::to_string(tokenizer().vocab_size() - 1));
            }
            tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
        }
        first = false;
    }
    return tokens;
}

std::vector<std::int32_t> ServedModel::encode_hole(const Hole& hole, std::int64_t max_tokens) const {
    const core::SpecialTokens& special = tokenizer().special();
    const std::int64_t room = core::fill_room(context_length(), max_tokens);
    const bool files =
        core::has_fill_tokens(tokenizer()) && special.fim_repo >= 0 && special.fim_file >= 0 && !hole.others.empty();
    if (!files) {
        // Without tokens for files, their texts stand before the prefix.
        std::string before;
        for (const Hole::File& file : hole.others) before += file.text + (file.text.ends_with('\n') ? "" : "\n");
        return core::encode_fill(tokenizer(), before + hole.prefix, hole.suffix, room, style_.fim_order);
    }
    // What the texts around the hole leave is for the other files; the last ones are nearest to it.
    std::vector<std::int32_t> tail = core::encode_fill(tokenizer(), hole.prefix, hole.suffix, room, style_.fim_order);
    const bool bos = tokenizer().adds_bos();
    if (bos) tail.erase(tail.begin());
    const core::EncodeOptions plain{.add_special = false, .parse_special = false};
    std::vector<std::vector<std::int32_t>> kept;
    auto left = room - static_cast<std::int64_t>(tail.size()) - 8;
    for (auto file = hole.others.rbegin(); file != hole.others.rend() && left > 0; ++file) {
        std::vector<std::int32_t> tokens = {special.fim_file};
        tokenizer().encode_append(file->name + "\n" + file->text, plain, tokens);
        if (static_cast<std::int64_t>(tokens.size()) > left) break;
        left -= static_cast<std::int64_t>(tokens.size());
        kept.push_back(std::move(tokens));
    }
    std::vector<std::int32_t> tokens;
    if (bos) tokens.push_back(special.bos);
    tokens.push_back(special.fim_repo);
    tokenizer().encode_append("project\n", plain, tokens);
    for (auto file = kept.rbegin(); file != kept.rend(); ++file)
        tokens.insert(tokens.end(), file->begin(), file->end());
    tokens.push_back(special.fim_file);
    tokenizer().encode_append("file\n", plain, tokens);
    tokens.insert(tokens.end(), tail.begin(), tail.end());
    return tokens;
}

std::vector<std::int32_t> ServedModel::encode_any(const Prompt& prompt, std::int64_t max_tokens) const {
    if (prompt.conversation) return encode_conversation(*prompt.conversation);
    if (prompt.hole) return encode_hole(*prompt.hole, max_tokens);
    return encode_parts(prompt.parts, prompt.param);
}

std::vector<std::int32_t> ServedModel::count(const Prompt& prompt) const {
    try {
        return encode_any(prompt, 0);
    } catch (const ApiError&) {
        throw;
    } catch (const Error& problem) {
        throw wrong_value(prompt.param, std::string("the prompt cannot become tokens: ") + problem.what());
    }
}

std::vector<std::int32_t> ServedModel::encode(const Prompt& prompt, std::int64_t max_tokens) const {
    std::vector<std::int32_t> tokens;
    try {
        tokens = encode_any(prompt, max_tokens);
    } catch (const ApiError&) {
        throw;
    } catch (const Error& problem) {
        throw wrong_value(prompt.param, std::string("the prompt cannot become tokens: ") + problem.what());
    }
    if (tokens.empty()) throw wrong_value(prompt.param, "the prompt is empty, so there is nothing to answer");
    if (static_cast<std::int64_t>(tokens.size()) >= context_length()) {
        // encode_parts() may have stopped within a text.
        const bool stopped = tokens.size() >= kCountedContexts * static_cast<std::size_t>(context_length()) &&
                             std::any_of(prompt.parts.begin(), prompt.parts.end(),
                                         [](const Prompt::Part& part) { return part.is_text; });
        ApiError error(Problem::invalid,
                       "the prompt has " + std::string(stopped ? "at least " : "") + std::to_string(tokens.size()) +
                           " tokens, but the context holds " + std::to_string(context_length()) +
                           " with the answer; send a shorter one",
                       "context_length_exceeded", prompt.param);
        error.prompt_tokens = static_cast<std::int64_t>(tokens.size());
        error.context_length = context_length();
        throw error;
    }
    return tokens;
}

}  // namespace foresay::server
