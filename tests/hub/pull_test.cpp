// Pulling from a hub that works, over plain http, and over https with a certificate.
#include "hub/pull.h"

#include <sys/file.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <set>
#include <utility>

#include "tests/hub/pulling.h"

namespace foresay::hub {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::HubServer;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::Reply;
using testing::ServedRequest;

TEST_F(Pulling, PlacesAFileAsTheHubsOwnProgramsDo) {
    put(300'000);
    const PulledModel pulled = pull();
    const fs::path repo = settings_.cache / "models--ann--tiny-GGUF";
    EXPECT_EQ(pulled.path, repo / "snapshots" / commit_ / "tiny-Q4_0.gguf");
    EXPECT_EQ(contents(pulled.path), content_);
    EXPECT_EQ(fs::read_symlink(pulled.path), fs::path("../../blobs") / oid_);
    EXPECT_EQ(contents(repo / "refs/main"), commit_);
    EXPECT_EQ(pulled.model.choice, "Q4_0");
    EXPECT_EQ(pulled.fetched, 300'000);
    EXPECT_EQ(seen_.planned, 300'000);
    EXPECT_EQ(seen_.here, 300'000);
    EXPECT_FALSE(fs::exists(repo / "snapshots" / commit_ / "README.md")) << "no part of the model";
    EXPECT_FALSE(fs::exists(repo / "blobs" / (oid_ + ".incomplete")));
}

TEST_F(Pulling, FetchesNothingTwice) {
    put(300'000);
    pull();
    server_.forget_requests();
    EXPECT_EQ(pull().fetched, 0);
    EXPECT_THAT(content_requests(), IsEmpty());
    EXPECT_EQ(seen_.planned, 0);
}

TEST_F(Pulling, FetchesALargeFileInRangesOverSeveralConnections) {
    put(1'000'000);
    settings_.stall_timeout = std::chrono::minutes(1);
    std::mutex mutex;
    std::condition_variable arrived;
    int at_once = 0, most = 0;
    bool answered = false;
    std::chrono::seconds patience{20};
    server_.set_fault([&](const ServedRequest& request, Reply&) {
        if (!request.storage) return;
        std::unique_lock lock(mutex);
        // The first range tells where the others are to be had, so it comes alone.
        if (!std::exchange(answered, true)) return;
        most = std::max(most, ++at_once);
        arrived.notify_all();
        // Answered once there are as many as there may be, and a little later, so that one too many would be seen.
        if (!arrived.wait_for(lock, patience, [&] { return most >= settings_.connections; })) patience = {};
        arrived.wait_for(lock, std::chrono::milliseconds(20), [&] { return most > settings_.connections; });
        --at_once;
    });
    EXPECT_EQ(contents(pull().path), content_);
    EXPECT_EQ(most, settings_.connections);
    std::set<std::string> ranges;
    int resolved = 0;
    for (const ServedRequest& request : content_requests()) {
        if (!request.storage) {
            ++resolved;
            continue;
        }
        EXPECT_TRUE(ranges.insert(request.header("range")).second) << "a range came twice";
    }
    EXPECT_EQ(ranges.size(), 16u);
    EXPECT_EQ(resolved, 1) << "the hub need not be asked for every range";
}

TEST_F(Pulling, SendsTheTokenToTheHubAlone) {
    put(200'000);
    server_.gate(kRepo, "hf_secret");
    settings_.token = "hf_secret";
    EXPECT_EQ(contents(pull().path), content_);
    bool storage = false;
    for (const ServedRequest& request : server_.requests()) {
        storage = storage || request.storage;
        EXPECT_EQ(request.header("authorization"), request.storage ? "" : "Bearer hf_secret") << request.target;
    }
    EXPECT_TRUE(storage);
}

TEST_F(Pulling, ReadsAllPagesOfTheList) {
    std::vector<testing::ServedFile> files;
    for (int i = 0; i < 25; ++i) files.push_back({"docs/" + std::to_string(i) + ".md", "text", false});
    files.push_back({"tiny-Q8_0.gguf", "the model"});
    server_.put(kRepo, files);
    server_.set_page(10);
    EXPECT_EQ(contents(pull().path), "the model");
}

TEST_F(Pulling, TakesSmallFilesByGitsIdAndEmptyOnes) {
    server_.put(kRepo, {{"config.json", "{\"model_type\": \"llama\"}", false},
                        {"tokenizer.json", "", false},
                        {"model.safetensors", noise(100'000)},
                        {"pytorch_model.bin", noise(100'000, 2)},
                        {"original/consolidated.00.pth", noise(1000, 3)},
                        {"figure.png", noise(1000, 4)}});
    const PulledModel pulled = pull();
    EXPECT_EQ(pulled.path, cache().snapshot(kRepo, pulled.commit));
    std::vector<std::string> names;
    for (const HubFile& file : cache().files(kRepo, pulled.commit)) names.push_back(file.path);
    EXPECT_THAT(names, ElementsAre("config.json", "model.safetensors", "tokenizer.json"));
    EXPECT_EQ(contents(pulled.path / "config.json"), "{\"model_type\": \"llama\"}");
    EXPECT_EQ(fs::read_symlink(pulled.path / "config.json").filename(),
              testing::git_id_of("{\"model_type\": \"llama\"}"));
}

TEST_F(Pulling, TakesTheShardsThatTheIndexNames) {
    const std::string index = R"({"weight_map": {"a": "model-00001-of-00002.safetensors",
                                                "b": "model-00002-of-00002.safetensors"}})";
    server_.put(kRepo, {{"config.json", "{}", false},
                        {"model.safetensors.index.json", index, false},
                        {"model-00001-of-00002.safetensors", "one"},
                        {"model-00002-of-00002.safetensors", "two"},
                        {"consolidated.safetensors", "all again"}});
    const PulledModel pulled = pull();
    EXPECT_EQ(contents(pulled.path / "model-00002-of-00002.safetensors"), "two");
    EXPECT_FALSE(fs::exists(pulled.path / "consolidated.safetensors"));
    EXPECT_EQ(find_model(cache(), parse_model_name(kRepo)), pulled.path);
    fs::remove(pulled.path / "model-00001-of-00002.safetensors");
    EXPECT_FALSE(find_model(cache(), parse_model_name(kRepo))) << "a shard is missing";
}

TEST_F(Pulling, TakesAllPartsOfASplitFile) {
    server_.put(kRepo, {{"Q4_K_M/tiny-Q4_K_M-00001-of-00002.gguf", "one"},
                        {"Q4_K_M/tiny-Q4_K_M-00002-of-00002.gguf", "two"},
                        {"mmproj-tiny-Q4_K_M.gguf", "eyes"},
                        {"tiny.imatrix.gguf", "importance"}});
    const PulledModel pulled = pull();
    EXPECT_EQ(pulled.path.filename(), "tiny-Q4_K_M-00001-of-00002.gguf");
    EXPECT_EQ(contents(pulled.path.parent_path() / "tiny-Q4_K_M-00002-of-00002.gguf"), "two");
    EXPECT_EQ(pulled.model.files.size(), 2u);
    EXPECT_EQ(fs::read_symlink(pulled.path), fs::path("../../../blobs") / testing::sha256_of("one"));
    EXPECT_EQ(fs::read_symlink(pulled.path).is_relative(), true);
}

TEST_F(Pulling, FollowsARevision) {
    put(1000);
    EXPECT_EQ(pull(std::string(kRepo) + "@refs/pr/1:q4_0").commit, commit_);
    EXPECT_EQ(cache().commit_of(kRepo, "refs/pr/1"), commit_);
    EXPECT_EQ(cache().commit_of(kRepo, "main"), std::nullopt);
    EXPECT_EQ(pull(std::string(kRepo) + "@" + commit_).commit, commit_);
    EXPECT_EQ(cache().refs(kRepo).size(), 1u) << "a commit is no revision of its own";
}

TEST_F(Pulling, ANewCommitSharesWhatHasNotChanged) {
    const std::string same = noise(100'000, 7);
    server_.put(kRepo, {{"a-Q4_0.gguf", same}});
    const PulledModel first = pull();
    server_.put(kRepo, {{"a-Q4_0.gguf", same}, {"README.md", "new", false}});
    const PulledModel second = pull();
    EXPECT_NE(first.commit, second.commit);
    EXPECT_EQ(second.fetched, 0);
    EXPECT_EQ(fs::canonical(first.path), fs::canonical(second.path));
    EXPECT_EQ(cache().commit_of(kRepo, "main"), second.commit);
}

TEST_F(Pulling, ContinuesWhatIsHere) {
    put(500'000);
    cache().prepare(kRepo);
    const fs::path incomplete = cache().blob(kRepo, oid_ + ".incomplete");
    std::ofstream(incomplete, std::ios::binary) << content_.substr(0, 333'333);
    const PulledModel pulled = pull();
    EXPECT_EQ(contents(pulled.path), content_);
    EXPECT_EQ(pulled.fetched, 500'000 - 333'333);
    for (const ServedRequest& request : content_requests()) {
        const std::string range = request.header("range");
        EXPECT_GE(std::stoi(range.substr(6)), 333'333);
    }
}

TEST_F(Pulling, FetchesAgainWhatWasDamagedHere) {
    put(500'000);
    cache().prepare(kRepo);
    std::ofstream(cache().blob(kRepo, oid_ + ".incomplete"), std::ios::binary) << noise(200'000, 99);
    EXPECT_EQ(contents(pull().path), content_);
    EXPECT_THAT(seen_.notes, Contains(HasSubstr("is damaged")));
    // A blob of another length is no blob.
    std::ofstream(cache().blob(kRepo, oid_), std::ios::binary | std::ios::trunc) << "short";
    EXPECT_EQ(contents(pull().path), content_);
}

TEST_F(Pulling, StopsAtAnyMomentAndGoesOn) {
    put(800'000);
    int stops = 0;
    for (std::int64_t limit = 0;; limit += 150'000) {
        seen_.cancel = false;
        seen_.on_progress = [&](std::int64_t done) { seen_.cancel = seen_.cancel || done > limit; };
        server_.set_fault([](const ServedRequest& request, Reply& reply) {
            if (request.storage) reply.piece = std::chrono::milliseconds(2);
        });
        try {
            EXPECT_EQ(contents(pull().path), content_);
            break;
        } catch (const Cancelled& cancelled) {
            EXPECT_THAT(cancelled.what(), HasSubstr("continues where it stopped"));
            expect_nothing_visible();
            ++stops;
        }
    }
    EXPECT_GE(stops, 3);
}

TEST_F(Pulling, WaitsForAnotherProgramThatFetchesTheSame) {
    put(1000);
    cache().prepare(kRepo);
    const fs::path lock = settings_.cache / ".locks/models--ann--tiny-GGUF" / (oid_ + ".lock");
    const int descriptor = ::open(lock.c_str(), O_RDWR | O_CREAT, 0666);
    ASSERT_EQ(::flock(descriptor, LOCK_EX), 0);
    // The other one is done when the wait has been said.
    seen_.on_progress = [&](std::int64_t) {
        if (seen_.notes.empty() || fs::exists(cache().blob(kRepo, oid_))) return;
        std::ofstream(cache().blob(kRepo, oid_), std::ios::binary) << content_;
        ::flock(descriptor, LOCK_UN);
    };
    const PulledModel pulled = pull();
    ::close(descriptor);
    EXPECT_EQ(contents(pulled.path), content_);
    EXPECT_EQ(pulled.fetched, 0);
    EXPECT_THAT(seen_.notes, ElementsAre(HasSubstr("another program is fetching")));
    EXPECT_THAT(content_requests(), IsEmpty());
}

TEST_F(Pulling, OfflineUsesWhatIsHereAndAsksNoOne) {
    put(1000);
    settings_.offline = true;
    EXPECT_THAT(refusal(), AllOf(HasSubstr("HF_HUB_OFFLINE is set"), HasSubstr("is not complete in")));
    settings_.offline = false;
    const PulledModel pulled = pull();
    settings_.offline = true;
    server_.forget_requests();
    EXPECT_EQ(pull().path, pulled.path);
    EXPECT_EQ(pull().model.choice, "Q4_0");
    EXPECT_THAT(server_.requests(), IsEmpty());
}

TEST_F(Pulling, RefusesACertificateThatNothingVouchesFor) {
    HubServer secure(true);
    secure.put(kRepo, {{"tiny-Q4_0.gguf", "the model"}});
    settings_.endpoint = secure.url();
    EXPECT_THAT(refusal(), AllOf(HasSubstr("certificate of https://127.0.0.1:"), HasSubstr("is not trusted"),
                                 HasSubstr("SSL_CERT_FILE")));
    EXPECT_THAT(secure.requests(), IsEmpty());
    expect_nothing_visible();
    settings_.ca_file = folder_ / "ca.pem";
    std::ofstream(settings_.ca_file) << secure.certificate();
    EXPECT_EQ(contents(pull().path), "the model");
}

}  // namespace
}  // namespace foresay::hub
