// app/conversation/answer_recorder.h: follows answers while they are generated, so that they can be saved before they
// are complete.
//
// Threads:  calls come from the thread that generates.
// Errors:   a recorder must not throw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>

#include "app/conversation/turn_tree.h"
#include "core/text/tokenizer.h"
#include "speculative/generator.h"

namespace foresay::app {

class AnswerRecorder {
public:
    virtual ~AnswerRecorder() = default;
    // The answers of `change` are generated now; its turns have none yet.
    virtual void begin(const TurnTree::Change& change) = 0;
    // A token of the answer to the `turn`-th turn of the change. End-of-text tokens are left out.
    virtual void token(std::size_t turn, std::int32_t token) = 0;
    // Generation failed: the change does not happen.
    virtual void fail() = 0;
};

// Tells a recorder about one change: its beginning, the tokens that watch() sees, and an exception that ends it.
class AnswerRecording {
public:
    // `recorder` null: tells no one. `tokenizer` must outlive the recording.
    AnswerRecording(AnswerRecorder* recorder, const core::Tokenizer& tokenizer, const TurnTree::Change& change)
        : recorder_(recorder), tokenizer_(tokenizer), exceptions_(std::uncaught_exceptions()) {
        if (recorder_ != nullptr) recorder_->begin(change);
    }
    ~AnswerRecording() {
        if (recorder_ != nullptr && std::uncaught_exceptions() > exceptions_) recorder_->fail();
    }
    AnswerRecording(const AnswerRecording&) = delete;
    AnswerRecording& operator=(const AnswerRecording&) = delete;

    // `show`, after the recorder has seen the token. Valid as long as this and `show` are.
    speculative::TokenCallback watch(const speculative::TokenCallback& show) const {
        return [this, &show](const speculative::TokenEvent& event) {
            see(0, event);
            if (show) show(event);
        };
    }
    speculative::BranchCallback watch(const speculative::BranchCallback& show) const {
        return [this, &show](std::size_t turn, const speculative::TokenEvent& event) {
            see(turn, event);
            if (show) show(turn, event);
        };
    }

private:
    void see(std::size_t turn, const speculative::TokenEvent& event) const {
        if (recorder_ == nullptr || event.token < 0 || tokenizer_.is_end_of_text(event.token)) return;
        recorder_->token(turn, event.token);
    }

    AnswerRecorder* recorder_;
    const core::Tokenizer& tokenizer_;
    int exceptions_;
};

}  // namespace foresay::app
