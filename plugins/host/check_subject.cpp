#include "plugins/host/check_subject.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>

#include "base/error.h"
#include "samplers/plugin_stage.h"

namespace foresay::plugins {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::uint32_t kStream = 12345;

std::string made_up_text(std::int32_t id) {
    static constexpr std::array<std::string_view, 16> kPieces = {"in", "re", "turn", "the",  "for", "def",  "a", "on",
                                                                 "er", "(",  ")",    "self", "\n",  "    ", ".", "x"};
    if (id < 256) return std::string(1, static_cast<char>(id));
    std::string text;
    for (auto rest = static_cast<std::size_t>(id); rest > 0; rest /= kPieces.size()) {
        text += kPieces[rest % kPieces.size()];
    }
    return id % 3 == 0 ? " " + text : text;
}

// Memory that ends with a page which cannot be touched. at() gives room for `count` values up to that page, valid until
// the next call.
template <typename T>
class GuardedRoom {
public:
    GuardedRoom() = default;
    GuardedRoom(const GuardedRoom&) = delete;
    GuardedRoom& operator=(const GuardedRoom&) = delete;
    ~GuardedRoom() { drop(); }
    std::span<T> at(std::size_t count) {
        const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
        const std::size_t wanted = (count * sizeof(T) + page - 1) / page * page + page;
        if (wanted > bytes_) {
            drop();
            data_ = ::mmap(nullptr, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (data_ == MAP_FAILED) throw Error("there is no memory for a check");
            bytes_ = wanted;
            if (::mprotect(static_cast<char*>(data_) + bytes_ - page, page, PROT_NONE) != 0)
                throw Error("memory cannot be guarded for a check");
        }
        char* const end = static_cast<char*>(data_) + bytes_ - page;
        return {reinterpret_cast<T*>(end) - count, count};
    }
    std::span<T> copy(std::span<const T> values) {
        const std::span<T> room = at(values.size());
        std::copy(values.begin(), values.end(), room.begin());
        return room;
    }

private:
    void drop() {
        if (bytes_ > 0) ::munmap(data_, bytes_);
        bytes_ = 0;
    }
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
};

}  // namespace

CheckVocabulary::CheckVocabulary(std::int32_t size) {
    for (std::int32_t id = 0; id < size; ++id) texts_.push_back(made_up_text(id));
    if (size >= 4) {
        end_ = size - 1;
        call_ = size - 2;
        texts_[static_cast<std::size_t>(end_)] = "<|end|>";
        texts_[static_cast<std::size_t>(call_)] = "<|call|>";
    }
    for (std::int32_t id = 0; id < size; ++id) {
        if (!text(id).empty()) by_text_.try_emplace(text(id), id);
    }
}

std::string_view CheckVocabulary::text(std::int32_t id) const {
    return id == end_ || id == call_ ? std::string_view() : std::string_view(texts_[static_cast<std::size_t>(id)]);
}
std::string_view CheckVocabulary::control_text(std::int32_t id) const {
    return id == end_ || id == call_ ? std::string_view(texts_[static_cast<std::size_t>(id)]) : std::string_view();
}
std::int32_t CheckVocabulary::find(std::string_view wanted) const {
    const auto found = by_text_.find(wanted);
    return found != by_text_.end() ? found->second : -1;
}
std::int32_t CheckVocabulary::find_control(std::string_view wanted) const {
    for (const std::int32_t id : {end_, call_}) {
        if (id >= 0 && control_text(id) == wanted) return id;
    }
    return -1;
}
std::optional<std::vector<std::int32_t>> CheckVocabulary::tokens(std::string_view wanted) const {
    std::vector<std::int32_t> ids;
    for (const char c : wanted) ids.push_back(std::min<std::int32_t>(static_cast<std::uint8_t>(c), size() - 1));
    return ids;
}

Subject::Subject(std::shared_ptr<const samplers::StageFactory> factory, const samplers::Parameters& stated,
                 std::int32_t vocabulary)
    : factory_(std::move(factory)),
      parameters_(samplers::complete_parameters(factory_->description(), stated)),
      vocabulary_(vocabulary) {
    make_again();
}

void Subject::make_again() {
    stage_.reset();
    stage_ = factory_->create(parameters_, vocabulary_);
}

bool Subject::processes() const { return steps() || samplers::has_process(*stage_); }

std::unique_ptr<samplers::StageState> Subject::begin(const Place& place) const {
    std::unique_ptr<samplers::StageState> state = stage_->make_state();
    if (!state) return state;
    const std::string_view wrong = state->begin(place.history, place.answer);
    if (!wrong.empty()) throw Error("a text cannot begin: " + std::string(wrong));
    return state;
}

samplers::StageContext Subject::context(const Place& place) const {
    const kernels::NoiseKey key{place.seed, place.branch, static_cast<std::uint32_t>(place.history.size())};
    return {samplers::Phase::decide, key, kStream, place.history, place.answer};
}

Row Subject::row(std::mt19937_64& random, std::int32_t most) const {
    const std::int32_t seen = stage_->whole_vocabulary() ? most : std::min(most, kernels::kCandidateCut);
    std::vector<std::int32_t> all(static_cast<std::size_t>(vocabulary_.size()));
    std::iota(all.begin(), all.end(), 0);
    const auto count = std::min<std::size_t>(all.size(), static_cast<std::size_t>(std::max(seen, 1)));
    for (std::size_t i = 0; i < count; ++i) std::swap(all[i], all[i + random() % (all.size() - i)]);
    Row row;
    row.ids.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count));
    // A row in five has equal logits, which are sorted by id.
    const bool level = random() % 5 == 0;
    if (level) std::ranges::sort(row.ids);
    float logit = 12.0f;
    for (std::size_t i = 0; i < count; ++i) {
        row.logits.push_back(logit);
        if (!level) logit -= static_cast<float>(1 + random() % 1000) * 0.002f;
    }
    return row;
}

std::string_view Subject::ask_process(const samplers::StageState* state, const samplers::StageContext& context,
                                      const Row& row, Answer& answer) const {
    static thread_local GuardedRoom<std::int32_t> id_room;
    static thread_local GuardedRoom<float> logit_room;
    const std::span<std::int32_t> ids = id_room.copy(row.ids);
    const std::span<float> logits = logit_room.copy(row.logits);
    kernels::Candidates list{ids.data(), logits.data(), static_cast<std::int32_t>(ids.size())};
    std::string_view wrong;
    if (steps()) {
        list = samplers::apply_step(*stage_, state, context, list, vocabulary_.size());
    } else {
        wrong = stage_->process(state, context, list);
    }
    for (std::int32_t i = 0; i < list.count && wrong.empty(); ++i) {
        if (list.logits[i] != -kInfinity) answer.processed.emplace_back(list.ids[i], list.logits[i]);
    }
    std::ranges::sort(answer.processed, {}, &std::pair<std::int32_t, float>::first);
    return wrong;
}

Answer Subject::answer(const samplers::StageState* state, const Place& place, const Row& row) const {
    if (stage_->idle()) throw NotApplicable{"with these parameters it changes nothing; state others"};
    const samplers::StageContext asked = context(place);
    Answer answer;
    const auto failed = [&](const char* function, std::string_view wrong) {
        if (wrong.empty() || !answer.wrong.empty()) return;
        answer.wrong = std::string(function) + " fails: " + std::string(wrong);
    };
    if (processes()) failed("process()", ask_process(state, asked, row, answer));
    if (tests()) {
        static thread_local GuardedRoom<std::int32_t> ids;
        static thread_local GuardedRoom<std::uint8_t> verdicts;
        const std::span<std::uint8_t> keep = verdicts.at(row.ids.size());
        std::ranges::fill(keep, std::uint8_t{0});
        failed("test()", stage_->test(state, asked, ids.copy(row.ids), keep));
        answer.tested.assign(keep.begin(), keep.end());
    }
    if (masks()) {
        static thread_local GuardedRoom<std::uint32_t> words;
        const std::size_t count = (static_cast<std::size_t>(vocabulary_.size()) + 31) / 32;
        const std::span<std::uint32_t> bits = words.at(count);
        std::ranges::fill(bits, 0u);
        failed("mask()", stage_->mask(state, asked, bits));
        answer.masked.assign(bits.begin(), bits.end());
        if (count > 0) answer.masked.back() &= ~0u >> (count * 32 - static_cast<std::size_t>(vocabulary_.size()));
    }
    return answer;
}

std::int32_t Subject::pick(const Answer& answer, const Row& row, std::mt19937_64& random) const {
    std::vector<std::int32_t> allowed;
    const auto add = [&](std::int32_t id) {
        if (!vocabulary_.ends_text(id)) allowed.push_back(id);
    };
    if (!answer.masked.empty()) {
        for (std::int32_t id = 0; id < vocabulary_.size(); ++id) {
            if ((answer.masked[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1u) != 0) add(id);
        }
    } else if (!answer.processed.empty()) {
        for (const auto& [id, logit] : answer.processed) add(id);
    } else {
        for (std::size_t i = 0; i < answer.tested.size(); ++i) {
            if (answer.tested[i] == 1) add(row.ids[i]);
        }
    }
    return allowed.empty() ? -1 : allowed[random() % allowed.size()];
}

void Subject::accept(samplers::StageState* state, Place& place, std::int32_t token, bool supposed) const {
    place.history.push_back(token);
    if (state == nullptr) return;
    const bool told = traits().memory == samplers::StageMemory::feedback && !supposed;
    const float unknown = std::numeric_limits<float>::quiet_NaN();
    const float probability = told ? -0.1f * static_cast<float>(token % 50) : unknown;
    const std::string_view wrong = state->accept({token, supposed, probability, probability});
    if (!wrong.empty()) throw Error("accept() fails: " + std::string(wrong));
}

Place Subject::place(std::mt19937_64& random) const {
    Place place;
    place.seed = random();
    const std::size_t prompt = random() % 20;
    for (std::size_t i = 0; i < prompt; ++i) {
        const std::uint64_t id = random() % static_cast<std::uint64_t>(vocabulary_.size());
        place.history.push_back(static_cast<std::int32_t>(id));
    }
    place.answer = prompt;
    return place;
}

std::vector<Answer> Subject::walk(std::uint64_t seed, int steps) const {
    std::mt19937_64 random(seed);
    Place at = place(random);
    const auto state = begin(at);
    std::vector<Answer> answers;
    for (int step = 0; step < steps; ++step) {
        const Row seen = row(random);
        answers.push_back(answer(state.get(), at, seen));
        if (!answers.back().wrong.empty()) throw Error(answers.back().wrong);
        const std::int32_t token = pick(answers.back(), seen, random);
        if (token < 0) break;
        accept(state.get(), at, token);
    }
    return answers;
}

}  // namespace foresay::plugins
