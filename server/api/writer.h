// server/api/writer.h: an answer in the form of a protocol: collected, and streamed piece by piece where the client
// asks for it. A protocol derives from AnswerWriter; server/answering.h calls it.
//
// Threads:  one caller at a time.
// Errors:   none. What fails is told with fail(), as an answer or, after a stream began, as its last event.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/backend.h"
#include "server/error.h"
#include "server/http/exchange.h"
#include "server/json.h"
#include "server/output/call_parser.h"

namespace foresay::server {

// What is known when the answers begin.
struct AnswerFacts {
    std::string id;     // hexadecimal, for ids of all kinds
    std::string model;  // as the client named it
    std::string fingerprint;
    std::int64_t created = 0;        // seconds since 1970
    Json seed;                       // as it was sent, or the one that we have chosen
    std::int64_t prompt_tokens = 0;  // of all prompts
    // As they were sent, token ids as text; of conversations empty; of holes as the model reads them, unless the prompt
    // was sent as one, too.
    std::vector<std::string> prompts;
    const core::Tokenizer* tokenizer = nullptr;
};

struct TokenNote {
    std::int32_t token = 0;
    std::string source;  // of a drafted token
    float log_probability = 0.0f;
    std::vector<TokenProbability> alternatives;
    std::size_t text_at = 0;  // bytes of the text before it
};

enum class Finish : std::uint8_t { stop, length, tool_calls };

// A piece of reasoning, of content, or a call. What follows each other and is of one kind is one item.
struct AnswerItem {
    OutputEvent::Kind kind = OutputEvent::Kind::content;
    std::string text;      // of reasoning and content
    std::size_t call = 0;  // of a call: its place among Choice::calls
    // The tokens that it comes from, as a range of Choice::notes.
    std::size_t first_note = 0, end_note = 0;
};

// One of several answers, as far as it is known.
struct Choice {
    std::vector<AnswerItem> items;   // in the order in which they were written; streamed or not
    std::string content, reasoning;  // of all items
    std::vector<ToolCall> calls;
    Finish finish = Finish::stop;
    bool stopped_by_string = false;  // by stop_string
    bool cut_by_time = false;        // also where it is the deadline
    bool cut_by_deadline = false;
    std::string stop_string;
    std::string unfinished;  // why the text ends before its grammar does; empty: it does not
    std::int64_t tokens = 0, reasoning_tokens = 0, prompt_tokens = 0;
    std::vector<TokenNote> notes;  // of all tokens
    BackendEnd end;
    bool ended = false;
    std::size_t told_notes = 0;  // those that were part of a piece
};

class AnswerWriter {
public:
    // `one_call`: calls after the first one are left out.
    AnswerWriter(std::shared_ptr<Exchange> exchange, bool stream, bool one_call = false)
        : exchange_(std::move(exchange)), stream_(stream), one_call_(one_call) {}
    virtual ~AnswerWriter() = default;

    void begin(AnswerFacts facts, std::size_t choices);
    // `notes`: of the tokens that these events come from; they may come later than the text.
    void events(std::size_t choice, std::span<const OutputEvent> events, std::span<const TokenNote> notes);
    // `choice` without its texts.
    void end_choice(std::size_t choice, const Choice& end);
    void end();
    void fail(const ApiError& error);

    const std::shared_ptr<Exchange>& exchange() const { return exchange_; }
    bool streams() const { return stream_; }
    bool one_call() const { return one_call_; }

protected:
    // ---- of the protocol. Streams append to `out`.
    virtual void open(std::string& out) { (void)out; }
    virtual void piece(std::size_t choice, const OutputEvent& event, std::span<const TokenNote> notes,
                       std::string& out) = 0;
    virtual void close_choice(std::size_t choice, std::string& out) = 0;
    virtual void close(std::string& out) = 0;
    // After the stream began.
    virtual void late_error(const ApiError& error, std::string& out) = 0;
    virtual Json whole() = 0;
    virtual HttpResponse error(const ApiError& error) = 0;
    virtual HttpResponse stream_head() const;
    virtual std::string ping() const { return ": ping\n\n"; }
    virtual HttpResponse whole_head() const { return {}; }
    // Whether pieces say something of each token, so that one whose text is part of no piece needs one of its own.
    virtual bool tells_tokens() const { return false; }

    AnswerFacts facts_;
    std::vector<Choice> choices_;

    // ---- sums over all choices
    std::int64_t completion_tokens() const;
    std::int64_t reasoning_tokens() const;
    std::int64_t cached_tokens() const;

private:
    std::shared_ptr<Exchange> exchange_;
    const bool stream_, one_call_;
};

// ---- forms that protocols share

// "data: {...}\n\n"
void append_event(const Json& json, std::string& out);
// "event: NAME\ndata: {...}\n\n"
void append_named_event(std::string_view name, const Json& json, std::string& out);
std::string_view finish_name(Finish finish);  // "stop", "length", "tool_calls"
// llama.cpp's times and counts of an answer, with ours.
Json timings_of(const Choice& choice);
// Adds seed and fingerprint to the member "foresay" of an answer, where the protocol has no place for them.
void tell_seed(const AnswerFacts& facts, Json& json);
// Adds `unfinished` to the member "foresay" of an answer, where it is not empty.
void tell_unfinished(const Choice& choice, Json& json);
// The id of a call: the model's own, or one made of the answer's id.
std::string call_id(const AnswerFacts& facts, const ToolCall& call, std::size_t choice, std::size_t index,
                    std::string_view prefix = "call_");

}  // namespace foresay::server
