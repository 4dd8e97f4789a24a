#include "plugins/host/plugin_host.h"

#include <algorithm>
#include <cstdlib>

#include "samplers/chain.h"
#include "samplers/float_state.h"
#include "tests/plugins/support.h"
#include "tests/samplers/support.h"

namespace foresay::plugins {
namespace {

const std::filesystem::path kGood = FORESAY_PLUGIN_FOLDER;
const std::filesystem::path kBad = FORESAY_BAD_FOLDER;

std::string load_error(const std::string& name) {
    return error_of([&] { PluginHost({{kBad}, {}}).load(name); });
}
std::string file(const std::string& name) { return std::filesystem::canonical(kBad / (name + ".so")).string(); }

TEST(PluginHost, LoadsFromTheFirstFolderThatHasIt) {
    OwnFolder own;
    std::filesystem::copy_file(kGood / "wordlist.so", own.path() / "wordlist.so");
    PluginHost host({{own.path(), kGood}, {}});
    EXPECT_EQ(host.load("wordlist")->description().name, "wordlist");
    EXPECT_EQ(host.load("wordlist", kGood / "wordlist.so")->description().name, "wordlist");
    const auto files = host.scan();
    const auto found = std::find_if(files.begin(), files.end(), [](const auto& f) { return f.name == "wordlist"; });
    ASSERT_NE(found, files.end());
    EXPECT_EQ(found->path, std::filesystem::canonical(own.path() / "wordlist.so"));
    EXPECT_EQ(found->problem, "");
}

TEST(PluginHost, StagesOutliveTheHost) {
    const samplers::LetterVocabulary vocabulary(30);
    std::unique_ptr<samplers::Chain> chain;
    {
        OwnFolder markers;
        PluginHost host({{kGood}, markers.path() / "marker"});
        chain = std::make_unique<samplers::Chain>(
            samplers::ChainSpec{{"wordlist", {{"forbid", std::vector<std::string>{"a"}}}, host.load("wordlist")}},
            vocabulary);
    }
    chain->begin(0, 0, {});
    std::vector<float> row(30, 0.0f);
    row[0] = 100.0f;  // "a"
    EXPECT_NE(chain->decide(row).token, 0);
}

TEST(PluginHost, WhatIsNotThereIsSaid) {
    PluginHost host({{kGood}, {}});
    EXPECT_EQ(error_of([&] { host.load("nowhere"); }),
              "plugin 'nowhere' was not found; searched for nowhere.so in " + kGood.lexically_normal().string());
    EXPECT_EQ(error_of([&] { host.load("x", "/does/not/exist.so"); }),
              "plugin '/does/not/exist.so' cannot be loaded: No such file or directory");
    EXPECT_EQ(error_of([&] { host.load("other", kGood / "wordlist.so"); }),
              "plugin '" + std::filesystem::canonical(kGood / "wordlist.so").string() +
                  "' holds no sampler 'other', only 'wordlist'");
}

TEST(PluginHost, TheCurrentFolderIsNotSearched) {
    OwnFolder own;
    std::filesystem::copy_file(kGood / "wordlist.so", own.path() / "wordlist.so");
    const auto before = std::filesystem::current_path();
    std::filesystem::current_path(own.path());
    PluginHost host({{"."}, {}});
    const std::string error = error_of([&] { host.load("wordlist"); });
    const bool found = !host.scan().empty();
    std::filesystem::current_path(before);
    EXPECT_EQ(error,
              "plugin 'wordlist' was not found; searched for wordlist.so in no folder at all; not in ., since only "
              "absolute paths are searched");
    EXPECT_FALSE(found);
}

TEST(PluginHost, WhatEveryoneCanChangeIsNotLoaded) {
    OwnFolder own;
    const std::filesystem::path path = own.path() / "wordlist.so";
    std::filesystem::copy_file(kGood / "wordlist.so", path);
    using std::filesystem::perms;
    for (const auto& open : {path, own.path()}) {
        std::filesystem::permissions(open, perms::others_write, std::filesystem::perm_options::add);
        const std::string problem = "every user of this machine can change " + open.string() +
                                    ", so anyone can run code as you through it; chmod o-w it first";
        PluginHost host({{own.path()}, {}});
        EXPECT_EQ(error_of([&] { host.load("wordlist"); }),
                  "plugin '" + path.string() + "' cannot be loaded: " + problem);
        EXPECT_EQ(host.scan().at(0).problem, problem);
        EXPECT_EQ(PluginHost::inspect(path).problem, problem);
        std::filesystem::permissions(open, perms::others_write, std::filesystem::perm_options::remove);
    }
    EXPECT_EQ(PluginHost({{own.path()}, {}}).load("wordlist")->description().name, "wordlist");
}

// What is admitted is loaded, even if the file changes in that moment.
TEST(PluginHost, LoadsTheBytesThatWereAdmitted) {
    OwnFolder own;
    const std::filesystem::path path = own.path() / "wordlist.so", link = own.path() / "link.so";
    const std::string good = read_file(kGood / "wordlist.so"), other = read_file(kBad / "bad_two.so");
    write_file(path, good);
    std::filesystem::create_symlink(path, link);
    const auto admit = [&](const std::filesystem::path& stated, std::span<const std::byte> bytes) -> std::string {
        EXPECT_EQ(stated, link);
        EXPECT_TRUE(std::ranges::equal(bytes, std::as_bytes(std::span(good))));
        write_file(path, other);
        return {};
    };
    EXPECT_EQ(PluginHost({.folders = {}, .marker = {}, .admit = admit}).load("wordlist", link)->description().name,
              "wordlist");
    PluginHost refusing({.folders = {}, .marker = {}, .admit = [](const auto&, auto) { return "it is not wanted"; }});
    EXPECT_EQ(error_of([&] { refusing.load_all(path); }),
              "plugin '" + path.string() + "' cannot be loaded: it is not wanted");
}

TEST(PluginHost, BadPluginsGetTheirSentence) {
    EXPECT_EQ(load_error("bad_other_version"),
              "plugin '" + file("bad_other_version") +
                  "' cannot be used: it was built for version 99.0 of the sampler contract, and this program has 1.0; "
                  "build it again");
    EXPECT_EQ(load_error("bad_function"), "plugin '" + file("bad_function") +
                                              "' cannot be loaded: its 'foresay_sampler_entry' is not what a sampler "
                                              "plugin exports");
    EXPECT_EQ(load_error("bad_no_entry"),
              "plugin '" + file("bad_no_entry") +
                  "' cannot be loaded: it does not export 'foresay_sampler_entry', so it is "
                  "not a sampler plugin");
    const std::string crashes =
        "' cannot be loaded: it crashes when it is loaded; the file is damaged or was built for "
        "another system";
    EXPECT_EQ(load_error("bad_crashes_on_load"), "plugin '" + file("bad_crashes_on_load") + crashes);
    EXPECT_EQ(load_error("bad_wild_pointer"), "plugin '" + file("bad_wild_pointer") + crashes);
    EXPECT_EQ(load_error("bad_exits_on_load"),
              "plugin '" + file("bad_exits_on_load") + "' cannot be loaded: it ends the program when it is loaded");
    EXPECT_EQ(load_error("bad_absurd_count"),
              "plugin '" + file("bad_absurd_count") +
                  "' cannot be used: its sampler_count is 4000000000, but a library holds at most 256 samplers");
    EXPECT_EQ(load_error("bad_one_name"),
              "plugin '" + file("bad_one_name") + "' cannot be used: it holds two samplers 'bad_one_name'");
    EXPECT_EQ(load_error("bad_two"),
              "plugin '" + file("bad_two") + "' holds no sampler 'bad_two', only 'first', 'second'");
}

#if defined(__x86_64__)
TEST(PluginHost, FloatingPointStateIsNotItsOwn) {
    const samplers::FloatState before;
    EXPECT_EQ(load_error("bad_flushes"),
              "plugin '" + file("bad_flushes") +
                  "' cannot be loaded: it changes how this thread computes with small numbers (flush-to-zero), which "
                  "changes the text; build and link it without -ffast-math");
    EXPECT_TRUE(samplers::FloatState() == before);
}
#endif

// A file that has changed is another library; what was loaded stays as it was.
TEST(PluginHost, ARebuiltPluginIsNew) {
    OwnFolder own;
    const std::filesystem::path path = own.path() / "x.so";
    const auto put = [&](const std::filesystem::path& from) {
        std::filesystem::copy_file(from, path, std::filesystem::copy_options::overwrite_existing);
    };
    PluginHost host({{own.path()}, {}});
    put(kBad / "bad_two.so");
    const auto two = host.load_all(path);
    ASSERT_EQ(two.size(), 2u);
    put(kGood / "wordlist.so");
    const auto one = host.load_all(path);
    ASSERT_EQ(one.size(), 1u);
    EXPECT_EQ(one[0]->description().name, "wordlist");
    // In place, byte by byte, too.
    const std::string bytes = read_file(kBad / "bad_two.so");
    write_file(path, bytes);
    EXPECT_EQ(host.load_all(path).size(), 2u);
    const samplers::LetterVocabulary vocabulary(10);
    for (const auto& factory : {two[0], one[0]}) {
        samplers::Chain chain({{factory->description().name, {}, factory}}, vocabulary);
        chain.begin(0, 0, {});
        std::vector<float> row(10, 0.0f);
        EXPECT_EQ(chain.decide(row).failure, nullptr);
    }
}

TEST(PluginHost, BadStagesGetTheirSentence) {
    const samplers::LetterVocabulary vocabulary(10);
    PluginHost host({{kBad}, {}});
    const auto failure = [&](const std::string& name) {
        samplers::Chain chain({{name, {}, host.load(name)}}, vocabulary);
        chain.begin(0, 0, {});
        std::vector<float> row(10, 0.0f);
        const samplers::Decision decision = chain.decide(row);
        return decision.failure != nullptr ? decision.failure->message : std::string("none");
    };
    EXPECT_EQ(failure("bad_throws"), "sampler 'bad_throws' failed: it throws on purpose");
    EXPECT_EQ(failure("bad_nan"), "sampler 'bad_nan' failed: it returned a logit that is not a number, or infinite");
    EXPECT_EQ(failure("bad_none"), "sampler 'bad_none' failed: it left no token");
    EXPECT_EQ(error_of([&] { failure("bad_refuses"); }), "bad_refuses: it does not want to");
}

TEST(PluginHost, DefaultFoldersFollowTheEnvironment) {
    ::setenv("FORESAY_PLUGIN_PATH", "/one::/two", 1);
    ::setenv("XDG_DATA_HOME", "/data", 1);
    const auto folders = default_folders("/usr/bin");
    ::unsetenv("FORESAY_PLUGIN_PATH");
    ::unsetenv("XDG_DATA_HOME");
    std::vector<std::string> names;
    for (const auto& folder : folders) names.push_back(folder.lexically_normal().string());
    EXPECT_EQ(names, (std::vector<std::string>{"/one", "/two", "/data/foresay/plugins", "/usr/lib/foresay/plugins",
                                               "/usr/plugins"}));
}

}  // namespace
}  // namespace foresay::plugins
