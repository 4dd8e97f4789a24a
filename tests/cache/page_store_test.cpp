// Pages outside the cache: in host memory and in files. What comes back has the bytes that left; what is broken, cut
// off or another's is a miss with one line; where nothing can be written, nothing is lost.
#include "core/cache/page_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <mutex>
#include <random>
#include <thread>

#include "base/error.h"
#include "core/cache/kv_cache.h"
#include "core/cache/page_file.h"
#include "kernels/kv_names.h"
#include "kernels/ops_decorator.h"
#include "tests/models/backends.h"
#include "tests/weights/temporary_directory.h"

namespace foresay::test {
namespace {

namespace fs = std::filesystem;
using core::PageId;
using core::PageTiers;
using core::testing::TemporaryDirectory;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kBytes = 1000;
constexpr std::int64_t kFileBytes = 56 + 4 * 64 + 8 + 16 + kBytes + 16;

PageId page(int number) {
    PageId id{.parent = core::page_hash("parent " + std::to_string(number / 10))};
    for (std::size_t i = 0; i < id.tokens.size(); ++i) id.tokens[i] = number + static_cast<std::int32_t>(i);
    return id;
}

std::vector<std::byte> bytes_of(int number) {
    std::mt19937 random(static_cast<unsigned>(number));
    std::vector<std::byte> bytes(static_cast<std::size_t>(kBytes));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    return bytes;
}

struct Notices {
    std::mutex mutex;
    std::vector<std::string> all;
    core::PageNotice take() {
        return [this](const std::string& sentence) {
            const std::scoped_lock lock(mutex);
            all.push_back(sentence);
        };
    }
};

PageTiers make(std::int64_t host_pages, const fs::path& folder, Notices& notices, std::int64_t disk_pages = 100,
               const std::string& fingerprint = "model A") {
    return PageTiers(backends().front().ops(), {.page_bytes = kBytes,
                                                .host_bytes = host_pages * kBytes,
                                                .folder = folder,
                                                .disk_bytes = disk_pages * kFileBytes,
                                                .fingerprint = fingerprint,
                                                .notice = notices.take()});
}

void store(PageTiers& tiers, int number) {
    tiers.store(page(number), [&](std::span<std::byte> to) { std::ranges::copy(bytes_of(number), to.begin()); });
}

// Whether it is there, with its bytes; EXPECTs that it has no others.
bool finds(PageTiers& tiers, int number) {
    const std::span<const std::byte> found = tiers.find(page(number));
    if (found.empty()) return false;
    EXPECT_TRUE(std::ranges::equal(found, bytes_of(number))) << number;
    return true;
}

std::vector<fs::path> files_in(const fs::path& folder) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
    return files;
}

// Backends give pages back as they were, all layers.
TEST(PageStore, BackendsReadAndWriteWholePages) {
    for (const Backend& backend : backends()) {
        if (backend.name == "cuda" && !no_cuda().empty()) continue;
        kernels::Ops& ops = backend.ops();
        for (const kernels::KvFormat format : kernels::all_kv_formats()) {
            const auto kv = ops.allocate_kv(small_config().shape, 3, format);
            const auto bytes = static_cast<std::size_t>(ops.kv_bytes(kv->shape, 1, format));
            std::mt19937 random(3);
            std::vector<std::byte> first(bytes), second(bytes), found(bytes);
            for (std::byte& byte : first) byte = static_cast<std::byte>(random() & 0x3f);
            for (std::byte& byte : second) byte = static_cast<std::byte>(random() & 0x3f);
            ops.write_page(*kv, 0, first);
            ops.write_page(*kv, 2, second);
            ops.copy_page(*kv, 2, 1);
            ops.read_page(*kv, 1, found);
            EXPECT_EQ(found, second) << backend.name;
            ops.read_page(*kv, 0, found);
            EXPECT_EQ(found, first) << backend.name;
        }
        EXPECT_EQ(ops.allocate_host(100)->bytes.size(), 100u);
    }
}

// Counts what is taken and by whom, and refuses after `most` times.
class CountedMemory final : public kernels::OpsDecorator {
public:
    explicit CountedMemory(int most = 1000) : OpsDecorator(backends().front().ops()), most_(most) {}
    std::unique_ptr<kernels::HostMemory> allocate_host(std::size_t bytes) override {
        own_thread += std::this_thread::get_id() == caller_ ? 1 : 0;
        if (++taken > most_) throw Error("there is no memory");
        return OpsDecorator::allocate_host(bytes);
    }
    std::atomic<int> taken = 0, own_thread = 0;

private:
    const int most_;
    const std::thread::id caller_ = std::this_thread::get_id();
};

// Of which a slab has two. Most of their memory is never written.
constexpr std::int64_t kLarge = std::int64_t{32} << 20;
void store_large(PageTiers& tiers, int number) {
    tiers.store(page(number), [&](std::span<std::byte> to) { to.front() = static_cast<std::byte>(number); });
}

TEST(PageStore, TakesMemoryBeforeItIsNeededAndNotBeforeThereArePages) {
    CountedMemory ops;
    PageTiers tiers(ops, {.page_bytes = kLarge, .host_bytes = 15 * kLarge, .folder = {}, .fingerprint = {}});
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(ops.taken, 0);
    store_large(tiers, 0);
    constexpr int kAhead = 4;
    const auto until_taken = [&](int slabs) {
        for (int i = 0; i < 5000 && ops.taken < slabs; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return ops.taken.load();
    };
    EXPECT_EQ(until_taken(1 + kAhead), 1 + kAhead);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(ops.taken, 1 + kAhead);
    // As many as there may be, the last alone in its slab.
    for (int i = 1; i < 40; ++i) store_large(tiers, i);
    EXPECT_EQ(until_taken(8), 8);
    EXPECT_EQ(tiers.counters().host_bytes, 15 * kLarge);
    EXPECT_EQ(tiers.counters().host_pages, 15);
    EXPECT_EQ(ops.own_thread, 0);
    for (int i = 25; i < 40; ++i) {
        const std::span<const std::byte> found = tiers.find(page(i));
        ASSERT_EQ(found.size(), static_cast<std::size_t>(kLarge)) << i;
        EXPECT_EQ(found.front(), static_cast<std::byte>(i));
    }
}

TEST(PageStore, MakesDoWithTheMemoryThatThereIs) {
    CountedMemory ops(2);
    Notices notices;
    PageTiers tiers(
        ops,
        {.page_bytes = kLarge, .host_bytes = 100 * kLarge, .folder = {}, .fingerprint = {}, .notice = notices.take()});
    for (int i = 0; i < 10; ++i) store_large(tiers, i);
    EXPECT_EQ(tiers.counters().host_pages, 4);
    EXPECT_EQ(tiers.counters().host_bytes, 4 * kLarge);
    for (int i = 0; i < 10; ++i) EXPECT_EQ(tiers.find(page(i)).empty(), i < 6) << i;
    EXPECT_THAT(notices.all, ElementsAre("less host memory is used for pages: there is no memory"));
    CountedMemory none(0);
    PageTiers without(none, {.page_bytes = kLarge, .host_bytes = kLarge, .folder = {}, .fingerprint = {}});
    store_large(without, 0);
    EXPECT_FALSE(without.has(page(0)));
}

TEST(PageStore, HostMemoryKeepsWhatWasUsedLast) {
    Notices notices;
    PageTiers tiers = make(3, {}, notices);
    for (int i = 0; i < 3; ++i) store(tiers, i);
    EXPECT_TRUE(finds(tiers, 0));
    store(tiers, 3);  // in place of page 1
    EXPECT_FALSE(tiers.has(page(1)));
    EXPECT_FALSE(finds(tiers, 1));
    for (const int there : {0, 2, 3}) EXPECT_TRUE(finds(tiers, there));
    tiers.store(page(3), [](std::span<std::byte>) { ADD_FAILURE() << "it is there already"; });
    // The same tokens after another text, or of another class.
    PageId other = page(3);
    other.parent.low ^= 1;
    EXPECT_TRUE(tiers.find(other).empty());
    other = page(3);
    other.decode_rows = 1;
    EXPECT_TRUE(tiers.find(other).empty());
    const core::PageCounters counters = tiers.counters();
    EXPECT_EQ(counters.stored, 4);
    EXPECT_EQ(counters.dropped, 1);
    EXPECT_EQ(counters.from_host, 4);
    EXPECT_EQ(counters.host_pages, 3);
    EXPECT_EQ(counters.host_bytes, 3 * kBytes);
    EXPECT_THAT(notices.all, IsEmpty());
}

TEST(PageStore, WhatLeavesHostMemoryGoesToDiskAndComesBack) {
    const TemporaryDirectory folder;
    Notices notices;
    {
        PageTiers tiers = make(2, folder.path() / "new" / "pages", notices);
        for (int i = 0; i < 5; ++i) store(tiers, i);
        tiers.flush();
        EXPECT_EQ(tiers.counters().to_disk, 5);
        for (int i = 0; i < 5; ++i) EXPECT_TRUE(finds(tiers, i)) << i;
        EXPECT_GT(tiers.counters().from_disk, 2);
        EXPECT_EQ(tiers.counters().disk_bytes, 5 * kFileBytes);
        // What came from the disk need not be written again.
        tiers.flush();
        EXPECT_EQ(tiers.counters().to_disk, 5);
    }
    EXPECT_EQ(fs::status(folder.path() / "new" / "pages").permissions(), fs::perms::owner_all);
    // Another program; one without host memory; one with another model, which finds nothing and disturbs nothing.
    PageTiers again = make(2, folder.path() / "new" / "pages", notices);
    PageTiers without = make(0, folder.path() / "new" / "pages", notices);
    PageTiers foreign = make(2, folder.path() / "new" / "pages", notices, 100, "model B");
    for (int i = 0; i < 5; ++i) {
        EXPECT_TRUE(finds(again, i)) << i;
        EXPECT_TRUE(finds(without, i)) << i;
        EXPECT_FALSE(finds(foreign, i)) << i;
    }
    store(without, 7);
    without.flush();
    EXPECT_TRUE(finds(again, 7));
    EXPECT_THAT(notices.all, IsEmpty());
}

TEST(PageStore, ABrokenFileIsAMissWithOneLine) {
    const TemporaryDirectory folder;
    Notices notices;
    {
        PageTiers tiers = make(0, folder.path(), notices);
        store(tiers, 1);
        tiers.flush();
    }
    const std::vector<fs::path> files = files_in(folder.path());
    ASSERT_EQ(files.size(), 1u);
    std::ifstream stream(files[0], std::ios::binary);
    const std::string whole{std::istreambuf_iterator<char>(stream), {}};
    ASSERT_EQ(std::ssize(whole), kFileBytes);
    const auto notice_of = [&](const std::string& content) {
        std::ofstream(files[0], std::ios::binary) << content;
        Notices own;
        PageTiers tiers = make(2, folder.path(), own);
        const bool found = finds(tiers, 1);
        EXPECT_EQ(finds(tiers, 1), found);
        EXPECT_EQ(own.all.size(), found ? 0u : 1u) << "each file is complained about once";
        return own.all.empty() ? "none" : own.all.front();
    };
    const auto changed = [&](std::size_t at) {
        std::string text = whole;
        text[at] = static_cast<char>(text[at] ^ 1);
        return text;
    };
    EXPECT_EQ(notice_of(whole), "none");
    EXPECT_THAT(notice_of(changed(whole.size() - 30)),
                AllOf(HasSubstr(files[0].string()), HasSubstr("page 1 is damaged")));
    EXPECT_THAT(notice_of(changed(whole.size() - 1)), HasSubstr("page 1 is damaged"));
    EXPECT_THAT(notice_of(changed(0)), HasSubstr("no page file"));
    EXPECT_THAT(notice_of(changed(8)), HasSubstr("version"));
    EXPECT_THAT(notice_of(changed(12)), HasSubstr("cut off or has bytes too many"));
    EXPECT_THAT(notice_of(changed(23)), HasSubstr("sizes are impossible"));
    EXPECT_THAT(notice_of(changed(30)), HasSubstr("beginning is damaged"));
    EXPECT_THAT(notice_of(changed(100)), HasSubstr("beginning is damaged"));
    for (const std::size_t length : {std::size_t{0}, std::size_t{10}, std::size_t{60}, whole.size() - 1})
        EXPECT_THAT(notice_of(whole.substr(0, length)), HasSubstr("cut off")) << length;
    EXPECT_THAT(notice_of(whole + "x"), HasSubstr("bytes too many"));
    // Whole files under this one's name: of another model, and of another text.
    const auto file_of = [&](int number, const std::string& fingerprint) {
        const TemporaryDirectory elsewhere;
        Notices own;
        {
            PageTiers tiers = make(0, elsewhere.path(), own, 100, fingerprint);
            store(tiers, number);
            tiers.flush();
        }
        std::ifstream file(files_in(elsewhere.path()).at(0), std::ios::binary);
        return std::string{std::istreambuf_iterator<char>(file), {}};
    };
    EXPECT_THAT(notice_of(file_of(1, "model B")), HasSubstr("another model"));
    EXPECT_THAT(notice_of(file_of(2, "model A")), HasSubstr("another text"));
    fs::remove(files[0]);
    fs::create_directory(files[0]);
    Notices own;
    PageTiers tiers = make(2, folder.path(), own);
    EXPECT_FALSE(finds(tiers, 1));
    // A page that is evaluated again takes the place of the broken file.
    fs::remove(files[0]);
    std::ofstream(files[0]) << "broken";
    store(tiers, 1);
    tiers.flush();
    PageTiers healed = make(2, folder.path(), notices);
    EXPECT_TRUE(finds(healed, 1));
    EXPECT_THAT(notices.all, IsEmpty());
}

TEST(PageStore, WhereNothingCanBeWrittenOneSentenceSaysSo) {
    const TemporaryDirectory folder;
    const fs::path file = folder.write("notes.txt", "mine");
    {
        Notices notices;
        PageTiers tiers = make(1, file / "pages", notices);
        for (int i = 0; i < 3; ++i) store(tiers, i);
        tiers.flush();
        EXPECT_TRUE(finds(tiers, 2)) << "host memory goes on";
        EXPECT_THAT(notices.all, ElementsAre(AllOf(HasSubstr("pages are not kept in"), HasSubstr("notes.txt"))));
    }
    // The disk is full, or a limit says so: no file grows beyond its header.
    Notices notices;
    const auto before = std::signal(SIGXFSZ, SIG_IGN);
    rlimit limit{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
    {
        PageTiers tiers = make(1, folder.path() / "pages", notices);
        const rlimit small{400, limit.rlim_max};
        ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
        for (int i = 0; i < 3; ++i) store(tiers, i);
        tiers.flush();
        ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
        EXPECT_TRUE(finds(tiers, 2));
        EXPECT_EQ(tiers.counters().to_disk, 0);
    }
    std::signal(SIGXFSZ, before);
    EXPECT_THAT(notices.all, ElementsAre(AllOf(HasSubstr("pages are not kept in"), HasSubstr("File too large"))));
    EXPECT_THAT(files_in(folder.path() / "pages"), IsEmpty()) << "no half of a file is left";
    EXPECT_EQ(fs::file_size(file), 4u);
}

// Two programs on one folder keep its size, read each other's pages, and delete no file of others.
TEST(PageStore, AFolderIsSharedAndBounded) {
    const TemporaryDirectory folder;
    folder.write("notes.page", "mine");
    Notices notices;
    {
        PageTiers one = make(0, folder.path(), notices, 8);
        PageTiers two = make(0, folder.path(), notices, 8);
        for (int i = 0; i < 20; ++i) {
            // The last ones one after the other: a thread that writes late makes what others wrote before it older.
            if (i >= 18) one.flush(), two.flush();
            store(i % 2 == 0 ? one : two, i);
        }
        two.flush();
        int found = 0;
        for (int i = 0; i < 20; ++i) {
            const bool here = finds(one, i);
            EXPECT_EQ(finds(two, i), here);
            found += here ? 1 : 0;
        }
        EXPECT_GE(found, 6);
        EXPECT_LE(found, 16);
        EXPECT_TRUE(finds(one, 19));
    }
    PageTiers later = make(0, folder.path(), notices, 8);
    EXPECT_LE(later.counters().disk_bytes, 8 * kFileBytes);
    EXPECT_TRUE(fs::exists(folder.path() / "notes.page"));
    EXPECT_THAT(notices.all, IsEmpty());
}

}  // namespace
}  // namespace foresay::test
