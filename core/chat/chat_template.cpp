#include "core/chat/chat_template.h"

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "core/jinja/from_json.h"
#include "core/weights/mapped_file.h"

namespace foresay::core {

namespace {

// Texts that no template writes by itself.
constexpr std::string_view kUser = "qfaquser", kAnswer = "qfaqanswer", kNext = "qfaqnext", kSystem = "qfaqsystem";
constexpr std::string_view kReasoning = "qfaqreasoning";

constexpr const char* kProbeTool = R"([{"type": "function", "function": {"name": "qfaqtool", "description": "qfaq",
    "parameters": {"type": "object", "properties": {"qfaqcity": {"type": "string", "description": "qfaq"}},
                   "required": ["qfaqcity"]}}}])";

bool is_blank(std::string_view text) { return text.find_first_not_of(" \n\t\r") == text.npos; }

jinja::Value input(const std::string& text) { return jinja::Text(text, true); }

std::vector<TextRange> plain_ranges(const jinja::Text& text) {
    std::vector<TextRange> out;
    for (const jinja::Text::Range& range : text.input()) out.push_back({range.begin, range.end});
    return out;
}

const char* effort_name(Reasoning reasoning) {
    switch (reasoning) {
        case Reasoning::low:
            return "low";
        case Reasoning::medium:
            return "medium";
        case Reasoning::high:
            return "high";
        default:
            return nullptr;
    }
}

// Follows the tokens of a document through a rendered text, as far as they stand for it.
class Alignment {
public:
    Alignment(const Tokenizer& tokenizer, const MarkedText& text)
        : tokenizer_(tokenizer), text_(text), added_(tokenizer.find_added(text)) {}

    // Moves over the text of `token`. False: it is not there.
    bool take(std::int32_t token, bool generated) {
        if (next_ < added_.size() && added_[next_].begin == at_ && added_[next_].id == token) {
            at_ = added_[next_++].end;
            after_added_ = true;
            return true;
        }
        // What the model wrote itself may hold tokens that its text, given back to it, does not become.
        const bool markup =
            tokenizer_.is_control(token) || std::binary_search(text_.markup.begin(), text_.markup.end(), token);
        if (markup && !generated) return false;
        const std::string_view bytes = tokenizer_.bytes(token);
        if (take(bytes)) return true;
        // Some tokenizers put a space before each stretch of text.
        return after_added_ && bytes.size() > 1 && bytes.front() == ' ' && take(bytes.substr(1));
    }
    std::size_t at() const { return at_; }
    bool after_added() const { return after_added_; }

private:
    bool take(std::string_view bytes) {
        if (bytes.empty()) return false;
        const std::size_t end = next_ < added_.size() ? added_[next_].begin : text_.bytes.size();
        if (at_ + bytes.size() > end || text_.bytes.substr(at_, bytes.size()) != bytes) return false;
        at_ += bytes.size();
        after_added_ = false;
        return true;
    }

    const Tokenizer& tokenizer_;
    const MarkedText& text_;
    std::vector<FoundToken> added_;
    std::size_t next_ = 0;  // of added_
    std::size_t at_ = 0;    // in the text
    bool after_added_ = true;
};

}  // namespace

ChatTemplate::ChatTemplate(std::string source, const Tokenizer& tokenizer)
    : source_(std::move(source)),
      tokenizer_(tokenizer),
      template_(source_),
      markup_(detect_answer_markup(source_, tokenizer)),
      markup_tokens_(find_markup_tokens()) {
    find_abilities();
    find_ends();
}

// User-defined tokens are recognised in every text, as line breaks and other runs of characters are. Those that the
// template writes are its markup, like control tokens.
std::vector<std::int32_t> ChatTemplate::find_markup_tokens() const {
    std::vector<std::int32_t> out;
    for (std::int32_t id = 0; id < tokenizer_.vocab_size(); ++id) {
        if (tokenizer_.type(id) != TokenType::user_defined) continue;
        const std::string_view text = tokenizer_.text(id);
        if (text.size() > 1 && !is_blank(text) && source_.find(text) != source_.npos) out.push_back(id);
    }
    return out;
}

jinja::Value ChatTemplate::messages_value(std::span<const ChatMessage> messages) const {
    const bool reads_fields =
        template_.mentions("reasoning_content") || template_.mentions("thinking") || template_.mentions("reasoning");
    jinja::List list;
    for (const ChatMessage& message : messages) {
        jinja::Dict one;
        one.set("role", jinja::Value(message.role));
        // A template without a place for the reasoning gets the answer as the model wrote it.
        const bool inline_reasoning = !message.reasoning.empty() && !reads_fields;
        const jinja::Value content = input(inline_reasoning ? message.raw : message.content);
        if (typed_content_) {
            jinja::Dict part;
            part.set("type", jinja::Value("text"));
            part.set("text", content);
            one.set("content", jinja::List{.items = {jinja::Value(std::move(part))}});
        } else {
            one.set("content", content);
        }
        if (!message.reasoning.empty()) {
            for (const char* field : {"reasoning_content", "reasoning", "thinking"})
                if (template_.mentions(field)) one.set(field, input(message.reasoning));
        }
        list.items.emplace_back(std::move(one));
    }
    return list;
}

jinja::Text ChatTemplate::render(const jinja::Value& messages, const ChatOptions& options) const {
    jinja::Dict variables;
    variables.set("messages", messages);
    variables.set("tools", options.tools);
    variables.set("documents", options.documents);
    variables.set("add_generation_prompt", jinja::Value(options.add_generation_prompt));
    const SpecialTokens& special = tokenizer_.special();
    const auto token = [&](const char* name, std::int32_t id) {
        if (id >= 0) variables.set(name, jinja::Value(std::string(tokenizer_.text(id))));
    };
    token("bos_token", special.bos);
    token("eos_token", special.eos);
    token("unk_token", special.unknown);
    token("pad_token", special.pad);
    if (options.reasoning != Reasoning::automatic) {
        const bool on = options.reasoning != Reasoning::off;
        variables.set("enable_thinking", jinja::Value(on));
        variables.set("thinking", jinja::Value(on));
        if (!on) variables.set("thinking_budget", jinja::Value(std::int64_t{0}));
        if (const char* effort = effort_name(options.reasoning))
            variables.set("reasoning_effort", jinja::Value(effort));
    }
    for (const auto& [name, value] : options.arguments) variables.set(jinja::Value(name), value);
    return template_.render(variables, options.date);
}

jinja::Text ChatTemplate::render(std::span<const ChatMessage> messages, const ChatOptions& options) const {
    return render(messages_value(messages), options);
}

jinja::Text ChatTemplate::probe(std::span<const ChatMessage> messages, bool generation_prompt) const {
    ChatOptions options;
    options.add_generation_prompt = generation_prompt;
    options.date.tm_year = 100;
    options.date.tm_mday = 1;
    return render(messages, options);
}

void ChatTemplate::find_abilities() {
    const auto shows = [](const jinja::Text& text, std::string_view part) {
        return text.bytes().find(part) != std::string::npos;
    };
    const ChatMessage user{"user", std::string(kUser), {}, {}};
    const auto renders = [&](bool typed) {
        typed_content_ = typed;
        return shows(probe({&user, 1}), kUser);
    };
    // The first error is the one to report: the content is usually a text.
    try {
        if (!renders(false) && !renders(true)) throw jinja::TemplateError("the template leaves out the user's message");
    } catch (const jinja::TemplateError&) {
        bool typed = false;
        try {
            typed = !typed_content_ && renders(true);
        } catch (const jinja::TemplateError&) {
        }
        if (!typed) throw;
    }

    const ChatMessage with_system[] = {{"system", std::string(kSystem), {}, {}}, user};
    try {
        if (!shows(probe(with_system), kSystem)) why_no_system_ = "it leaves a system prompt out";
    } catch (const jinja::TemplateError& problem) {
        why_no_system_ = problem.what();
    }

    const auto text_with = [&](const ChatOptions& options) -> std::string {
        try {
            return render({&user, 1}, options).bytes();
        } catch (const jinja::TemplateError&) {
            return {};
        }
    };
    const auto reasoning = [&](Reasoning how) {
        ChatOptions options;
        options.reasoning = how;
        return text_with(options);
    };
    const std::string off = reasoning(Reasoning::off), on = reasoning(Reasoning::on);
    switches_ = off != on;
    const std::string low = reasoning(Reasoning::low), high = reasoning(Reasoning::high);
    takes_effort_ = low != high;
    ChatOptions tools;
    tools.tools = jinja::from_json(kProbeTool);
    takes_tools_ = text_with(tools).find("qfaqtool") != std::string::npos;
}

// The first token after an answer ends it. Where nothing follows the last answer, what follows an earlier one does.
void ChatTemplate::find_ends() {
    const ChatMessage messages[] = {{"user", std::string(kUser), {}, {}},
                                    {"assistant", std::string(kAnswer), {}, {}},
                                    {"user", std::string(kNext), {}, {}}};
    const auto end_in = [&](std::size_t count, bool generation_prompt) -> std::int32_t {
        jinja::Text text;
        try {
            text = probe({messages, count}, generation_prompt);
        } catch (const jinja::TemplateError&) {
            return -1;
        }
        const std::size_t place = text.bytes().rfind(kAnswer);
        if (place == std::string::npos) return -1;
        const std::size_t after = place + kAnswer.size();
        const std::vector<TextRange> plain = plain_ranges(text);
        for (const FoundToken& token : tokenizer_.find_added({text.bytes(), plain, markup_tokens_})) {
            if (token.end <= after || is_blank(tokenizer_.text(token.id))) continue;
            const std::size_t begin = std::max(token.begin, after);
            const bool next_to_it = is_blank(std::string_view(text.bytes()).substr(after, begin - after));
            return next_to_it ? token.id : -1;
        }
        return -1;
    };
    std::int32_t end = end_in(2, false);
    if (end < 0) end = end_in(3, true);
    if (end >= 0) ends_.push_back(end);
}

std::string ChatTemplate::why_not(Reasoning reasoning) const {
    const std::string abilities = switches_ && takes_effort_ ? "off, on, low, medium and high"
                                  : switches_                ? "off and on"
                                  : takes_effort_            ? "low, medium and high"
                                                             : "";
    const bool able =
        reasoning == Reasoning::automatic || (effort_name(reasoning) != nullptr ? takes_effort_ : switches_);
    if (able) return {};
    return "the model's chat template cannot do that; " +
           (abilities.empty() ? std::string("it has no switch for reasoning") : "it knows " + abilities);
}

std::vector<std::int32_t> ChatTemplate::encode(const jinja::Text& text) const {
    const std::vector<TextRange> plain = plain_ranges(text);
    return tokenizer_.encode_marked({text.bytes(), plain, markup_tokens_});
}

ChatTemplate::Continuation ChatTemplate::continue_document(const jinja::Text& text,
                                                           std::span<const std::int32_t> document,
                                                           std::span<const std::uint8_t> generated) const {
    const std::vector<TextRange> plain = plain_ranges(text);
    const MarkedText marked{text.bytes(), plain, markup_tokens_};
    Alignment alignment(tokenizer_, marked);
    // Where text between two special tokens differs, all of it is tokenised again, as tokens depend on what follows.
    std::size_t kept = 0, from = 0, token = 0;
    for (; token < document.size() && alignment.take(document[token], generated[token] != 0); ++token) {
        if (!alignment.after_added()) continue;
        kept = token + 1;
        from = alignment.at();
    }
    if (token == document.size()) {
        kept = token;
        from = alignment.at();
    }
    MarkedText rest{marked.bytes.substr(from), {}, markup_tokens_};
    std::vector<TextRange> rest_plain;
    for (const TextRange& range : plain) {
        if (range.end > from) rest_plain.push_back({std::max(range.begin, from) - from, range.end - from});
    }
    rest.plain = rest_plain;
    Continuation out{kept, tokenizer_.encode_marked(rest, from == 0)};
    std::size_t same = 0;
    while (out.kept < document.size() && same < out.tokens.size() && document[out.kept] == out.tokens[same]) {
        ++out.kept;
        ++same;
    }
    out.tokens.erase(out.tokens.begin(), out.tokens.begin() + static_cast<std::ptrdiff_t>(same));
    return out;
}

OpenedTemplate open_chat_template(const Tokenizer& tokenizer, const std::filesystem::path& file, bool tools) {
    OpenedTemplate out;
    if (!file.empty()) {
        const MappedFile mapped(file);
        const std::string_view source(reinterpret_cast<const char*>(mapped.bytes().data()), mapped.bytes().size());
        try {
            out.chat = std::make_shared<const ChatTemplate>(std::string(source), tokenizer);
        } catch (const jinja::TemplateError& problem) {
            throw Error(file.string() + ": " + problem.what());
        }
        return out;
    }
    std::string_view source = tokenizer.chat_template();
    for (const NamedTemplate& named : tokenizer.chat_templates()) {
        if (tools && named.name == "tool_use") source = named.source;
        if (source.empty() && tokenizer.chat_templates().size() == 1) source = named.source;
    }
    if (source.empty()) return out;
    try {
        out.chat = std::make_shared<const ChatTemplate>(std::string(source), tokenizer);
    } catch (const jinja::TemplateError& problem) {
        out.problem = problem.what();
    }
    return out;
}

std::tm chat_date(const std::string& text) {
    std::tm date{};
    if (text == "today") {
        const std::time_t now = std::time(nullptr);
        localtime_r(&now, &date);
        date.tm_hour = date.tm_min = date.tm_sec = 0;
        return date;
    }
    char rest = 0;
    const bool read = text.size() == 10 && std::sscanf(text.c_str(), "%4d-%2d-%2d%c", &date.tm_year, &date.tm_mon,
                                                       &date.tm_mday, &rest) == 3;
    date.tm_year -= 1900;
    date.tm_mon -= 1;
    std::tm normal = date;
    const std::time_t seconds = timegm(&normal);
    const bool exists = read && seconds != -1 && normal.tm_mday == date.tm_mday && normal.tm_mon == date.tm_mon;
    if (!exists) throw Error("must be today or a date as 2026-01-31, not '" + text + "'");
    return normal;
}

}  // namespace foresay::core
