#include "core/text/stream_decoder.h"

#include <utility>

#include "core/text/utf8.h"

namespace foresay::core {
namespace {

// Room from the start, so that a long token among short ones does not allocate while a text is generated.
constexpr std::size_t kRoom = 256;

}  // namespace

StreamDecoder::StreamDecoder(Tokenizer tokenizer, bool show_special, bool whole_text)
    : tokenizer_(std::move(tokenizer)), show_special_(show_special), whole_text_(whole_text) {
    pending_.reserve(kRoom);
    text_.reserve(kRoom);
}

std::string_view StreamDecoder::push(std::int32_t token) {
    if (!show_special_ && tokenizer_.is_control(token)) return push_bytes({});
    return push_bytes(whole_text_ ? tokenizer_.bytes(token, start_) : tokenizer_.bytes(token));
}

std::string_view StreamDecoder::push_bytes(std::string_view bytes) {
    text_.clear();
    pending_.append(bytes);
    std::string_view rest = pending_;
    while (!rest.empty()) {
        const std::size_t valid = valid_utf8_prefix(rest);
        text_.append(rest.substr(0, valid));
        rest.remove_prefix(valid);
        if (rest.empty()) break;
        const Utf8Step step = next_utf8(rest);
        if (step.status == Utf8Status::incomplete) break;
        text_.append(kReplacementCharacter);
        rest.remove_prefix(step.length_bytes);
    }
    pending_.erase(0, pending_.size() - rest.size());
    return text_;
}

std::string_view StreamDecoder::flush() {
    text_.clear();
    append_valid_utf8(pending_, text_);
    reset();
    return text_;
}

void StreamDecoder::reset() {
    pending_.clear();
    start_ = {};
}

}  // namespace foresay::core
