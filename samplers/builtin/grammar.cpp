// grammar: drops every token with which the answer could not go on under a grammar (grammar/grammar.h). A mask of the
// whole vocabulary, so it runs where the logits are.

#include "grammar/grammar.h"

#include <map>
#include <mutex>

#include "base/error.h"
#include "samplers/builtin/builtin.h"
#include "samplers/parameter_file.h"

namespace foresay::samplers {
namespace {

using grammar::Grammar;

// Of one vocabulary: its tries, and the grammars in use, so that chains that are made again compile nothing again.
// Chains may be made on several threads.
struct Kept {
    std::shared_ptr<const grammar::Vocabulary> tokens;
    std::mutex mutex;  // of grammars
    std::map<std::string, std::weak_ptr<const Grammar>> grammars;
};

Kept& kept_for(const Vocabulary& vocabulary) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    if (!vocabulary.grammars()) {
        auto kept = std::make_shared<Kept>();
        kept->tokens = std::make_shared<const grammar::Vocabulary>(vocabulary.size(), [&](std::int32_t id) {
            using Kind = grammar::TokenText::Kind;
            if (vocabulary.ends_text(id)) return grammar::TokenText{Kind::end, {}};
            const std::string_view control = vocabulary.control_text(id);
            if (!control.empty()) return grammar::TokenText{Kind::special, std::string(control)};
            const std::string_view text = vocabulary.text(id);
            return grammar::TokenText{text.empty() ? Kind::unused : Kind::text, std::string(text)};
        });
        vocabulary.grammars() = kept;
    }
    return *static_cast<Kept*>(vocabulary.grammars().get());
}

class GrammarState : public StageState {
public:
    explicit GrammarState(std::shared_ptr<const Grammar> compiled)
        : grammar_(std::move(compiled)), state_(Grammar::begin(grammar_)) {}

    std::string_view begin(std::span<const std::int32_t> history, std::size_t answer) override {
        state_ = Grammar::begin(grammar_);
        wrong_.clear();
        for (const std::int32_t token : history.subspan(answer)) push(token);
        return wrong_;
    }
    std::string_view copy(const StageState& other) override {
        const auto& from = static_cast<const GrammarState&>(other);
        state_ = from.state_;
        wrong_ = from.wrong_;
        return {};
    }
    std::string_view accept(const AcceptedToken& token) override {
        push(token.id);
        return wrong_;
    }
    std::string_view mask(std::span<std::uint32_t> bits) const {
        if (!wrong_.empty()) return wrong_;
        state_.mask(bits);
        return state_.failure();
    }

    std::string forced() const { return wrong_.empty() ? state_.forced() : std::string(); }

private:
    void push(std::int32_t token) {
        if (!wrong_.empty() || state_.accept(token)) return;
        wrong_ = state_.failure().empty()
                     ? "the answer has token " + std::to_string(token) + ", which the grammar does not allow there"
                     : std::string(state_.failure());
    }

    std::shared_ptr<const Grammar> grammar_;
    grammar::State state_;
    std::string wrong_;  // in a draft: a guess that will not be accepted
};

class GrammarStage : public Stage {
public:
    explicit GrammarStage(std::shared_ptr<const Grammar> compiled) : grammar_(std::move(compiled)) {}
    StageKind kind() const override { return StageKind::mask; }
    bool idle() const override { return grammar_ == nullptr; }
    bool whole_vocabulary() const override { return true; }
    std::unique_ptr<StageState> make_state() const override {
        return grammar_ ? std::make_unique<GrammarState>(grammar_) : nullptr;
    }
    std::string_view mask(const StageState* state, const StageContext&, std::span<std::uint32_t> bits) const override {
        return static_cast<const GrammarState*>(state)->mask(bits);
    }
    bool forces() const override { return grammar_ != nullptr; }
    std::string_view forced(const StageState* state, const StageContext&, std::string_view& bytes) const override {
        static thread_local std::string text;
        text = static_cast<const GrammarState*>(state)->forced();
        bytes = text;
        return {};
    }

private:
    std::shared_ptr<const Grammar> grammar_;
};

// Its place among the parameters.
enum Parameter : std::uint8_t { kLanguage, kText, kFile, kTrigger, kAfter, kWhitespace, kMostWork };

// The grammar, which is `text` or in a file.
std::string read_source(const std::string& text, const std::string& file) {
    if (file.empty()) return text;
    try {
        return read_parameter_file(file, "grammar.file");
    } catch (const Error& problem) {
        throw ParameterError("file", problem.what());
    }
}

std::unique_ptr<Stage> make_grammar(std::span<const ParameterValue> parameters, const Vocabulary& vocabulary) {
    const auto text = [&](Parameter i) -> const std::string& { return std::get<std::string>(parameters[i]); };
    static const std::map<std::string, grammar::Language> kLanguages = {
        {"json", grammar::Language::json},
        {"json_schema", grammar::Language::json_schema},
        {"gbnf", grammar::Language::gbnf},
        {"regex", grammar::Language::regex},
        {"structural_tag", grammar::Language::structural_tag},
        {"choices", grammar::Language::choices}};
    const auto language = kLanguages.find(text(kLanguage));
    if (language == kLanguages.end()) return std::make_unique<GrammarStage>(nullptr);
    grammar::Options options;
    options.trigger = text(kTrigger);
    options.after = text(kAfter) == "free" ? grammar::After::free : grammar::After::end;
    options.most_work = 1'000'000 * static_cast<std::uint64_t>(std::get<std::int64_t>(parameters[kMostWork]));
    options.whitespace = text(kWhitespace) == "compact" ? grammar::Whitespace::compact : grammar::Whitespace::free;
    Kept& kept = kept_for(vocabulary);
    if (kept.tokens->ends().empty() && options.after == grammar::After::end)
        throw Error(
            "grammar: this model's tokenizer has no token that ends a text, so no answer could end; set after = "
            "\"free\"");
    const std::string& file = text(kFile);
    const char* const stated = file.empty() ? "text" : "file";
    if (!file.empty() && !text(kText).empty())
        throw ParameterError(
            "file", "grammar: 'text' and 'file' both state a grammar; leave one of them out, or set it to \"\"");
    if (language->second == grammar::Language::json && !(file + text(kText)).empty())
        throw ParameterError(stated, "grammar: the language \"json\" is any JSON and takes no '" + std::string(stated) +
                                         "'; for a schema write \"json_schema\"");
    const std::string source = read_source(text(kText), file);
    std::string key;
    for (const std::string* part : {&text(kLanguage), &source, &text(kTrigger), &text(kAfter), &text(kWhitespace)})
        key += std::to_string(part->size()) + ":" + *part;
    std::shared_ptr<const Grammar> compiled;
    {
        const std::lock_guard lock(kept.mutex);
        if (const auto known = kept.grammars.find(key); known != kept.grammars.end()) compiled = known->second.lock();
    }
    if (!compiled) {
        try {
            compiled = Grammar::compile(kept.tokens, {language->second, source}, options);
        } catch (const Error& error) {
            throw ParameterError(stated, "grammar: " + (file.empty() ? "" : file + ": ") + error.what());
        }
        const std::lock_guard lock(kept.mutex);
        kept.grammars[key] = compiled;
        std::erase_if(kept.grammars, [](const auto& entry) { return entry.second.expired(); });
    }
    return std::make_unique<GrammarStage>(std::move(compiled));
}

}  // namespace

std::shared_ptr<const StageFactory> grammar_factory() {
    StageDescription description{
        "grammar",
        "Keeps the answer within a grammar: JSON, a JSON Schema, GBNF, a regular expression or a list of choices.",
        {.memory = StageMemory::history, .masks_only = true, .whole_vocabulary = true},
        {{"language",
          ParameterType::choice,
          std::string("none"),
          {},
          {},
          {"none", "json", "json_schema", "gbnf", "regex", "choices", "structural_tag"},
          "What `text` or the file is; none switches the stage off."},
         {"text",
          ParameterType::text,
          std::string(),
          {},
          {},
          {},
          "The grammar; for choices one on each line, for json empty.",
          "language"},
         {"file",
          ParameterType::file,
          std::string(),
          {},
          {},
          {},
          "A file that holds the grammar, in place of `text`.",
          "language"},
         {"trigger",
          ParameterType::text,
          std::string(),
          {},
          {},
          {},
          "Everything is allowed until this text has been written; empty: the grammar begins with the answer."},
         {"after",
          ParameterType::choice,
          std::string("end"),
          {},
          {},
          {"end", "free"},
          "What may come after a text of the grammar: only the end, or anything."},
         {"whitespace",
          ParameterType::choice,
          std::string("compact"),
          {},
          {},
          {"free", "compact"},
          "Between the tokens of JSON: as JSON allows it, or none. A small model may write free space without end."},
         {"most_work",
          ParameterType::integer,
          std::int64_t{2},
          1.0,
          1e6,
          {},
          "Millions of steps that compiling the grammar may take, and each mask after it; a core makes about 20 in a "
          "second. Raise it for a large grammar of your own."}}};
    return make_factory(std::move(description), make_grammar);
}

}  // namespace foresay::samplers
