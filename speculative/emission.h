// speculative/emission.h: what becomes of the tokens of one answer: its text, where it ends, its times and statistics.
// The same for one text (Generator) and for each of many (Sequence).
//
// Threads:  one caller at a time.
// Cost:     begin() allocates for the whole answer; nothing is allocated per token.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "speculative/clock.h"
#include "speculative/generator.h"
#include "speculative/text_stream.h"

namespace foresay::speculative {

class Emission {
public:
    struct Ends {
        std::span<const std::string> strings;
        // Two lists of tokens that end the text; both must outlive the answer.
        std::span<const std::int32_t> tokens, more_tokens;
    };

    Emission(const core::Tokenizer* tokenizer, Now now) : text_(tokenizer), now_(now) {}

    // An answer of at most `room` tokens, which was asked for at `start`.
    void begin(const Ends& ends, std::int32_t room, double start) {
        text_.begin(ends.strings);
        ends_ = ends;
        ends_.strings = {};
        room_ = room;
        start_ = start;
        over_ = false;
        result = {};
    }
    // Makes room for all of it.
    void reserve() {
        const auto most = static_cast<std::size_t>(std::max(room_, 0));
        result.tokens.reserve(most);
        result.text.reserve(most * 8);
    }

    bool ends_text(std::int32_t token) const {
        const auto has = [token](std::span<const std::int32_t> list) {
            return std::ranges::find(list, token) != list.end();
        };
        return has(ends_.tokens) || has(ends_.more_tokens);
    }
    std::int32_t room() const { return room_; }  // tokens that may still be emitted
    bool over() const { return over_; }          // the last token ended the text, or no more have room

    // Emits `token`. Returns the text that it completes, valid until the next call.
    std::string_view push(std::int32_t token) {
        if (result.tokens.empty()) {
            first_ = now_();
            result.ttft_ms = first_ - start_;
        }
        result.tokens.push_back(token);
        --room_;
        const bool end = ends_text(token);
        const std::string_view text = end ? std::string_view{} : text_.push(token);
        result.text += text;
        result.finish = end || text_.stopped() ? FinishReason::stop : FinishReason::length;
        result.stop_string = text_.stopped_by();
        over_ = result.finish == FinishReason::stop || room_ == 0;
        return text;
    }
    // The last token ended the text, for a reason of the caller's.
    void stop() {
        result.finish = FinishReason::stop;
        over_ = true;
    }

    // For a round that verified `drafted` tokens, of which `accepted` were accepted: source(i) is the place of the i-th
    // one's source in the statistics.
    template <class Source>
    void count(std::int32_t drafted, std::int32_t accepted, Source&& source) {
        SpeculationStatistics& statistics = result.speculation;
        statistics.drafted += drafted;
        statistics.accepted += accepted;
        for (std::size_t one = 0; one < statistics.sources.size(); ++one) {
            SourceStatistics& entry = statistics.sources[one];
            const std::int64_t before = entry.drafted;
            for (std::int32_t i = 0; i < drafted; ++i) {
                if (source(i) != one) continue;
                ++entry.drafted;
                if (i < accepted) ++entry.accepted;
            }
            if (entry.drafted > before) ++entry.rounds;
        }
    }

    // The end. Returns the text that was held back until now; the result has it, too.
    std::string finish() {
        if (!result.tokens.empty()) {
            result.decode_ms = now_() - first_;
            if (result.decode_ms > 0.0) {
                result.decode_tokens_per_second =
                    1000.0 * static_cast<double>(result.tokens.size() - 1) / result.decode_ms;
            }
        }
        std::string rest = text_.finish();
        result.text += rest;
        return rest;
    }

    GenerateResult result;

private:
    TextStream text_;
    Now now_;
    Ends ends_;
    std::int32_t room_ = 0;
    double start_ = 0.0, first_ = 0.0;  // ms; when the answer was asked for, and when its first token was known
    bool over_ = false;
};

}  // namespace foresay::speculative
