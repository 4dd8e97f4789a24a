// What the SDK tells a sampler: the vocabulary, where the answer begins, what became of tokens, files, keyed numbers;
// and what it keeps from it.

#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "kernels/math.h"
#include "samplers/parameter_file.h"
#include "samplers/plugin_description.h"
#include "tests/samplers/judging_samplers.h"
#include "tests/samplers/support.h"

namespace foresay::samplers {
namespace {

// Letters, then <end>, <call>, and an id that is never used.
class SmallVocabulary : public LetterVocabulary {
public:
    SmallVocabulary() : LetterVocabulary(26) {}
    std::int32_t size() const override { return 29; }
    std::string_view text(std::int32_t id) const override {
        return id < 26 ? LetterVocabulary::text(id) : std::string_view();
    }
    bool ends_text(std::int32_t id) const override { return id == 26; }
    std::string_view control_text(std::int32_t id) const override {
        return id == 26 ? "<end>" : id == 27 ? "<call>" : "";
    }
    std::int32_t find_control(std::string_view name) const override {
        return name == "<end>" ? 26 : name == "<call>" ? 27 : -1;
    }
    std::optional<std::vector<std::int32_t>> tokens(std::string_view text) const override {
        std::vector<std::int32_t> ids;
        for (const char c : text) ids.push_back(c - 'a');
        return ids;
    }
    std::string_view model_name() const override { return "little"; }
};

// Writes what it is told into `notes`.
std::vector<std::string> notes;
void note(const std::string& text) { notes.push_back(text); }
std::string number(double value) { return std::isnan(value) ? "?" : std::to_string(value).substr(0, 6); }

struct Listener {
    static constexpr Info info{"listener", "1", "Writes down what it is told.", "Apache-2.0"};
    struct Parameters {
        File words;
        std::vector<std::int64_t> whole;
        std::vector<double> parts = {0.5};
    };
    static auto parameters() {
        return foresay::parameters(file("words", &Parameters::words, "A file."),
                                   integer_list("whole", &Parameters::whole, 0, 10, "Integers."),
                                   real_list("parts", &Parameters::parts, 0, 1, "Numbers."));
    }
    struct State {
        int value = 0;
    };
    Listener(Parameters p, Host host) : p_(std::move(p)) {
        note("model " + std::string(host.model_name()) + ", " + std::to_string(host.vocabulary_size()) + " tokens");
        for (const std::int32_t id : host.end_tokens()) note("ends with " + std::to_string(id));
        for (const std::int32_t id : {1, 26, 28, 29, -1}) {
            note(std::to_string(id) + ": " +
                 (host.is_text(id)      ? "text "
                  : host.is_control(id) ? "control "
                                        : "unused ") +
                 std::string(host.token_text(id)) + std::string(host.control_text(id)) +
                 (host.ends_text(id) ? " ends" : ""));
        }
        note("c is " + std::to_string(host.find_token("c")) + ", <call> is " +
             std::to_string(host.find_control("<call>")) + ", <c> is " + std::to_string(host.find_control("<c>")));
        std::string ids;
        for (const std::int32_t id : host.tokenize("cab")) ids += std::to_string(id) + " ";
        note("cab is " + ids);
        note(std::string("other extension: ") + (host.extension("other/1") == nullptr ? "no" : "yes"));
        note("words '" + p_.words.bytes + "' of " + std::filesystem::path(p_.words.path).filename().string() + ", " +
             std::to_string(p_.whole.size()) + ", " + number(p_.parts.at(0)));
        math_ = host.math();
    }
    void begin(State&, const Text& text) const {
        note("begin " + std::to_string(text.count) + ", answer at " + std::to_string(text.answer));
    }
    void accept(State&, const Token& token) const {
        note((token.supposed ? "supposed " : "drawn ") + std::to_string(token.id) + " " +
             number(token.log_probability) + " " + number(token.received_log_probability));
    }
    void process(const State&, const RandomContext& context, foresay::Candidates&) const {
        note("index " + std::to_string(context.index()) + ", answer at " + std::to_string(context.answer()) +
             ", branch " + std::to_string(context.branch()) + (context.proposing() ? ", proposing" : ""));
        const RandomContext copy = context;
        if (copy.uniform(7) != context.uniform(7)) note("a copied context has other numbers");
        const float logits[] = {2.0f, 1.0f};
        if (math_.exp(1.5f) != kernels::math::exp(1.5f) || math_.log(3.0f) != kernels::math::log(3.0f))
            note("another exp or log");
        if (std::fabs(math_.log_sum(logits, 2) - std::log(std::exp(2.0f) + std::exp(1.0f))) > 1e-5f)
            note("another log_sum");
    }
    Parameters p_;
    Math math_{nullptr};
};

std::vector<std::string> take_notes() { return std::exchange(notes, {}); }
using Notes = std::vector<std::string>;

class Folder {
public:
    Folder() { std::filesystem::create_directories(path); }
    ~Folder() { std::filesystem::remove_all(path); }
    const std::filesystem::path path =
        std::filesystem::temp_directory_path() / ("foresay_sdk_" + std::to_string(::getpid()));
};

TEST(Sdk, TellsWhatItSays) {
    const Folder folder;
    std::ofstream(folder.path / "words.txt") << "one\ntwo";
    const SmallVocabulary vocabulary;
    const Parameters stated = {{"words", (folder.path / "words.txt").string()},
                               {"whole", std::vector<std::int64_t>{1, 2}}};
    take_notes();
    Chain chain({{"listener", stated, linked_factory<Listener>()}, {"temperature", {{"value", 0.0}}}}, vocabulary);
    EXPECT_EQ(take_notes(),
              (Notes{"model little, 29 tokens", "ends with 26", "1: text b", "26: control <end> ends", "28: unused ",
                     "29: unused ", "-1: unused ", "c is 2, <call> is 27, <c> is -1", "cab is 2 0 1 ",
                     "other extension: no", "words 'one\ntwo' of words.txt, 2, 0.5000"}));

    // The answer begins after the prompt, or before text that it is made to begin with.
    chain.begin(9, 3, std::vector<std::int32_t>{1, 2, 3, 4}, 0, 1);
    EXPECT_EQ(take_notes(), Notes{"begin 4, answer at 3"});
    DraftChain draft;
    draft.start(chain);
    std::vector<float> row(29, 0.0f);
    row[5] = 1.0f;
    std::vector<float> same = row;
    EXPECT_EQ(draft.propose(row).token, 5);
    draft.advance(5);
    EXPECT_EQ(take_notes(), (Notes{"index 4, answer at 3, branch 3, proposing", "supposed 5 ? ?"}));
    EXPECT_EQ(chain.decide(same).token, 5);
    chain.accept(5);
    // Of 29 equal candidates but one, at temperature 0: log(e / (e + 28)), at the end and as received.
    const std::string p = number(1.0 - std::log(std::exp(1.0) + 28.0));
    const Notes told = take_notes();
    EXPECT_EQ(told.front(), "index 4, answer at 3, branch 3");
    EXPECT_EQ(told.back(), "drawn 5 " + p + " " + p);
}

// Log probabilities are those of the end of the chain and of what the stage received, whatever other stages there are.
TEST(Sdk, ProbabilitiesAreToldApart) {
    const SmallVocabulary vocabulary;
    const auto told = [&](ChainSpec spec) {
        Chain chain(spec, vocabulary);
        chain.begin(0, 0, {});
        std::vector<float> row(29, -kInfinity);
        row[1] = std::log(0.5f);
        row[2] = std::log(0.3f);
        row[3] = std::log(0.2f);
        const std::int32_t token = chain.decide(row).token;
        take_notes();
        chain.accept(token);
        return std::to_string(token) + ": " + take_notes().at(0);
    };
    const StageSpec listener{"listener", {}, linked_factory<Listener>()};
    const StageSpec two{"top_k", {{"k", std::int64_t{2}}}, nullptr}, greedy{"temperature", {{"value", 0.0}}, nullptr};
    EXPECT_EQ(told({listener, greedy}), "1: drawn 1 -0.693 -0.693");
    EXPECT_EQ(told({listener, two, greedy}), "1: drawn 1 -0.470 -0.693");  // log(0.5 / 0.8), log(0.5)
    EXPECT_EQ(told({two, listener, greedy}), "1: drawn 1 -0.470 -0.470");
    EXPECT_EQ(told({listener, two, greedy, {"mirostat", {}, nullptr}}), "1: drawn 1 -0.470 -0.693");
}

// A state with memory HISTORY begins with a longer text as it accepts the rest.
TEST(Sdk, BeginningIsAccepting) {
    const LetterVocabulary vocabulary(60);
    const std::vector<std::int32_t> text = {3, 9, 14, 22, 2, 7, 31, 12};
    for (std::size_t prompt = 0; prompt <= text.size(); ++prompt) {
        Chain walked({{"tester", {}, linked_factory<Tester>()}}, vocabulary);
        Chain begun({{"tester", {}, linked_factory<Tester>()}}, vocabulary);
        walked.begin(1, 0, std::span(text).first(prompt));
        for (std::size_t i = prompt; i < text.size(); ++i) walked.accept(text[i]);
        begun.begin(1, 0, text, 0, text.size() - prompt);
        for (int step = 0; step < 5; ++step) {
            std::vector<float> row(60);
            for (std::size_t id = 0; id < row.size(); ++id) row[id] = static_cast<float>((id * 37) % 60) * 0.1f;
            std::vector<float> same = row;
            const std::int32_t token = walked.decide(row).token;
            ASSERT_EQ(begun.decide(same).token, token) << prompt;
            walked.accept(token);
            begun.accept(token);
        }
    }
}

TEST(Sdk, FilesThatCannotBeRead) {
    const Folder folder;
    const SmallVocabulary vocabulary;
    const auto message = [&](const std::filesystem::path& path) -> std::string {
        try {
            Chain chain({{"listener", {{"words", path.string()}}, linked_factory<Listener>()}}, vocabulary);
        } catch (const Error& error) {
            return error.what();
        }
        return "";
    };
    const std::string start = "listener.words: the file " + folder.path.string();
    EXPECT_EQ(message(folder.path / "none"), start + "/none does not exist");
    EXPECT_EQ(message(folder.path), start + " is not a regular file");
    std::ofstream(folder.path / "big") << std::string(kMaxParameterFile + 1, 'x');
    EXPECT_EQ(message(folder.path / "big"), start + "/big has more than 16 MiB");
    std::ofstream(folder.path / "empty");
    EXPECT_EQ(message(folder.path / "empty"), "");
}

// What a create function leaves when it fails is not destroyed.
TEST(Sdk, LeftoversAreTheSamplers) {
    static int destroyed = 0;
    destroyed = 0;
    foresay_sampler sampler = detail::Adapter<Tester>::sampler;
    sampler.destroy = [](void*) { ++destroyed; };
    sampler.state_destroy = [](void*, void*) { ++destroyed; };
    const LetterVocabulary vocabulary(5);
    const auto make = [&] {
        EXPECT_THROW(Chain({{"tester", {}, make_plugin_factory(&sampler, nullptr, "test")}}, vocabulary), Error);
    };
    sampler.create = [](const foresay_host*, const foresay_value*, void** instance) {
        *instance = reinterpret_cast<void*>(0x10);
        return FORESAY_FAILED;
    };
    make();
    EXPECT_EQ(destroyed, 0);
    sampler.create = [](const foresay_host*, const foresay_value*, void** instance) {
        *instance = reinterpret_cast<void*>(0x10);
        return FORESAY_OK;
    };
    sampler.state_create = [](void*, void** state) {
        *state = reinterpret_cast<void*>(0x20);
        return FORESAY_FAILED;
    };
    make();
    EXPECT_EQ(destroyed, 1);  // the instance alone
}

// Floating-point state belongs to the host: it is put back, and the culprit is named.
struct Rounder {
    static constexpr Info info{"rounder", "1", "Changes how numbers are rounded.", "Apache-2.0"};
    explicit Rounder(Host) {}
    void process(const Context&, foresay::Candidates&) const { std::fesetround(FE_TOWARDZERO); }
};

TEST(Sdk, FloatingPointStateIsTheHosts) {
    const LetterVocabulary vocabulary(5);
    Chain chain({{"rounder", {}, linked_factory<Rounder>()}}, vocabulary);
    chain.begin(0, 0, {});
    std::vector<float> row(5, 0.0f);
    const Decision decision = chain.decide(row);
    EXPECT_EQ(std::fegetround(), FE_TONEAREST);
    ASSERT_NE(decision.failure, nullptr);
    EXPECT_EQ(decision.failure->message,
              "sampler 'rounder' failed: it changed the floating-point state in process(), which the text depends on");
}

// Two instances of one sampler differ in their keyed numbers; chains with equal parameters share one instance.
struct Counted {
    static constexpr Info info{"counted", "1", "Counts its instances.", "Apache-2.0"};
    struct Parameters {
        std::int64_t kind = 0;
    };
    static auto parameters() { return foresay::parameters(integer("kind", &Parameters::kind, 0, 9, "Whatever.")); }
    static inline int made = 0;
    Counted(Parameters, Host) { ++made; }
    bool test(const RandomContext& context, std::int32_t id) const {
        return id == 0 || context.uniform(static_cast<std::uint32_t>(id)) < 0.5;
    }
};

TEST(Sdk, InstancesAreSharedAndNamed) {
    const LetterVocabulary vocabulary(200);
    const auto factory = linked_factory<Counted>();
    Counted::made = 0;
    {
        Chain one({{"counted", {}, factory}}, vocabulary), two({{"counted", {}, factory}}, vocabulary);
        EXPECT_EQ(Counted::made, 1);
        EXPECT_NE(one.duplicate(), nullptr);
        EXPECT_EQ(Counted::made, 1);
        Chain other({{"counted", {{"kind", std::int64_t{1}}}, factory}}, vocabulary);
        EXPECT_EQ(Counted::made, 2);
    }
    Chain again({{"counted", {}, factory}}, vocabulary);
    EXPECT_EQ(Counted::made, 3);  // the first one is gone
    Chain first({{"first", {}, factory}}, vocabulary), second({{"second", {}, factory}}, vocabulary);
    Chain both({{"first", {}, factory}, {"second", {}, factory}}, vocabulary);
    int differ = 0;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        std::vector<float> a(200, 0.0f), b = a, c = a;
        for (Chain* chain : {&first, &second, &both}) chain->begin(seed, 0, {});
        const std::int32_t token = first.decide(a).token;
        differ += token != second.decide(b).token ? 1 : 0;
        EXPECT_EQ(both.decide(c).failure, nullptr);
    }
    EXPECT_GT(differ, 5);
}

}  // namespace
}  // namespace foresay::samplers
