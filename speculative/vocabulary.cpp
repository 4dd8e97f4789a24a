#include "speculative/vocabulary.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace foresay::speculative {

namespace {

class TokenizerVocabulary : public samplers::Vocabulary {
public:
    explicit TokenizerVocabulary(const core::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

    std::int32_t size() const override { return tokenizer_.vocab_size(); }

    std::string_view text(std::int32_t token) const override {
        return has_text(token) ? tokenizer_.bytes(token) : std::string_view{};
    }

    std::int32_t find(std::string_view text) const override {
        if (text.empty()) return -1;
        if (by_text_.empty()) index();
        const auto found =
            std::lower_bound(by_text_.begin(), by_text_.end(), text,
                             [&](std::int32_t token, auto wanted) { return tokenizer_.bytes(token) < wanted; });
        return found != by_text_.end() && tokenizer_.bytes(*found) == text ? *found : -1;
    }

    bool ends_text(std::int32_t token) const override { return tokenizer_.is_end_of_text(token); }
    std::string_view control_text(std::int32_t token) const override {
        return tokenizer_.is_control(token) ? tokenizer_.bytes(token) : std::string_view{};
    }

private:
    bool has_text(std::int32_t token) const {
        const core::TokenType type = tokenizer_.type(token);
        return type != core::TokenType::control && type != core::TokenType::unused;
    }

    // Sorts the ids by their bytes, equal ones by id. Built on the first find(): stages are created on one thread, so
    // it needs no lock.
    void index() const {
        for (std::int32_t token = 0; token < size(); ++token) {
            if (has_text(token) && !tokenizer_.bytes(token).empty()) by_text_.push_back(token);
        }
        std::sort(by_text_.begin(), by_text_.end(), [&](std::int32_t a, std::int32_t b) {
            const auto left = tokenizer_.bytes(a), right = tokenizer_.bytes(b);
            return left != right ? left < right : a < b;
        });
    }

    core::Tokenizer tokenizer_;
    mutable std::vector<std::int32_t> by_text_;
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

std::unique_ptr<samplers::Vocabulary> make_vocabulary(const core::Tokenizer& tokenizer) {
    return std::make_unique<TokenizerVocabulary>(tokenizer);
}

std::unique_ptr<samplers::Vocabulary> make_bare_vocabulary(std::int32_t size) {
    return std::make_unique<BareVocabulary>(size);
}

}  // namespace foresay::speculative
