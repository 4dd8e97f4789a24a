#include "grammar/grammar.h"

#include <algorithm>

#include "base/error.h"
#include "grammar/front_ends.h"
#include "grammar/grammar_data.h"

namespace foresay::grammar {
namespace {

constexpr std::size_t kMostForced = 256;
constexpr std::size_t kMostTrigger = 256;

Symbol read(Machine& machine, const Source& source, const Options& options) {
    if (source.text.size() > kMostSourceBytes)
        throw Error("a grammar may have 2 MiB; this one has " + std::to_string(source.text.size()) + " bytes");
    switch (source.language) {
        case Language::regex:
            return read_regex(machine, source.text);
        case Language::choices:
            return read_choices(machine, source.text);
        case Language::gbnf:
            return read_gbnf(machine, source.text);
        case Language::json:
            return read_json_schema(machine, "true", options.whitespace);
        case Language::json_schema:
            return read_json_schema(machine, source.text, options.whitespace);
        case Language::structural_tag:
            return read_structural_tag(machine, source.text, options.whitespace);
    }
    bug("a language has no reader");
}

// Puts free text around `root`.
Symbol surround(Machine& machine, Symbol root, const Options& options) {
    if (options.trigger.empty() && options.after == After::end) return root;
    if (options.trigger.size() > kMostTrigger) throw Error("the trigger of a grammar may have 256 bytes at most");
    Expressions& e = machine.expressions();
    Rules& rules = machine.rules();
    const std::uint32_t rule = rules.add_rule();
    std::uint32_t state = rules.first_state(rule);
    const auto go = [&](Symbol symbol) {
        const std::uint32_t next = rules.add_state(rule);
        rules.add_edge(state, symbol, next);
        return next;
    };
    const auto free_text = [&](Expression expression) { return Symbol::lexeme(machine.lexer().add(expression, true)); };
    ByteSet every;
    const Expression any = e.bytes(every.set());
    if (!options.trigger.empty()) {
        const Expression trigger = e.literal(options.trigger);
        const Expression without = e.complement(e.concat({Expressions::kAll, trigger, Expressions::kAll}));
        const Expression once = e.complement(e.concat({Expressions::kAll, trigger, any, Expressions::kAll}));
        rules.set_final(state);
        rules.set_final(go(free_text(without)));
        state = go(free_text(e.intersection({e.concat(Expressions::kAll, trigger), once})));
    }
    state = go(root);
    rules.set_final(state);
    if (options.after == After::free) rules.set_final(go(free_text(e.repeat(any, 1, Expressions::kUnlimited))));
    return Symbol::rule(rule);
}

}  // namespace

// What is held of the machine after a text. `rows` keeps the rows of `threads`.
struct State::Place {
    std::vector<Machine::Thread> threads;
    std::vector<RowPtr> rows;
    bool may_end = false;
    bool ended = false;  // a token that ends the text was accepted
    std::string failure;
};

Grammar::Grammar(std::unique_ptr<GrammarData> data, std::uint64_t work) : data_(std::move(data)), work_(work) {}
Grammar::~Grammar() = default;
const Vocabulary& Grammar::vocabulary() const { return data_->vocabulary(); }

std::shared_ptr<const Grammar> Grammar::compile(std::shared_ptr<const Vocabulary> vocabulary, const Source& source,
                                                const Options& options) {
    auto data = std::make_unique<GrammarData>(std::move(vocabulary), options.most_work);
    Machine& machine = data->machine();
    machine.expressions().limit_work(
        options.most_work,
        "this grammar takes too long to compile; use fewer alternatives, or fewer or smaller repetitions");
    machine.expressions().spend(source.text.size() / 2);
    machine.start(surround(machine, read(machine, source, options), options));
    const std::uint64_t work = machine.expressions().work();
    auto grammar = std::make_shared<const Grammar>(std::move(data), work);
    // Made here, where it delays no other text, and where a refusal reaches the one who brought the grammar.
    begin(grammar).make_first_mask();
    return grammar;
}

State Grammar::begin(std::shared_ptr<const Grammar> grammar) { return State(std::move(grammar)); }

State::State(std::shared_ptr<const Grammar> grammar) : grammar_(std::move(grammar)) {
    GrammarData& data = *grammar_->data_;
    const GrammarData::Turn turn(data);
    auto place = std::make_shared<Place>();
    Row* first = data.machine().first_row();
    place->may_end = first->may_end;
    if (first->lexer != Lexer::kDead) place->threads.push_back({first, first->lexer});
    place->rows.emplace_back(first);
    place_ = std::move(place);
}

void State::make_first_mask() const {
    if (place_->threads.empty()) return;
    const GrammarData::Turn turn(*grammar_->data_);
    grammar_->data_->mask(place_->threads);
}

// `place` is what comes after the bytes; not set where they may not come.
bool State::advance(std::string_view bytes, std::shared_ptr<const Place>& place) const {
    auto after = std::make_shared<Place>();
    GrammarData& data = *grammar_->data_;
    try {
        const GrammarData::Turn turn(data);
        after->threads = place_->threads;
        after->may_end = place_->may_end;
        if (!data.follow(after->threads, bytes, after->may_end)) return false;
        for (const Machine::Thread& thread : after->threads) after->rows.emplace_back(thread.row);
        data.forget();
    } catch (const Error& error) {
        after->threads.clear();
        after->rows.clear();
        after->may_end = false;
        after->failure = error.what();
    }
    place = std::move(after);
    return true;
}

bool State::accept(std::string_view bytes) {
    if (place_->ended || !place_->failure.empty()) return false;
    return advance(bytes, place_) && place_->failure.empty();
}

bool State::accept(std::int32_t id) {
    const Vocabulary& vocabulary = grammar_->vocabulary();
    if (id < 0 || id >= vocabulary.size() || place_->ended || !place_->failure.empty()) return false;
    const TokenText& token = vocabulary.token(id);
    switch (token.kind) {
        case TokenText::Kind::unused:
            return false;
        case TokenText::Kind::end: {
            if (!place_->may_end) return false;
            auto place = std::make_shared<Place>();
            place->may_end = true;
            place->ended = true;
            place_ = std::move(place);
            return true;
        }
        case TokenText::Kind::special: {
            GrammarData& data = *grammar_->data_;
            const GrammarData::Turn turn(data);
            if (!data.free(place_->threads)) return false;
            break;
        }
        default:
            if (token.bytes.empty()) return false;
    }
    return accept(token.bytes);
}

void State::mask(std::span<std::uint32_t> words) const {
    const Vocabulary& vocabulary = grammar_->vocabulary();
    check(words.size() >= vocabulary.words(), "a mask is shorter than the vocabulary");
    std::fill(words.begin(), words.end(), 0);
    const auto set = [&](std::int32_t id) { words[static_cast<std::size_t>(id) / 32] |= 1u << (id % 32); };
    if (place_->may_end) {
        for (const std::int32_t id : vocabulary.ends()) set(id);
    }
    if (place_->ended || place_->threads.empty()) return;
    GrammarData& data = *grammar_->data_;
    try {
        const GrammarData::Turn turn(data);
        const std::vector<std::uint32_t>& mask = data.mask(place_->threads);
        for (std::size_t i = 0; i < mask.size(); ++i) words[i] |= mask[i];
        if (!data.free(place_->threads)) return;
        for (const std::int32_t id : vocabulary.special()) {
            if (data.may_come(place_->threads, vocabulary.token(id))) set(id);
        }
    } catch (const Error& error) {
        std::fill(words.begin(), words.end(), 0);
        fail(error.what());
    }
}

void State::fail(const std::string& why) const {
    auto place = std::make_shared<Place>();
    place->failure = why;
    place_ = std::move(place);
}

void State::test(std::span<const std::int32_t> tokens, std::span<std::uint8_t> allowed) const {
    check(allowed.size() >= tokens.size(), "a test has fewer answers than tokens");
    const Vocabulary& vocabulary = grammar_->vocabulary();
    std::fill(allowed.begin(), allowed.end(), 0);
    if (place_->ended || !place_->failure.empty()) return;
    GrammarData& data = *grammar_->data_;
    try {
        const GrammarData::Turn turn(data);
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            if (tokens[i] < 0 || tokens[i] >= vocabulary.size()) continue;
            const TokenText& token = vocabulary.token(tokens[i]);
            const bool may_come =
                token.kind == TokenText::Kind::end ? place_->may_end : data.may_come(place_->threads, token);
            allowed[i] = may_come ? 1 : 0;
        }
    } catch (const Error& error) {
        std::fill(allowed.begin(), allowed.end(), 0);
        fail(error.what());
    }
}

std::string State::forced() const {
    std::string forced;
    if (place_->ended || place_->may_end || !place_->failure.empty()) return forced;
    GrammarData& data = *grammar_->data_;
    try {
        const GrammarData::Turn turn(data);
        Machine& machine = data.machine();
        std::vector<Machine::Thread> threads = place_->threads;
        std::vector<Machine::Thread> after;
        for (bool may_end = false; !may_end && forced.size() < kMostForced;) {
            int only = -1;
            for (int b = 0; b < 256 && only != 256; ++b) {
                const bool may_come = std::any_of(threads.begin(), threads.end(), [&](const Machine::Thread& t) {
                    return machine.lexer().next(t.lexer, static_cast<std::uint8_t>(b)) != Lexer::kDead;
                });
                if (may_come) only = only < 0 ? b : 256;
            }
            if (only < 0 || only == 256) break;
            after.clear();
            may_end = machine.step(threads.data(), threads.size(), static_cast<std::uint8_t>(only), after);
            threads.swap(after);
            forced += static_cast<char>(only);
        }
    } catch (const Error&) {
        return {};
    }
    return forced;
}

bool State::may_end() const { return place_->may_end; }
bool State::finished() const { return place_->may_end && place_->threads.empty(); }
std::string_view State::failure() const { return place_->failure; }

}  // namespace foresay::grammar
