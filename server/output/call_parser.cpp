#include "server/output/call_parser.h"

#include <algorithm>
#include <utility>

#include "server/output/call_syntax.h"

namespace foresay::server {

namespace {

bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

void add(std::vector<OutputEvent>& out, OutputEvent::Kind kind, std::string text) {
    if (text.empty()) return;
    if (!out.empty() && out.back().kind == kind) {
        out.back().text += text;
    } else {
        out.push_back({kind, std::move(text), {}});
    }
}

}  // namespace

CallParser::CallParser(OutputFamily family, std::vector<Tool> tools) : family_(family), tools_(std::move(tools)) {}

void CallParser::push(std::string_view content, std::vector<OutputEvent>& out) {
    held_ += content;
    advance(false, out);
}

void CallParser::finish(std::vector<OutputEvent>& out) { advance(true, out); }

// Gives bytes from the front as content. Blanks before the first content and around calls are none.
void CallParser::give(std::size_t bytes, std::vector<OutputEvent>& out) {
    std::string text = held_.substr(0, bytes);
    held_.erase(0, bytes);
    refused_ -= std::min(refused_, bytes);
    if (!std::all_of(text.begin(), text.end(), is_blank)) begun_ = true;
    add(out, OutputEvent::Kind::content, std::move(text));
}

void CallParser::advance(bool end, std::vector<OutputEvent>& out) {
    while (!held_.empty()) {
        std::size_t blank = 0;
        while (blank < held_.size() && is_blank(held_[blank])) ++blank;
        const bool at_start = !begun_ && refused_ <= blank;
        // Before any content, blanks wait for what follows them.
        if (at_start && blank == held_.size()) {
            if (!end) return;
            if (called_) {
                add(out, OutputEvent::Kind::blank, std::exchange(held_, {}));
                refused_ = 0;
            } else {
                give(held_.size(), out);
            }
            return;
        }
        // Where a call may begin: a whole mark, or at the end the beginning of one.
        std::size_t place = held_.size();
        bool whole = false;
        if (at_start && takes_bare_object(family_) && held_[blank] == '{') {
            place = blank;
            whole = true;
        }
        for (const std::string_view mark : call_marks(family_)) {
            const std::size_t found = held_.find(mark, refused_);
            if (found != held_.npos && found < place) {
                place = found;
                whole = true;
            }
            if (end) continue;
            for (std::size_t size = std::min(mark.size() - 1, held_.size() - refused_); size > 0; --size) {
                const std::size_t from = held_.size() - size;
                if (from >= place || held_.compare(from, size, mark, 0, size) != 0) continue;
                place = from;
                whole = false;
            }
        }
        if (!whole) {
            // Blanks in front of what may be a mark wait with it, if no content came yet.
            if (at_start && place == blank && place < held_.size()) return;
            if (place > 0) give(place, out);
            return;
        }
        CallAttempt attempt = parse_call(family_, std::string_view(held_).substr(place), tools_, end);
        if (attempt.status == CallAttempt::Status::partial) {
            if (place > 0 && !(at_start && place == blank)) give(place, out);
            return;
        }
        if (attempt.status == CallAttempt::Status::none) {
            refused_ = place + 1;
            continue;
        }
        if (at_start && place == blank) {
            add(out, OutputEvent::Kind::blank, held_.substr(0, place));
            held_.erase(0, place);
        } else {
            give(place, out);
        }
        std::string raw = held_.substr(0, attempt.bytes);
        held_.erase(0, attempt.bytes);
        refused_ = 0;
        if (attempt.calls.empty()) {
            add(out, OutputEvent::Kind::blank, std::move(raw));
        } else {
            for (ToolCall& call : attempt.calls) {
                out.push_back({OutputEvent::Kind::call, std::exchange(raw, {}), std::move(call)});
            }
            called_ = true;
            begun_ = false;
        }
    }
}

}  // namespace foresay::server
