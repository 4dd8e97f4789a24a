#include "speculative/vocabulary.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

namespace foresay::speculative {

namespace {

class TokenizerVocabulary : public samplers::Vocabulary {
public:
    TokenizerVocabulary(const core::Tokenizer& tokenizer, std::string model)
        : tokenizer_(tokenizer), model_(std::move(model)) {}

    std::int32_t size() const override { return tokenizer_.vocab_size(); }

    std::string_view text(std::int32_t token) const override {
        return has_text(token) ? tokenizer_.bytes(token) : std::string_view{};
    }

    std::int32_t find(std::string_view text) const override {
        std::call_once(indexed_, [this] { index(); });
        return look_up(text_, text);
    }
    std::int32_t find_control(std::string_view text) const override {
        std::call_once(indexed_, [this] { index(); });
        return look_up(control_, text);
    }
    std::optional<std::vector<std::int32_t>> tokens(std::string_view text) const override {
        return tokenizer_.encode(text, {.add_special = false, .parse_special = false});
    }
    std::string_view model_name() const override { return model_; }

    bool ends_text(std::int32_t token) const override { return tokenizer_.is_end_of_text(token); }
    std::string_view control_text(std::int32_t token) const override {
        return tokenizer_.is_control(token) ? tokenizer_.bytes(token) : std::string_view{};
    }

private:
    bool has_text(std::int32_t token) const {
        const core::TokenType type = tokenizer_.type(token);
        return type != core::TokenType::control && type != core::TokenType::unused;
    }

    // Sorts the ids by their bytes, equal ones by id. Built when one is first looked for.
    void index() const {
        for (std::int32_t token = 0; token < size(); ++token) {
            if (tokenizer_.bytes(token).empty()) continue;
            if (has_text(token)) text_.push_back(token);
            if (tokenizer_.is_control(token)) control_.push_back(token);
        }
        for (std::vector<std::int32_t>* ids : {&text_, &control_}) {
            std::sort(ids->begin(), ids->end(), [&](std::int32_t a, std::int32_t b) {
                const auto left = tokenizer_.bytes(a), right = tokenizer_.bytes(b);
                return left != right ? left < right : a < b;
            });
        }
    }
    std::int32_t look_up(const std::vector<std::int32_t>& ids, std::string_view text) const {
        const auto found = std::lower_bound(ids.begin(), ids.end(), text, [&](std::int32_t token, auto wanted) {
            return tokenizer_.bytes(token) < wanted;
        });
        return found != ids.end() && tokenizer_.bytes(*found) == text ? *found : -1;
    }

    core::Tokenizer tokenizer_;
    std::string model_;
    mutable std::once_flag indexed_;
    mutable std::vector<std::int32_t> text_, control_;  // by their bytes
};

class BareVocabulary : public samplers::Vocabulary {
public:
    explicit BareVocabulary(std::int32_t size) : size_(size) {}
    std::int32_t size() const override { return size_; }
    std::string_view text(std::int32_t) const override { return {}; }
    std::int32_t find(std::string_view) const override { return -1; }

private:
    std::int32_t size_;
};

}  // namespace

std::unique_ptr<samplers::Vocabulary> make_vocabulary(const core::Tokenizer& tokenizer, std::string model) {
    return std::make_unique<TokenizerVocabulary>(tokenizer, std::move(model));
}

std::unique_ptr<samplers::Vocabulary> make_bare_vocabulary(std::int32_t size) {
    return std::make_unique<BareVocabulary>(size);
}

}  // namespace foresay::speculative
