// wordlist: forbidden strings never appear in the text, however they are split into tokens.
//
// One automaton over all forbidden strings (Aho-Corasick) reads the text so far. A candidate is dropped when its bytes
// would complete a forbidden string, even one that began many tokens earlier or in the prompt.
//
//     [[plugin]]
//     name = "wordlist"
//     [plugin.options]
//     forbid = ["TODO", "FIXME"]
//     ignore_case = true
//
// Cost:  a table look-up per candidate. The automaton reads a candidate's bytes only when the text so far ends within a
//        forbidden string.

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "samplers/sdk/sampler.hpp"

namespace {

constexpr std::size_t kMaxBytes = 16384;  // of all forbidden strings; a byte costs 1 KiB

class Automaton {
public:
    Automaton(const std::vector<std::string>& words, bool ignore_case) : ignore_case_(ignore_case) {
        add_node(0);
        for (const std::string& word : words) add(word);
        link();
    }
    std::uint32_t next(std::uint32_t node, char c) const { return next_[node * 256 + byte(c)]; }
    bool matches(std::uint32_t node) const { return match_[node]; }
    // How many of the text's last bytes the node stands for.
    std::uint32_t depth(std::uint32_t node) const { return depth_[node]; }

private:
    std::uint8_t byte(char c) const {
        if (ignore_case_ && c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
        return static_cast<std::uint8_t>(c);
    }
    std::uint32_t add_node(std::uint32_t depth) {
        next_.resize(next_.size() + 256, 0);
        match_.push_back(false);
        depth_.push_back(depth);
        return static_cast<std::uint32_t>(depth_.size() - 1);
    }
    void add(const std::string& word) {
        std::uint32_t node = 0;
        for (const char c : word) {
            const std::size_t edge = node * 256u + byte(c);
            if (next_[edge] == 0) {
                const std::uint32_t child = add_node(depth_[node] + 1);
                next_[edge] = child;
            }
            node = next_[edge];
        }
        match_[node] = true;
    }
    // Fills the missing edges, level by level: where a node has none, it goes where its longest proper suffix goes.
    void link() {
        std::vector<std::uint32_t> suffix(depth_.size(), 0), order(1, 0);
        for (std::size_t at = 0; at < order.size(); ++at) {
            const std::uint32_t node = order[at];
            match_[node] = match_[node] || match_[suffix[node]];
            for (std::size_t c = 0; c < 256; ++c) {
                std::uint32_t& edge = next_[node * 256 + c];
                const std::uint32_t fallback = node == 0 ? 0 : next_[suffix[node] * 256 + c];
                if (edge == 0) {
                    edge = fallback;
                } else {
                    suffix[edge] = fallback;
                    order.push_back(edge);
                }
            }
        }
    }

    bool ignore_case_;
    std::vector<std::uint32_t> next_;
    std::vector<bool> match_;
    std::vector<std::uint32_t> depth_;
};

struct Wordlist {
    static constexpr foresay::Info info{"wordlist", "1.0.0", "Keeps forbidden strings out of the text.", "Apache-2.0"};

    struct Parameters {
        std::vector<std::string> forbid;
        bool ignore_case = false;
    };
    static auto parameters() {
        return foresay::parameters(
            foresay::text_list("forbid", &Parameters::forbid, "Strings that must not appear."),
            foresay::boolean("ignore_case", &Parameters::ignore_case, "Whether a and A are the same (ASCII letters)."));
    }

    // Where in the forbidden strings the text so far ends.
    struct State {
        std::uint32_t node = 0;
    };

    Wordlist(const Parameters& p, foresay::Host host) : host_(host), automaton_(checked(p.forbid), p.ignore_case) {
        const std::int32_t tokens = host.vocabulary_size();
        contains_.resize(static_cast<std::size_t>(tokens));
        for (std::int32_t id = 0; id < tokens; ++id) {
            std::uint32_t node = 0;
            for (const char c : host.token_text(id)) {
                node = automaton_.next(node, c);
                if (automaton_.matches(node)) contains_[static_cast<std::size_t>(id)] = 1;
            }
        }
    }

    void accept(State& state, std::int32_t token) const {
        for (const char c : host_.token_text(token)) state.node = automaton_.next(state.node, c);
    }

    bool test(const State& state, const foresay::Context&, std::int32_t id) const {
        return contains_[static_cast<std::size_t>(id)] == 0 && (state.node == 0 || !completes(state.node, id));
    }

private:
    static const std::vector<std::string>& checked(const std::vector<std::string>& words) {
        std::size_t bytes = 0;
        for (const std::string& word : words) {
            if (word.empty()) throw std::runtime_error("'forbid' lists an empty string, which is in every text");
            bytes += word.size();
        }
        if (bytes > kMaxBytes) throw std::runtime_error("'forbid' holds more than 16384 bytes in all");
        return words;
    }

    // Whether the token completes a forbidden string that begins before it. Once the node stands for bytes of the token
    // alone, no such string is possible, and `contains_` decides.
    bool completes(std::uint32_t node, std::int32_t id) const {
        std::uint32_t used = 0;
        for (const char c : host_.token_text(id)) {
            node = automaton_.next(node, c);
            if (automaton_.matches(node)) return true;
            if (automaton_.depth(node) <= ++used) return false;
        }
        return false;
    }

    foresay::Host host_;
    Automaton automaton_;
    std::vector<std::uint8_t> contains_;  // by id: the token holds a forbidden string by itself
};

}  // namespace

FORESAY_EXPORT_SAMPLERS(Wordlist)
