// The cache on this disk: what is found in it, and what removing leaves. Nothing here needs a network.
#include "hub/cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/error.h"
#include "tests/weights/temporary_directory.h"

namespace foresay::hub {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kOld(40, 'a'), kNew(40, 'b');

class HubCache : public ::testing::Test {
protected:
    // A file of a snapshot, as the hub's programs lay it out.
    void add(const std::string& repo, const std::string& commit, const std::string& path, const std::string& content,
             char oid) {
        cache_.prepare(repo);
        const HubFile file{path, static_cast<std::int64_t>(content.size()), std::string(64, oid)};
        folder_.write(fs::relative(cache_.blob(repo, file.oid), folder_.path()).string(), content);
        cache_.link(repo, commit, file);
    }
    std::optional<fs::path> find(const std::string& name) const { return find_model(cache_, parse_model_name(name)); }
    void remove_model(const std::string& name) const {
        hub::remove(cache_, plan_removal(cache_, parse_model_name(name)));
    }
    std::string refusal(const std::string& name) const {
        try {
            plan_removal(cache_, parse_model_name(name));
        } catch (const Error& problem) {
            return problem.what();
        }
        return "";
    }
    bool has_blob(char oid) const { return fs::exists(cache_.blob("ann/x", std::string(64, oid))); }

    core::testing::TemporaryDirectory folder_;
    Cache cache_{folder_.path() / "hub"};
};

TEST_F(HubCache, FindsModelsByNameRevisionAndQuantisation) {
    EXPECT_EQ(find("ann/x"), std::nullopt);
    add("ann/x", kOld, "x-Q4_0.gguf", "old", '1');
    add("ann/x", kNew, "x-Q4_0.gguf", "new", '2');
    add("ann/x", kNew, "x-Q8_0.gguf", "large", '3');
    EXPECT_EQ(find("ann/x"), std::nullopt) << "no revision says which";
    cache_.set_ref("ann/x", "main", kNew);
    cache_.set_ref("ann/x", "refs/pr/1", kOld);
    const fs::path here = cache_.snapshot("ann/x", kNew);
    EXPECT_EQ(find("ann/x"), here / "x-Q4_0.gguf");
    EXPECT_EQ(find("ann/x:q8_0"), here / "x-Q8_0.gguf");
    EXPECT_EQ(find("ann/x:Q2_K"), std::nullopt);
    EXPECT_EQ(find("ann/x@refs/pr/1"), cache_.snapshot("ann/x", kOld) / "x-Q4_0.gguf");
    EXPECT_EQ(find("ann/x@" + kOld), cache_.snapshot("ann/x", kOld) / "x-Q4_0.gguf");
    EXPECT_EQ(find("ann/x@" + kOld.substr(0, 7)), cache_.snapshot("ann/x", kOld) / "x-Q4_0.gguf");
    EXPECT_EQ(find("ann/x@aaa"), std::nullopt);
    EXPECT_THAT(cache_.repos(), ElementsAre("ann/x"));
    EXPECT_THAT(cache_.refs("ann/x"), ElementsAre(std::pair("main", kNew), std::pair("refs/pr/1", kOld)));
}

TEST_F(HubCache, ToleratesRubbish) {
    add("ann/x", kNew, "x-Q4_0.gguf", "new", '1');
    const auto write = [&](const std::string& path, const std::string& text) {
        fs::create_directories((folder_.path() / "hub" / path).parent_path());
        folder_.write("hub/" + path, text);
    };
    write("models--ann--x/refs/main", "../../../../etc\n");
    write("models--ann--x/refs/empty", "");
    write("models--ann--x/snapshots/file", "no folder");
    write("models--", "");
    write("models--..--..", "");
    write("models--bad name/refs/main", "x");
    write("datasets--ann--y/refs/main", kNew);
    write("version.txt", "1");
    fs::create_symlink("../../blobs/gone", cache_.snapshot("ann/x", kNew) / "y-Q8_0.gguf");
    fs::create_directory_symlink("/", cache_.snapshot("ann/x", kNew) / "everything");
    fs::create_directory_symlink("/", folder_.path() / "hub/models--ann--x/snapshots" / kOld);
    EXPECT_THAT(cache_.repos(), ElementsAre("ann/x"));
    EXPECT_THAT(cache_.commits("ann/x"), ElementsAre(kNew));
    ASSERT_EQ(cache_.files("ann/x", kNew).size(), 1u) << "neither the broken link nor the folder that is a link";
    EXPECT_EQ(cache_.files("ann/x", kNew)[0].path, "x-Q4_0.gguf");
    EXPECT_EQ(find("ann/x"), std::nullopt) << "the revision is no commit";
    EXPECT_NE(find("ann/x@" + kNew), std::nullopt);
}

TEST_F(HubCache, RemovesAModelAndKeepsWhatAnotherNeeds) {
    add("ann/x", kOld, "x-Q4_0.gguf", "shared", '1');
    add("ann/x", kNew, "x-Q4_0.gguf", "shared", '1');
    add("ann/x", kNew, "x-Q8_0.gguf", "large one", '2');
    cache_.set_ref("ann/x", "main", kNew);
    cache_.set_ref("ann/x", "v1", kOld);
    folder_.write("hub/models--ann--x/blobs/" + std::string(64, '7') + ".incomplete", "part");
    const Removal plan = plan_removal(cache_, parse_model_name("ann/x:q8_0"));
    EXPECT_EQ(plan.bytes, 9 + 4);
    EXPECT_FALSE(plan.whole);
    hub::remove(cache_, plan);
    EXPECT_FALSE(has_blob('2'));
    EXPECT_TRUE(has_blob('1'));
    EXPECT_NE(find("ann/x"), std::nullopt);
    EXPECT_FALSE(fs::exists(folder_.path() / "hub/models--ann--x/blobs" / (std::string(64, '7') + ".incomplete")));
    remove_model("ann/x@v1");
    EXPECT_TRUE(has_blob('1')) << "main needs it";
    EXPECT_THAT(cache_.commits("ann/x"), ElementsAre(kNew));
    EXPECT_EQ(cache_.commit_of("ann/x", "v1"), std::nullopt);
    remove_model("ann/x:Q4_0");
    EXPECT_FALSE(fs::exists(cache_.repo_folder("ann/x"))) << "nothing remains";
    EXPECT_THAT(refusal("ann/x"), HasSubstr("there is no ann/x in"));
}

TEST_F(HubCache, RemovesAWholeRepository) {
    add("ann/x", kOld, "deep/er/x-Q4_0.gguf", "one", '1');
    add("ann/x", kNew, "README.md", "two", '2');
    add("ann/y", kNew, "y-Q4_0.gguf", "other", '3');
    cache_.set_ref("ann/x", "refs/pr/1", kOld);
    remove_model("ann/x");
    EXPECT_FALSE(fs::exists(cache_.repo_folder("ann/x")));
    EXPECT_TRUE(fs::exists(cache_.snapshot("ann/y", kNew) / "y-Q4_0.gguf"));
    EXPECT_THAT(cache_.repos(), ElementsAre("ann/y"));
}

TEST_F(HubCache, RemovesAFolderOfSafetensorsWithItsShards) {
    add("ann/x", kNew, "config.json", "{}", '1');
    add("ann/x", kNew, "model.safetensors.index.json", R"({"weight_map": {"a": "s.safetensors"}})", '2');
    add("ann/x", kNew, "s.safetensors", "shard", '3');
    add("ann/x", kNew, "x-Q4_0.gguf", "gguf", '4');
    cache_.set_ref("ann/x", "main", kNew);
    remove_model("ann/x:safetensors");
    EXPECT_FALSE(has_blob('1') || has_blob('2') || has_blob('3'));
    EXPECT_TRUE(has_blob('4'));
    EXPECT_NE(find("ann/x"), std::nullopt);
}

TEST_F(HubCache, NamesWhatIsNotThere) {
    add("ann/x", kNew, "x-Q4_K_M.gguf", "one", '1');
    add("ann/x", kNew, "x-Q4_K_S.gguf", "two", '2');
    cache_.set_ref("ann/x", "main", kNew);
    EXPECT_THAT(refusal("ann/x:Q8_0"),
                HasSubstr("ann/x has no 'Q8_0'; name one of them after a colon: Q4_K_M, Q4_K_S"));
    EXPECT_THAT(refusal("ann/x:Q4_K"), HasSubstr("several models that 'Q4_K' may mean"));
    EXPECT_THAT(refusal("ann/x@v2"), HasSubstr("ann/x has no revision v2 here"));
    EXPECT_THAT(refusal("ann/z"), HasSubstr("there is no ann/z in"));
}

TEST_F(HubCache, NeverFollowsALinkOutOfTheCache) {
    folder_.write("precious", "do not touch");
    fs::create_directory(folder_.path() / "elsewhere");
    folder_.write("elsewhere/precious", "do not touch");
    add("ann/x", kNew, "x-Q4_0.gguf", "one", '1');
    const fs::path snapshot = cache_.snapshot("ann/x", kNew);
    fs::create_symlink(folder_.path() / "precious", snapshot / "y-Q8_0.gguf");
    fs::create_directory_symlink(folder_.path() / "elsewhere", snapshot / "folder");
    fs::create_symlink(folder_.path() / "precious", cache_.blob("ann/x", std::string(64, '9')));
    remove_model("ann/x");
    EXPECT_FALSE(fs::exists(cache_.repo_folder("ann/x")));
    EXPECT_TRUE(fs::exists(folder_.path() / "precious"));
    EXPECT_TRUE(fs::exists(folder_.path() / "elsewhere/precious"));
    // A folder of the cache that is a link itself.
    for (const std::string part : {"", "blobs", "snapshots", "refs"}) {
        add("ann/y", kNew, "y-Q4_0.gguf", "one", '1');
        cache_.set_ref("ann/y", "main", kNew);
        const fs::path folder = part.empty() ? cache_.repo_folder("ann/y") : cache_.repo_folder("ann/y") / part;
        const fs::path moved = folder_.path() / ("moved" + part);
        fs::rename(folder, moved);
        fs::create_directory_symlink(moved, folder);
        EXPECT_THAT(refusal("ann/y"), HasSubstr("is a link to")) << part;
        EXPECT_FALSE(fs::is_empty(moved));
        fs::remove_all(cache_.repo_folder("ann/y"));
    }
}

TEST_F(HubCache, LinksStayInTheSnapshot) {
    add("ann/x", kNew, "x-Q4_0.gguf", "one", '1');
    fs::create_directory(folder_.path() / "elsewhere");
    fs::create_directory_symlink(folder_.path() / "elsewhere", cache_.snapshot("ann/x", kNew) / "folder");
    EXPECT_THROW(add("ann/x", kNew, "folder/y-Q8_0.gguf", "two", '2'), Error);
    EXPECT_TRUE(fs::is_empty(folder_.path() / "elsewhere"));
    // What was there in its place is replaced.
    folder_.write("hub/models--ann--x/snapshots/" + kNew + "/z-Q8_0.gguf", "an old copy");
    add("ann/x", kNew, "z-Q8_0.gguf", "three", '3');
    EXPECT_TRUE(fs::is_symlink(cache_.snapshot("ann/x", kNew) / "z-Q8_0.gguf"));
}

TEST_F(HubCache, DoesNotRemoveWhatIsBeingFetched) {
    add("ann/x", kNew, "x-Q4_0.gguf", "one", '1');
    const std::string oid(64, '5');
    folder_.write("hub/models--ann--x/blobs/" + oid + ".incomplete", "part");
    {
        const BlobLock lock(cache_, "ann/x", oid, [] {});
        EXPECT_THAT(refusal("ann/x"), HasSubstr("a program is fetching files of ann/x now"));
    }
    remove_model("ann/x");
    EXPECT_THAT(cache_.repos(), IsEmpty());
}

}  // namespace
}  // namespace foresay::hub
