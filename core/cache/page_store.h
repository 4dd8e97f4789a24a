// core/cache/page_store.h: pages that have left the pool of a KV cache: in host memory, and after that in a folder.
//
// A page that leaves the pool is stored in host memory, page-locked where there is a device. When that is full, the
// page used longest ago leaves it: to the folder, if there is one, else for good. What is found in the folder comes
// back to host memory first.
//
// Law 1:    a page is found by what decides its bits (core/cache/page_id.h), so it has the bits that evaluating its
//           tokens would give it.
// Life:     the backend must outlive it. The destructor does not wait for pages that are still to be written.
// Threads:  one caller at a time; the store writes to the folder with a thread of its own, and takes memory with
//           another one.
// Cost:     store() and find() copy one page at most; find() waits for the disk where it reads from it. Memory is
//           taken from the first page on, 64 MiB at a time and up to 256 MiB before it is needed: a system locks 2 to 3
//           GB/s, and copies many times as much. store() waits where less is there.
// Errors:   none: what cannot be stored or read is a miss; see PageFolder for what is told.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/cache/page_folder.h"
#include "core/cache/page_id.h"
#include "kernels/ops.h"

namespace foresay::core {

// Since the store was made.
struct PageCounters {
    std::int64_t stored = 0;                    // pages that left the pool and were kept
    std::int64_t from_host = 0, from_disk = 0;  // pages that were found
    std::int64_t to_disk = 0;                   // files written
    std::int64_t dropped = 0;                   // pages that had room nowhere
    std::int64_t host_pages = 0;                // that are in host memory now
    std::int64_t host_bytes = 0, disk_bytes = 0;

    // With those of another store, whose folder may be the same.
    PageCounters& operator+=(const PageCounters& other);
};

// What a cache of texts needs of such a store.
class PageStore {
public:
    virtual ~PageStore() = default;
    // Whether find() is likely to have it.
    virtual bool has(const PageId& id) const = 0;
    // The bytes of a page, valid until the next call; empty: a miss.
    virtual std::span<const std::byte> find(const PageId& id) = 0;
    // Keeps a page, whose bytes `fill` writes. It is not called when the page is there already.
    virtual void store(const PageId& id, const std::function<void(std::span<std::byte>)>& fill) = 0;
    // Writes all that is in host memory to the folder, and waits for it. The program is about to end.
    virtual void flush() = 0;
    virtual PageCounters counters() const = 0;
};

struct PageTiersOptions {
    std::int64_t page_bytes = 0;
    std::int64_t host_bytes = 0;   // most; less than a page: none
    std::filesystem::path folder;  // empty: none
    std::int64_t disk_bytes = 0;   // most
    std::string fingerprint;       // of the folder's files: see PageFolder
    PageNotice notice;
};

class PageTiers final : public PageStore {
public:
    PageTiers(kernels::Ops& ops, PageTiersOptions options);
    ~PageTiers() override;
    PageTiers(const PageTiers&) = delete;
    PageTiers& operator=(const PageTiers&) = delete;

    bool has(const PageId& id) const override;
    std::span<const std::byte> find(const PageId& id) override;
    void store(const PageId& id, const std::function<void(std::span<std::byte>)>& fill) override;
    void flush() override;
    PageCounters counters() const override;

private:
    struct Entry {
        PageId id;
        std::byte* bytes = nullptr;
        bool on_disk = false;
    };
    using Entries = std::list<Entry>;  // the one used last at the end
    struct Writing {
        PageId id;
        std::vector<std::byte> bytes;
    };

    std::span<std::byte> bytes_of(const Entry& entry) const {
        return {entry.bytes, static_cast<std::size_t>(options_.page_bytes)};
    }
    Entry* used(const PageId& id);
    // Memory for a page more: the entry, used last; null: there is none.
    Entry* add(const PageId& id);
    std::byte* take_memory();
    // Waits for memory that the thread takes; null: there is no more.
    std::unique_ptr<kernels::HostMemory> next_slab();
    void take_slabs();
    void hand_to_disk(const Entry& entry, bool wait);
    void write_pages();

    kernels::Ops& ops_;
    PageTiersOptions options_;
    std::vector<std::unique_ptr<kernels::HostMemory>> slabs_;
    std::vector<std::byte*> free_;
    std::int64_t most_pages_ = 0;  // in host memory
    Entries entries_;
    std::unordered_map<PageHash, Entries::iterator, PageHashes> places_;
    std::vector<std::byte> read_;  // where nothing is kept in host memory
    PageCounters counters_;
    bool told_ = false;  // that there is less memory than wanted

    std::optional<PageFolder> disk_;
    mutable std::mutex mutex_;  // guards what is below, up to the threads
    std::condition_variable woken_, written_, wanted_, taken_;
    bool takes_memory_ = false;                    // a page has been stored
    std::int64_t pages_ = 0, promised_pages_ = 0;  // with memory; and those whose memory waits or is being taken
    std::deque<std::unique_ptr<kernels::HostMemory>> ahead_;
    std::string refused_;  // why there is no more memory
    std::deque<Writing> queue_;
    bool busy_ = false, stopping_ = false;
    std::atomic<std::int64_t> to_disk_{0};
    std::thread writer_, taker_;
};

}  // namespace foresay::core
