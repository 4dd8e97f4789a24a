#include "tests/speculative/schedule_replay.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

namespace foresay::test {
namespace {

using kernels::RowClass;
using speculative::SequenceLoad;

struct Text {
    std::uint64_t ticket = 0, queue = 0;
    std::int32_t priority = 0;
    double deadline = 0.0;
    std::uint64_t passed_over = 0;
    bool paused = false, cancelled = false, gave_way = false;
    bool deferred = false;  // waits in this step for what another one evaluates
};

class Replayer {
public:
    Replay run(const std::string& record) {
        std::istringstream lines(record);
        for (std::string line; std::getline(lines, line);) {
            ++number_;
            std::istringstream words(line);
            std::string first;
            words >> first;
            obey(first, words);
        }
        return std::move(result_);
    }

private:
    using Texts = std::vector<Text>;

    void differ(const std::string& what) {
        if (result_.differences.size() < 10) {
            result_.differences.push_back("line " + std::to_string(number_) + ": " + what);
        }
    }
    void expect(std::uint64_t decided, std::uint64_t recorded, const char* what) {
        if (decided == recorded) return;
        differ(std::string(what) + " " + std::to_string(recorded) + " in the record, " + std::to_string(decided) +
               " here");
    }
    template <typename T>
    T read(std::istream& words) {
        T value{};
        if (!(words >> value)) differ("a word is missing");
        return value;
    }
    Text* find(std::uint64_t ticket) {
        for (Texts* list : {&running_, &waiting_}) {
            const auto found = std::ranges::find(*list, ticket, &Text::ticket);
            if (found != list->end()) return &*found;
        }
        differ("no text has ticket " + std::to_string(ticket));
        return nullptr;
    }

    void obey(const std::string& first, std::istream& words) {
        if (first == "batch") {
            result_.limits.prefill_rows = read<std::int32_t>(words);
            result_.limits.prefill_rows_beside = read<std::int32_t>(words);
            result_.limits.decode_rows = read<std::int32_t>(words);
            result_.most = read<std::size_t>(words);
            std::string mixes;
            if (words >> mixes && mixes != "mixes") differ("unknown word " + mixes);
            result_.limits.mixes = !mixes.empty();
        } else if (first == "add") {
            add(words);
        } else if (first == "step") {
            step(read<double>(words));
        } else if (first == "loads") {
            plan(words);
        } else if (first == "rows") {
            compare_rows(words);
        } else if (first == "ahead") {
            due_are_ended();
            result_.forwards.push_back({.ahead = true, .rows = {}, .decoding = {}});
        } else if (first == "took") {
            const double ms = read<double>(words);
            const RowClass kind = schedule_.reads_prompts() ? RowClass::prefill : RowClass::decode;
            if (result_.forwards.back().ahead) {
                turns_.note_ahead();
            } else {
                turns_.note(kind, loads_, ms);
            }
        } else {
            const auto ticket = read<std::uint64_t>(words);
            if (Text* text = find(ticket)) of_text(first, *text, words);
        }
    }

    void of_text(const std::string& first, Text& text, std::istream& words) {
        if (first == "cancel") {
            text.cancelled = true;
        } else if (first == "pause" || first == "resume") {
            text.paused = first == "pause";
            text.gave_way = text.gave_way && text.paused;
        } else if (first == "end") {
            end(text, read<std::string>(words));
        } else if (first == "gone") {
            remove(text.ticket);
        } else if (first == "ran") {
            served_[text.queue] += read<std::uint64_t>(words);
        } else if (first == "preempt") {
            admission_is_over();
            preempt(text.ticket);
        } else if (first == "replace") {
            if (!std::ranges::all_of(running_, &Text::paused)) differ("not all that run are paused");
            const std::uint64_t ticket = text.ticket;
            preempt(ticket);
            if (Text* moved = find(ticket)) moved->gave_way = true;
        } else if (first == "wait" || first == "full" || first == "admit") {
            due_are_ended();
            expect(next(), text.ticket, "the next one is");
            if (first == "wait") {
                ++result_.waits;
                text.deferred = true;
            } else if (first == "full") {
                ++result_.full;
                stopped_ = true;
            } else {
                admit(text.ticket);
            }
        } else {
            differ("unknown word " + first);
        }
    }

    void add(std::istream& words) {
        Text text;
        text.ticket = read<std::uint64_t>(words);
        text.priority = read<std::int32_t>(words);
        text.queue = read<std::uint64_t>(words);
        text.deadline = read<double>(words);
        if (!served_.contains(text.queue)) {
            const auto least = std::ranges::min_element(served_, {}, [](const auto& entry) { return entry.second; });
            served_.emplace(text.queue, least == served_.end() ? 0 : least->second);
        }
        waiting_.push_back(text);
        result_.requests.resize(std::max<std::size_t>(result_.requests.size(), text.ticket + 1));
        result_.requests[text.ticket] = {.priority = text.priority, .queue = text.queue, .arrived = result_.admissions};
    }

    void step(double now) {
        ++result_.steps;
        stopped_ = planned_ = false;
        due_.clear();
        for (Texts* list : {&running_, &waiting_}) {
            for (Text& text : *list) {
                text.deferred = false;
                if (text.cancelled || (text.deadline > 0.0 && text.deadline <= now)) due_.insert(text.ticket);
            }
        }
        now_ = now;
    }

    void end(const Text& text, const std::string& why) {
        const bool late = text.deadline > 0.0 && text.deadline <= now_;
        if (why == "cancelled" ? !text.cancelled : why == "deadline" && !late) {
            differ("not " + why + ": " + std::to_string(text.ticket));
        }
        result_.cancelled += why == "cancelled" ? 1 : 0;
        result_.late += why == "deadline" ? 1 : 0;
        due_.erase(text.ticket);
    }

    void due_are_ended() {
        if (!due_.empty()) differ(std::to_string(*due_.begin()) + " should have ended");
        due_.clear();
    }

    void remove(std::uint64_t ticket) {
        for (Texts* list : {&running_, &waiting_})
            std::erase_if(*list, [&](const Text& t) { return t.ticket == ticket; });
        std::erase_if(served_, [this](const auto& entry) {
            return std::ranges::find(running_, entry.first, &Text::queue) == running_.end() &&
                   std::ranges::find(waiting_, entry.first, &Text::queue) == waiting_.end();
        });
    }

    speculative::WaitingRequest waits(const Text& text) const {
        return {text.priority, text.passed_over, served_.at(text.queue)};
    }

    // 0: there is none.
    std::uint64_t next() const {
        std::vector<speculative::WaitingRequest> requests;
        std::vector<std::uint64_t> tickets;
        if (running_.size() >= result_.most) return 0;
        for (const Text& text : waiting_) {
            if (text.deferred || text.gave_way) continue;
            requests.push_back(waits(text));
            tickets.push_back(text.ticket);
        }
        return requests.empty() ? 0 : tickets[speculative::next_admitted(requests)];
    }

    void admit(std::uint64_t ticket) {
        const auto text = std::ranges::find(waiting_, ticket, &Text::ticket);
        if (text == waiting_.end()) {
            differ(std::to_string(ticket) + " does not wait");
            return;
        }
        Replay::Request& request = result_.requests[ticket];
        if (request.admitted < 0) {
            request.admitted = result_.admissions;
            request.passed_over = text->passed_over;
            request.first_step = result_.steps;
        }
        ++result_.admissions;
        running_.push_back(*text);
        waiting_.erase(text);
        const std::int64_t reached = speculative::height(waits(running_.back()));
        for (Text& other : waiting_) other.passed_over += speculative::height(waits(other)) < reached ? 1 : 0;
    }

    // No other one is admitted in this step.
    void admission_is_over() {
        due_are_ended();
        if (!stopped_ && !planned_) expect(next(), 0, "the next one is");
        planned_ = true;
    }

    void preempt(std::uint64_t ticket) {
        if (running_.empty()) {
            differ("nothing runs");
            return;
        }
        ++result_.preemptions;
        std::vector<speculative::RunningRequest> holders;
        for (const Text& text : running_) holders.push_back({text.paused, text.priority, text.ticket});
        const auto victim = running_.begin() + static_cast<std::ptrdiff_t>(speculative::next_preempted(holders));
        expect(victim->ticket, ticket, "preempted is");
        const Text text = *victim;
        running_.erase(victim);
        waiting_.insert(std::ranges::upper_bound(waiting_, text.ticket, {}, &Text::ticket), text);
    }

    void plan(std::istream& words) {
        admission_is_over();
        loads_.clear();
        char comma = 0;
        for (SequenceLoad load; words >> load.prefill_rows >> comma >> load.decode_rows;) loads_.push_back(load);
        expect(running_.size(), loads_.size(), "texts that run:");
        loads_.resize(running_.size());
        speculative::ScheduleLimits limits = result_.limits;
        limits.decode_turn = speculative::decode_turn(loads_, turns_.prefill_ms, turns_.decode_ms, limits.mixes);
        speculative::schedule_forward(loads_, limits, turns_.decoded, schedule_);
    }

    void compare_rows(std::istream& words) {
        const char* const kind = schedule_.mixed ? "mixed" : schedule_.reads_prompts() ? "prefill" : "decode";
        if (read<std::string>(words) != kind) differ("rows of the other class");
        Replay::Forward forward{.row_class = schedule_.row_class, .mixed = schedule_.mixed, .rows = {}, .decoding = {}};
        for (const speculative::ScheduledRows& rows : schedule_.rows) {
            forward.rows.emplace_back(running_[rows.sequence].ticket, rows.rows);
        }
        for (std::size_t i = 0; i < loads_.size(); ++i) {
            if (loads_[i].decode_rows > 0) forward.decoding.push_back(running_[i].ticket);
        }
        std::vector<std::pair<std::uint64_t, std::int32_t>> recorded;
        std::uint64_t ticket = 0;
        std::int32_t rows = 0;
        for (char colon = 0; words >> ticket >> colon >> rows;) recorded.emplace_back(ticket, rows);
        if (recorded != forward.rows) differ("other rows");
        if (!forward.rows.empty()) result_.forwards.push_back(std::move(forward));
    }

    Replay result_;
    std::size_t number_ = 0;
    Texts running_, waiting_;  // in the order of admission, of arrival
    std::map<std::uint64_t, std::uint64_t> served_;
    std::set<std::uint64_t> due_;  // must end before the forward
    double now_ = 0.0;
    bool stopped_ = false;  // there are no pages for the next one
    bool planned_ = false;
    std::vector<SequenceLoad> loads_;
    speculative::Schedule schedule_;
    speculative::Turns turns_;
};

}  // namespace

std::int32_t Replay::Forward::all_rows() const {
    std::int32_t sum = 0;
    for (const auto& [ticket, count] : rows) sum += count;
    return sum;
}

Replay replay_schedule(const std::string& record) { return Replayer().run(record); }

}  // namespace foresay::test
