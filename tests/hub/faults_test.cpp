// A hub that lies and a network that breaks: one sentence, and nothing that is half-written becomes visible.
#include <sys/resource.h>

#include <csignal>
#include <map>
#include <mutex>

#include "tests/hub/pulling.h"

namespace foresay::hub {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::Reply;
using testing::ServedRequest;
using ::testing::SizeIs;

class Faults : public Pulling {
protected:
    // Changes answers of the storage to `change`.
    void storage(std::function<void(Reply&)> change) {
        server_.set_fault([change = std::move(change)](const ServedRequest& request, Reply& reply) {
            if (request.storage) change(reply);
        });
    }
    // Likewise of the hub where it lists or resolves: `part` of the target.
    void hub(const std::string& part, std::function<void(Reply&)> change) {
        server_.set_fault([part, change = std::move(change)](const ServedRequest& request, Reply& reply) {
            if (!request.storage && request.target.find(part) != std::string::npos) change(reply);
        });
    }
    // One sentence that says what, and nothing visible.
    void expect_refused(const ::testing::Matcher<const std::string&>& wanted) {
        const std::string text = refusal();
        EXPECT_THAT(text, AllOf(wanted, Not(HasSubstr("\n"))));
        expect_nothing_visible();
    }
    // Every range fails the first `times` times, differently, and the pull goes on.
    void expect_repaired(std::function<void(Reply&)> change, int times = 1) {
        put(400'000);
        std::mutex mutex;
        std::map<std::string, int> seen;
        server_.set_fault([&](const ServedRequest& request, Reply& reply) {
            if (!request.storage) return;
            const std::scoped_lock lock(mutex);
            if (seen[request.header("range")]++ < times) change(reply);
        });
        EXPECT_EQ(contents(pull().path), content_);
        EXPECT_GE(seen.size(), 7u);
        server_.set_fault(nullptr);
    }
};

TEST_F(Faults, AConnectionThatEndsEarlyIsTakenUpAgain) {
    expect_repaired([](Reply& reply) { reply.cut = 20'000; });
    EXPECT_THAT(seen_.notes, Contains(AllOf(HasSubstr("was lost"), HasSubstr("trying again in"))));
}
TEST_F(Faults, AResetConnectionIsTakenUpAgain) {
    expect_repaired([](Reply& reply) {
        reply.cut = 20'000;
        reply.reset = true;
    });
}
TEST_F(Faults, ABodyOfUnknownLengthThatEndsEarlyIsTakenUpAgain) {
    expect_repaired([](Reply& reply) {
        reply.no_length = true;
        reply.cut = 5000;
    });
}
TEST_F(Faults, AStorageInTroubleIsAskedAgain) {
    for (const int status : {500, 502, 503, 504, 429, 408}) {
        expect_repaired([status](Reply& reply) { reply = {status, {}, "busy"}; }, 2);
        fs::remove_all(settings_.cache);
    }
}
TEST_F(Faults, AnAddressThatHasExpiredIsAskedForAgain) {
    expect_repaired([](Reply& reply) { reply = {403, {}, "expired"}; });
}
TEST_F(Faults, ASilentConnectionIsTakenUpAgain) {
    put(100'000);
    int times = 0;
    storage([&](Reply& reply) {
        if (times++ > 0) return;
        reply.cut = 10'000;
        reply.hang = true;
    });
    EXPECT_EQ(contents(pull().path), content_);
    EXPECT_GT(times, 1);
}

TEST_F(Faults, AStorageWithoutRangesIsReadInOnePiece) {
    put(400'000);
    storage([&](Reply& reply) { reply = {200, {}, content_}; });
    EXPECT_EQ(contents(pull().path), content_);
    EXPECT_THAT(content_requests(), SizeIs(2));
    fs::remove_all(settings_.cache);
    // Also when there is a beginning that it cannot continue, and when it breaks on the way.
    cache().prepare(kRepo);
    std::ofstream(cache().blob(kRepo, oid_ + ".incomplete"), std::ios::binary) << content_.substr(0, 100'000);
    int times = 0;
    storage([&](Reply& reply) {
        reply = {200, {}, content_};
        if (times++ == 0) reply.cut = 200'000;
    });
    EXPECT_EQ(contents(pull().path), content_);
    EXPECT_EQ(times, 2);
}

TEST_F(Faults, WhatNeverArrivesIsGivenUpAndKeptForLater) {
    put(400'000);
    storage([&](Reply& reply) {
        const bool first = reply.headers["Content-Range"].starts_with("bytes 0-");
        if (!first) reply = {503, {}, ""};
    });
    expect_refused(AllOf(HasSubstr("has trouble (status 503)"), HasSubstr("try again later")));
    EXPECT_EQ(contents(cache().blob(kRepo, oid_ + ".incomplete")), content_.substr(0, 65536));
    server_.set_fault(nullptr);
    EXPECT_EQ(pull().fetched, 400'000 - 65'536);
}

TEST_F(Faults, ALostConnectionIsGivenUp) {
    put(400'000);
    storage([](Reply& reply) {
        reply.cut = 0;
        reply.reset = true;
    });
    expect_refused(AllOf(HasSubstr("the connection to http://127.0.0.1:"), HasSubstr("was lost")));
}

TEST_F(Faults, TooManyRequests) {
    put(1000);
    hub("/revision/", [](Reply& reply) { reply = {429, {{"Retry-After", "4000"}}, ""}; });
    expect_refused(HasSubstr("asks to wait 4000 seconds (status 429)"));
    hub("/revision/", [](Reply& reply) { reply = {429, {{"RateLimit", "\"api\";r=0;t=5000"}}, ""}; });
    expect_refused(HasSubstr("asks to wait 5000 seconds"));
    hub("/revision/", [](Reply& reply) { reply = {429, {}, ""}; });
    expect_refused(AllOf(HasSubstr("too many requests from here (status 429)"), HasSubstr("HF_TOKEN")));
    EXPECT_THAT(server_.requests(), SizeIs(1 + 1 + settings_.tries));
    // A wait that is short enough is kept.
    int times = 0;
    hub("/revision/", [&](Reply& reply) {
        if (times++ == 0) reply = {429, {{"Retry-After", "1"}}, ""};
    });
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(contents(pull().path), content_);
    EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
}

TEST_F(Faults, RefusalsOfTheHub) {
    put(1000);
    struct Case {
        std::string part;
        int status;
        std::string code, wanted;
    };
    const std::vector<Case> cases = {
        {"/revision/", 401, "RepoNotFound", "there is no ann/tiny-GGUF at http://127.0.0.1"},
        {"/revision/", 404, "RepoNotFound", "or it is private and needs HF_TOKEN; check the name"},
        {"/revision/", 404, "RevisionNotFound", "ann/tiny-GGUF has no revision 'main'"},
        {"/revision/", 404, "", "there is no ann/tiny-GGUF"},
        {"/revision/", 403, "DisabledRepo", "has been disabled"},
        {"/resolve/", 401, "GatedRepo", "ann/tiny-GGUF is gated: accept its terms at http://127.0.0.1"},
        {"/resolve/", 403, "GatedRepo", "then set HF_TOKEN to a token of that account (it says: no!)"},
        {"/resolve/", 403, "", "does not give out ann/tiny-GGUF (status 403)"},
        {"/resolve/", 404, "EntryNotFound", "lists a file of ann/tiny-GGUF that it does not have"},
        {"/resolve/", 416, "", "ann/tiny-GGUF/tiny-Q4_0.gguf with 1000 bytes"},
        {"/resolve/", 500, "", "has trouble (status 500)"},
        {"/tree/", 503, "", "has trouble (status 503)"},
        {"/tree/", 418, "", "answers with status 418"},
    };
    for (const Case& one : cases) {
        SCOPED_TRACE(one.part + " " + std::to_string(one.status) + " " + one.code);
        hub(one.part, [&](Reply& reply) {
            reply = {one.status, {{"X-Error-Code", one.code}, {"X-Error-Message", "no!"}}, "{}"};
        });
        expect_refused(HasSubstr(one.wanted));
    }
    server_.set_fault(nullptr);
    EXPECT_THAT(refusal("ann/tiny-GGUF@v9"), HasSubstr("no revision 'v9'"));
    EXPECT_THAT(refusal("ann/other"), HasSubstr("there is no ann/other"));
}

TEST_F(Faults, ATokenThatDoesNotServeIsNotShown) {
    put(1000);
    settings_.token = "hf_secret";
    settings_.token_source = "HF_TOKEN";
    server_.gate(kRepo, "hf_other");
    const std::string gated = refusal();
    EXPECT_THAT(gated, AllOf(HasSubstr("with the account of the token in HF_TOKEN"), Not(HasSubstr("hf_secret"))));
    hub("/revision/", [](Reply& reply) { reply = {401, {{"X-Error-Message", "Invalid credentials"}}, ""}; });
    EXPECT_THAT(refusal(), AllOf(HasSubstr("refuses the token in HF_TOKEN (it says: Invalid credentials)"),
                                 Not(HasSubstr("hf_secret"))));
    for (const std::string& note : seen_.notes) EXPECT_THAT(note, Not(HasSubstr("hf_secret")));
}

TEST_F(Faults, AHubThatLies) {
    put(200'000);
    const std::string lie(content_.size(), 'x');
    storage([&](Reply& reply) { reply.body.assign(reply.body.size(), 'x'); });
    EXPECT_THAT(refusal(), AllOf(HasSubstr("tiny-Q4_0.gguf came with another checksum"), HasSubstr("was thrown away")));
    EXPECT_EQ(cache().arrived(kRepo, {"", 200'000, oid_}), 0) << "what is wrong is not continued";
    expect_nothing_visible();

    storage([](Reply& reply) { reply = {200, {{"Content-Type", "text/html"}}, "<html>Log in!</html>"}; });
    expect_refused(HasSubstr("answers with a web page instead of ann/tiny-GGUF/tiny-Q4_0.gguf"));

    storage([](Reply& reply) { reply = {200, {}, "short"}; });
    expect_refused(HasSubstr("with 200000 bytes and offers '5'"));
    storage([](Reply& reply) { reply.headers["Content-Range"] = "bytes 5-10/200000"; });
    expect_refused(HasSubstr("with 200000 bytes and offers 'bytes 5-10/200000'"));
    storage([](Reply& reply) { reply.headers.erase("Content-Range"); });
    expect_refused(HasSubstr("and offers ''"));
    storage([](Reply& reply) {
        reply.no_length = true;
        reply.body += "and more";
    });
    expect_refused(HasSubstr("sends more of ann/tiny-GGUF/tiny-Q4_0.gguf than it lists"));

    hub("/resolve/", [](Reply& reply) { reply.headers["X-Linked-Size"] = "7"; });
    expect_refused(HasSubstr("and offers '7'"));
    hub("/resolve/", [&](Reply& reply) { reply.headers["X-Linked-Etag"] = "\"" + std::string(64, 'a') + "\""; });
    expect_refused(HasSubstr("contradicts itself"));
    hub("/resolve/", [&](Reply& reply) { reply.headers["X-Repo-Commit"] = std::string(40, 'a'); });
    expect_refused(HasSubstr("contradicts itself"));

    hub("/revision/", [](Reply& reply) { reply = {200, {{"Content-Type", "text/html"}}, "<html>"}; });
    expect_refused(HasSubstr("answers with a web page where a hub lists files"));
    hub("/revision/", [](Reply& reply) { reply = {200, {}, std::string(1 << 20, '[')}; });
    expect_refused(HasSubstr("answers with something else where a hub lists files"));
    hub("/revision/", [](Reply& reply) { reply.body = "{\"sha\": \"../../etc\"}"; });
    expect_refused(HasSubstr("does not say which commit"));
    hub("/tree/", [](Reply& reply) { reply.body = "{}"; });
    expect_refused(HasSubstr("does not list the files"));
    hub("/tree/", [](Reply& reply) { reply.body = "[1, {}, {\"type\": \"file\"}]"; });
    expect_refused(HasSubstr("no GGUF file and no folder of safetensors"));
}

TEST_F(Faults, NamesThatWouldLeaveTheCache) {
    for (const std::string path : {"../../../evil-Q4_0.gguf", "/tmp/evil-Q4_0.gguf", "a/../../evil-Q4_0.gguf",
                                   "a//evil-Q4_0.gguf", "./evil-Q4_0.gguf", "a\\evil-Q4_0.gguf"}) {
        SCOPED_TRACE(path);
        server_.put(kRepo, {{path, "evil"}});
        expect_refused(AllOf(HasSubstr("which would not lie in the cache"), HasSubstr("nothing was fetched")));
        EXPECT_THAT(content_requests(), IsEmpty());
    }
    put(100);
    for (const std::string oid : {"../../evil", "", "ABCDEF", "g"}) {
        hub("/tree/", [&](Reply& reply) {
            reply.body = R"([{"type": "file", "path": "a-Q4_0.gguf", "size": 4, "oid": ")" + oid + "\"}]";
        });
        expect_refused(HasSubstr("without a size and a checksum"));
    }
    for (const std::string size : {"-1", "99999999999999999999", "1e3", "null", "18446744073709551615"}) {
        hub("/tree/", [&](Reply& reply) {
            reply.body = R"([{"type": "file", "path": "a-Q4_0.gguf", "oid": ")" + std::string(40, 'a') +
                         "\", \"size\": " + size + "}]";
        });
        expect_refused(AnyOf(HasSubstr("without a size and a checksum"), HasSubstr("answers with something else")));
    }
    // The index may name files, too.
    server_.put(kRepo, {{"config.json", "{}", false},
                        {"model.safetensors.index.json", R"({"weight_map": {"a": "../../../evil"}})", false}});
    server_.set_fault(nullptr);
    EXPECT_THAT(refusal(), HasSubstr("names a file that cannot be one"));
}

TEST_F(Faults, RedirectsWithoutEndOrToWhereverElse) {
    put(1000);
    for (const std::string part : {"/revision/", "/resolve/"}) {
        SCOPED_TRACE(part);
        server_.set_fault([&](const ServedRequest& request, Reply& reply) {
            if (request.target.find(part) != std::string::npos) reply = {302, {{"Location", request.target}}, ""};
        });
        expect_refused(HasSubstr("redirects without end"));
        hub(part, [](Reply& reply) { reply = {302, {{"Location", "file:///etc/passwd"}}, ""}; });
        expect_refused(HasSubstr("redirects to no address"));
        hub(part, [](Reply& reply) { reply = {302, {{"Location", "http://ann@127.0.0.1:1/"}}, ""}; });
        expect_refused(HasSubstr("redirects to no address"));
        hub(part, [](Reply& reply) { reply = {302, {}, ""}; });
        expect_refused(HasSubstr("redirects to no address"));
    }
    testing::HubServer secure(true);
    secure.put(kRepo, {{"tiny-Q4_0.gguf", content_}});
    secure.set_fault([&](const ServedRequest& request, Reply& reply) {
        if (request.target.find("/resolve/") != std::string::npos)
            reply = {302, {{"Location", server_.url() + "/x"}}, ""};
    });
    settings_.endpoint = secure.url();
    settings_.ca_file = folder_ / "ca.pem";
    std::ofstream(settings_.ca_file) << secure.certificate();
    server_.forget_requests();
    expect_refused(HasSubstr("which is not encrypted"));
    EXPECT_THAT(server_.requests(), IsEmpty());
}

TEST_F(Faults, AListWithoutEnd) {
    put(10);
    server_.set_fault([&](const ServedRequest& request, Reply& reply) {
        if (request.target.find("/tree/") == std::string::npos) return;
        reply = {200, {{"Link", "<" + request.target + ">; rel=\"next\""}}, "[]"};
    });
    expect_refused(HasSubstr("lists files of ann/tiny-GGUF without end"));
}

TEST_F(Faults, NoNetwork) {
    settings_.endpoint = "http://127.0.0.1:9";  // discard; nothing listens
    expect_refused(AllOf(HasSubstr("no connection to http://127.0.0.1:9"), HasSubstr("foresay list")));
    settings_.endpoint = "http://no-such-host.invalid";
    expect_refused(HasSubstr("no connection to http://no-such-host.invalid"));
}

TEST_F(Faults, AFullDisk) {
    put(400'000);
    // A limit on the size of files stands for a disk that fills up.
    rlimit before{};
    ::getrlimit(RLIMIT_FSIZE, &before);
    rlimit limit = before;
    limit.rlim_cur = 100'000;
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const std::string text = refusal();
    ::setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
    EXPECT_THAT(text, AllOf(HasSubstr("cannot write"), HasSubstr("make room and pull again")));
    expect_nothing_visible();
    EXPECT_EQ(cache().arrived(kRepo, {"", 400'000, oid_}), 100'000);
    EXPECT_EQ(contents(pull().path), content_);
}

TEST_F(Faults, RoomIsCheckedBefore) {
    put(1000);
    hub("/tree/", [&](Reply& reply) {
        reply.body = R"([{"type": "file", "path": "a-Q4_0.gguf", "size": 1000000000000000, "oid": ")" + oid_ + "\"}]";
    });
    expect_refused(AllOf(HasSubstr("ann/tiny-GGUF needs 953674380 MiB, and"), HasSubstr("HF_HUB_CACHE")));
    EXPECT_THAT(content_requests(), IsEmpty());
}

TEST_F(Faults, ACacheThatCannotBeWritten) {
    put(1000);
    std::ofstream(folder_ / "file") << "";
    settings_.cache = folder_ / "file" / "hub";
    EXPECT_THAT(refusal(), AllOf(HasSubstr("cannot make the folder"), HasSubstr("HF_HUB_CACHE")));
}

}  // namespace
}  // namespace foresay::hub
