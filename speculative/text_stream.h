// speculative/text_stream.h: turns emitted tokens into text, cut before a stop string.
//
// Threads:  one caller at a time.
// Cost:     no allocation once its buffers have grown.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/text/stop_strings.h"
#include "core/text/stream_decoder.h"
#include "core/text/tokenizer.h"

namespace foresay::speculative {

class TextStream {
public:
    // Without a tokenizer there is no text, and stop strings never occur.
    explicit TextStream(const core::Tokenizer* tokenizer) {
        if (tokenizer != nullptr) decoder_.emplace(*tokenizer);
    }

    void begin(std::span<const std::string> stops) {
        if (decoder_) decoder_->reset();
        stops_ = core::StopStrings(std::vector<std::string>(stops.begin(), stops.end()));
    }

    // The text that `token` completes and that no stop string can take back. Valid until the next call.
    std::string_view push(std::int32_t token) {
        if (!decoder_) return {};
        return stops_.push(decoder_->push(token));
    }

    // Ends the text and returns what was held back.
    std::string finish() {
        if (!decoder_ || stops_.stopped()) return {};
        std::string rest(stops_.push(decoder_->flush()));
        rest += stops_.flush();
        return rest;
    }

    bool stopped() const { return stops_.stopped(); }
    std::int32_t stopped_by() const { return stops_.stopped_by(); }  // index of the stop string, or -1

private:
    std::optional<core::StreamDecoder> decoder_;
    core::StopStrings stops_;
};

}  // namespace foresay::speculative
