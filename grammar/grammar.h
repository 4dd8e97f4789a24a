// grammar/grammar.h: which tokens a text may go on with, under a grammar.
//
//   auto vocabulary = std::make_shared<const Vocabulary>(size, [&](std::int32_t id) { return TokenText{...}; });
//   auto grammar = Grammar::compile(vocabulary, {Language::json_schema, text}, {});   // throws Error: what is wrong
//   State state = Grammar::begin(grammar);      // where the answer begins: the prompt is never shown to it
//   state.mask(words);                          // a bit for each token that may come next
//   state.accept(token);                        // false: this token may not come; nothing has changed
//   State draft = state;                        // copies two pointers; both go on by themselves
//
// A token is allowed exactly when the text with its bytes can be continued to a text that the grammar describes. Tokens
// that end the text are allowed exactly where it may end. There is no longest match and no other convention about where
// a word ends, so a mask is a function of the grammar and the text alone.
//
// Threads:  Vocabulary and Grammar: any. A State: one caller at a time. States of one grammar share what is computed
//           lazily under a lock, so they may be used at once and do not run in parallel.
// Cost:     128,256 tokens, one core: a mask takes about 50 us the first time in a state and 2 us from then on, a slow
//           one 100 ms. accept() takes less than a microsecond per byte. The first mask is made by compile().
// Memory:   bounded for each grammar: about 64 MB of rows and 32 MB of masks, which are dropped and made again, and at
//           most 200 MB of automaton, at whose end states fail. Usual grammars take a few MB in all.
// Errors:   compile() throws Error: one sentence. States do not throw: failure() says why a state is unusable (a
//           grammar that is too ambiguous or complex shows that only on some texts). Then nothing is allowed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "grammar/vocabulary.h"

namespace foresay::grammar {

enum class Language : std::uint8_t {
    regex,           // the whole text matches (grammar/pattern.h)
    choices,         // one of the lines of the source; empty lines do not count
    gbnf,            // llama.cpp's notation; the rule "root" is the text
    json,            // any JSON value; the source is empty
    json_schema,     // a JSON text that is valid under the schema (docs/grammars.md lists the keywords)
    structural_tag,  // parts in several of these languages, one after the other (docs/grammars.md)
};

struct Source {
    Language language = Language::json;
    std::string text;
};

enum class Whitespace : std::uint8_t {
    free,     // between the tokens of JSON, as JSON allows it
    compact,  // none
};

enum class After : std::uint8_t {
    end,   // after a text of the grammar only the end may come
    free,  // anything may come
};

struct Options {
    Whitespace whitespace = Whitespace::free;  // of json and json_schema, also as parts
    // Not empty: text is free until this has been written; what follows is under the grammar. A text may also end
    // without it.
    std::string trigger;
    After after = After::end;
    // What compiling may cost, for grammars of strangers, and then each call of a State: about so many steps, of which
    // a core makes 10 to 30 million in a second. The same for the same grammar and vocabulary on every machine.
    std::uint64_t most_work = UINT64_MAX;
};

inline constexpr std::size_t kMostSourceBytes = std::size_t{2} << 20;

class GrammarData;
class State;

class Grammar {
public:
    static std::shared_ptr<const Grammar> compile(std::shared_ptr<const Vocabulary> vocabulary, const Source& source,
                                                  const Options& options = {});
    static State begin(std::shared_ptr<const Grammar> grammar);

    explicit Grammar(std::unique_ptr<GrammarData> data, std::uint64_t work = 0);
    ~Grammar();
    const Vocabulary& vocabulary() const;
    std::uint64_t work() const { return work_; }  // steps that compiling took

private:
    friend class State;
    std::unique_ptr<GrammarData> data_;
    std::uint64_t work_ = 0;
};

// A place in a text. Immutable parts are shared, so copies are cheap.
class State {
public:
    State() = default;  // of no grammar: only to be assigned to

    // False: the token may not come here, and the state stays as it was.
    bool accept(std::int32_t token);
    // The same for bytes that are no token's: all or none of them.
    bool accept(std::string_view bytes);

    // Sets bit id % 32 of word id / 32 for each token that may come next and clears all others. `words` holds
    // vocabulary().words() words or more.
    void mask(std::span<std::uint32_t> words) const;
    // The same for single tokens: allowed[i] is 1 or 0. Cheaper than a mask for up to a few hundred.
    void test(std::span<const std::int32_t> tokens, std::span<std::uint8_t> allowed) const;
    // The bytes that must come next, whatever is sampled; at most 256. Empty where there is a choice, or the text may
    // end.
    std::string forced() const;
    // Whether the text may end here.
    bool may_end() const;
    // Whether only the end may come.
    bool finished() const;
    // Why the state is unusable; empty: it is not.
    std::string_view failure() const;

private:
    friend class Grammar;
    struct Place;
    explicit State(std::shared_ptr<const Grammar> grammar);
    void make_first_mask() const;
    void fail(const std::string& why) const;
    bool advance(std::string_view bytes, std::shared_ptr<const Place>& place) const;

    std::shared_ptr<const Grammar> grammar_;
    mutable std::shared_ptr<const Place> place_;  // mask() and test() may find that the grammar is too complex
};

}  // namespace foresay::grammar
