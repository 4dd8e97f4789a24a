// core/chat/chat_template.h: a model's chat template: conversations as the tokens that the model was trained on.
//
// A conversation is rendered by the template (core/jinja), which remembers what came from people, files and tools. Of
// the rendered text, only what the template wrote becomes special tokens. The ids of everything else are those that the
// reference library gives (apply_chat_template): a BOS is there only if the template writes one.
//
// Variables: those of transformers: messages, tools, documents, add_generation_prompt, bos_token and its like, and what
//           ChatOptions adds. A template may call raise_exception and strftime_now.
// Life:     holds a copy of the tokenizer.
// Threads:  immutable; any thread may render.
// Cost:     linear in the conversation; making one renders a few short conversations.
// Errors:   jinja::TemplateError, with line and column of the template.
#pragma once

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/chat/answer_markup.h"
#include "core/jinja/template.h"
#include "core/text/tokenizer.h"

namespace foresay::core {

struct ChatMessage {
    std::string role;       // "system", "user", "assistant"
    std::string content;    // of an answer: without its reasoning
    std::string reasoning;  // of an answer; empty: none
    std::string raw;        // of an answer with reasoning: both, as the model wrote them
};

// Whether the model is to reason before it answers, and how much. Models know some of these.
enum class Reasoning : std::uint8_t { automatic, off, on, low, medium, high };

struct ChatOptions {
    Reasoning reasoning = Reasoning::automatic;
    std::vector<std::pair<std::string, jinja::Value>> arguments;  // further variables, by name
    jinja::Value tools, documents;                                // lists, as transformers takes them; none: none
    std::tm date{};                                               // what strftime_now() tells
    bool add_generation_prompt = true;                            // the text ends where the answer begins
};

class ChatTemplate {
public:
    // Throws also for a template that cannot render a message and its answer.
    ChatTemplate(std::string source, const Tokenizer& tokenizer);

    // `messages`: a list of dicts; texts that came from outside must be marked as input.
    jinja::Text render(const jinja::Value& messages, const ChatOptions& options) const;
    jinja::Text render(std::span<const ChatMessage> messages, const ChatOptions& options) const;
    // The messages as a template's variable, in the fields that this one reads.
    jinja::Value messages_value(std::span<const ChatMessage> messages) const;

    // The tokens of a rendered conversation.
    std::vector<std::int32_t> encode(const jinja::Text& text) const;

    // The tokens of a rendered conversation that continues `document`, which is in the KV cache. As many of its tokens
    // stay as stand for the same text, even where the model chose others than the tokenizer would; `tokens` follow.
    // Without a difference in the middle, all of them stay. `generated`: per token of the document, 1 if the model
    // sampled it.
    struct Continuation {
        std::size_t kept = 0;
        std::vector<std::int32_t> tokens;
    };
    Continuation continue_document(const jinja::Text& text, std::span<const std::int32_t> document,
                                   std::span<const std::uint8_t> generated) const;

    // ---- what the template can do, found by rendering
    // Why a system prompt has no place in it; empty: it has one.
    const std::string& why_no_system() const { return why_no_system_; }
    // Why it cannot reason as asked, in a sentence; empty: it can.
    std::string why_not(Reasoning reasoning) const;
    bool takes_tools() const { return takes_tools_; }
    bool switches_reasoning() const { return switches_; }
    bool takes_effort() const { return takes_effort_; }
    bool writes_date() const { return template_.mentions("strftime_now"); }
    // The tokens that end an answer, by what follows one in a conversation.
    std::span<const std::int32_t> ends() const { return ends_; }
    const AnswerMarkup& markup() const { return markup_; }
    const std::string& source() const { return source_; }

private:
    jinja::Text probe(std::span<const ChatMessage> messages, bool generation_prompt = true) const;
    void find_abilities();
    void find_ends();
    std::vector<std::int32_t> find_markup_tokens() const;

    std::string source_;
    Tokenizer tokenizer_;
    jinja::Template template_;
    AnswerMarkup markup_;
    std::vector<std::int32_t> markup_tokens_;  // user-defined tokens that the template writes; increasing
    std::vector<std::int32_t> ends_;
    std::string why_no_system_;
    bool typed_content_ = false;  // the content of a message must be a list of parts
    bool takes_tools_ = false, switches_ = false, takes_effort_ = false;
};

// The template of a model, or why it has none that can be used.
struct OpenedTemplate {
    std::shared_ptr<const ChatTemplate> chat;  // null: none
    std::string problem;                       // why the model's own cannot be used; empty: it can, or there is none
};

// The template in `file` or, if that is empty, the model's own: "tool_use", if it has one and `tools`, else "default".
// Throws Error naming the file for one that cannot be read or used.
OpenedTemplate open_chat_template(const Tokenizer& tokenizer, const std::filesystem::path& file = {},
                                  bool tools = false);

// The date "today", or that of "YYYY-MM-DD", at midnight. Throws Error otherwise.
std::tm chat_date(const std::string& text);

}  // namespace foresay::core
