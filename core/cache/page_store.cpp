#include "core/cache/page_store.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/signals.h"

namespace foresay::core {

namespace {

constexpr std::int64_t kSlabBytes = std::int64_t{64} << 20;
constexpr std::size_t kSlabsAhead = 4;
// Pages that may wait for the disk, in bytes; what comes then is dropped, so that a slow disk delays no text.
constexpr std::int64_t kWaitingBytes = std::int64_t{64} << 20;

}  // namespace

PageTiers::PageTiers(kernels::Ops& ops, PageTiersOptions options) : ops_(ops), options_(std::move(options)) {
    check(options_.page_bytes > 0, "a page has bytes");
    most_pages_ = std::max<std::int64_t>(0, options_.host_bytes / options_.page_bytes);
    if (!options_.folder.empty()) {
        disk_.emplace(options_.folder, options_.disk_bytes, options_.fingerprint, options_.page_bytes, options_.notice);
    }
    const SignalsBlocked blocked;
    if (disk_) writer_ = std::thread([this] { write_pages(); });
    if (most_pages_ > 0) taker_ = std::thread([this] { take_slabs(); });
}

PageTiers::~PageTiers() {
    {
        const std::scoped_lock lock(mutex_);
        stopping_ = true;
    }
    woken_.notify_one();
    wanted_.notify_one();
    if (writer_.joinable()) writer_.join();
    if (taker_.joinable()) taker_.join();
}

// A slab at a time, while few are there.
void PageTiers::take_slabs() {
    std::unique_lock lock(mutex_);
    for (;;) {
        wanted_.wait(lock, [this] {
            const bool wanted = takes_memory_ && refused_.empty() && promised_pages_ < most_pages_;
            return stopping_ || (wanted && ahead_.size() < kSlabsAhead);
        });
        if (stopping_) return;
        const std::int64_t pages =
            std::min(most_pages_ - promised_pages_, std::max<std::int64_t>(1, kSlabBytes / options_.page_bytes));
        promised_pages_ += pages;
        lock.unlock();
        std::unique_ptr<kernels::HostMemory> slab;
        std::string problem;
        try {
            slab = ops_.allocate_host(static_cast<std::size_t>(pages * options_.page_bytes));
        } catch (const std::exception& found) {
            problem = found.what();
        }
        lock.lock();
        if (slab != nullptr) {
            ahead_.push_back(std::move(slab));
        } else {
            promised_pages_ -= pages;
            refused_ = problem.empty() ? "no memory" : problem;
        }
        taken_.notify_one();
    }
}

std::unique_ptr<kernels::HostMemory> PageTiers::next_slab() {
    if (!taker_.joinable()) return nullptr;
    std::unique_lock lock(mutex_);
    takes_memory_ = true;
    wanted_.notify_one();
    taken_.wait(lock, [this] { return !ahead_.empty() || !refused_.empty() || pages_ == most_pages_; });
    if (ahead_.empty()) return nullptr;
    std::unique_ptr<kernels::HostMemory> slab = std::move(ahead_.front());
    ahead_.pop_front();
    pages_ += static_cast<std::int64_t>(slab->bytes.size()) / options_.page_bytes;
    wanted_.notify_one();
    return slab;
}

void PageTiers::write_pages() {
    for (;;) {
        Writing page;
        {
            std::unique_lock lock(mutex_);
            busy_ = false;
            written_.notify_all();
            woken_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
            if (stopping_) return;
            page = std::move(queue_.front());
            queue_.pop_front();
            busy_ = true;
        }
        if (disk_->write(page.id, page.bytes)) ++to_disk_;
    }
}

// The folder has it, or it is on its way there.
void PageTiers::hand_to_disk(const Entry& entry, bool wait) {
    if (entry.on_disk) return;
    if (!disk_) {
        ++counters_.dropped;
        return;
    }
    const auto most = std::max<std::size_t>(1, static_cast<std::size_t>(kWaitingBytes / options_.page_bytes));
    {
        std::unique_lock lock(mutex_);
        if (wait) written_.wait(lock, [&] { return queue_.size() < most; });
        if (queue_.size() >= most) {
            ++counters_.dropped;
            return;
        }
        const std::span<std::byte> bytes = bytes_of(entry);
        queue_.push_back({entry.id, {bytes.begin(), bytes.end()}});
    }
    woken_.notify_one();
}

std::byte* PageTiers::take_memory() {
    if (free_.empty()) {
        if (std::unique_ptr<kernels::HostMemory> slab = next_slab()) {
            slabs_.push_back(std::move(slab));
            const std::span<std::byte> bytes = slabs_.back()->bytes;
            const auto page = static_cast<std::size_t>(options_.page_bytes);
            for (std::size_t end = bytes.size(); end >= page; end -= page) free_.push_back(bytes.data() + end - page);
        } else if (!refused_.empty() && !told_) {
            told_ = true;
            if (options_.notice) options_.notice("less host memory is used for pages: " + refused_);
        }
    }
    if (free_.empty()) return nullptr;
    std::byte* const bytes = free_.back();
    free_.pop_back();
    return bytes;
}

PageTiers::Entry* PageTiers::used(const PageId& id) {
    const auto place = places_.find(id.hash());
    if (place == places_.end() || place->second->id != id) return nullptr;
    entries_.splice(entries_.end(), entries_, place->second);
    return &entries_.back();
}

PageTiers::Entry* PageTiers::add(const PageId& id) {
    const PageHash hash = id.hash();
    if (places_.contains(hash)) return nullptr;  // of another page: a hash met twice
    std::byte* bytes = take_memory();
    if (bytes == nullptr) {
        if (entries_.empty()) return nullptr;
        const Entry& oldest = entries_.front();
        hand_to_disk(oldest, false);
        bytes = oldest.bytes;
        places_.erase(oldest.id.hash());
        entries_.pop_front();
    }
    entries_.push_back({.id = id, .bytes = bytes});
    places_.emplace(hash, std::prev(entries_.end()));
    return &entries_.back();
}

bool PageTiers::has(const PageId& id) const {
    const auto place = places_.find(id.hash());
    if (place != places_.end() && place->second->id == id) return true;
    return disk_ && disk_->has(id);
}

std::span<const std::byte> PageTiers::find(const PageId& id) {
    if (const Entry* entry = used(id)) {
        ++counters_.from_host;
        return bytes_of(*entry);
    }
    if (!disk_ || !disk_->has(id)) return {};
    Entry* const entry = add(id);
    if (entry == nullptr) {
        read_.resize(static_cast<std::size_t>(options_.page_bytes));
        if (!disk_->load(id, read_)) return {};
        ++counters_.from_disk;
        return read_;
    }
    if (!disk_->load(id, bytes_of(*entry))) {
        free_.push_back(entry->bytes);
        places_.erase(id.hash());
        entries_.pop_back();
        return {};
    }
    entry->on_disk = true;
    ++counters_.from_disk;
    return bytes_of(*entry);
}

void PageTiers::store(const PageId& id, const std::function<void(std::span<std::byte>)>& fill) {
    if (used(id) != nullptr) return;
    if (Entry* const entry = add(id)) {
        fill(bytes_of(*entry));
        ++counters_.stored;
        return;
    }
    if (!disk_ || disk_->has(id)) return;
    read_.resize(static_cast<std::size_t>(options_.page_bytes));
    fill(read_);
    ++counters_.stored;
    hand_to_disk({.id = id, .bytes = read_.data()}, false);
}

void PageTiers::flush() {
    if (!disk_) return;
    for (Entry& entry : entries_) {
        hand_to_disk(entry, true);
        entry.on_disk = true;
    }
    std::unique_lock lock(mutex_);
    written_.wait(lock, [this] { return queue_.empty() && !busy_; });
}

PageCounters& PageCounters::operator+=(const PageCounters& other) {
    stored += other.stored;
    from_host += other.from_host;
    from_disk += other.from_disk;
    to_disk += other.to_disk;
    dropped += other.dropped;
    host_pages += other.host_pages;
    host_bytes += other.host_bytes;
    disk_bytes = std::max(disk_bytes, other.disk_bytes);
    return *this;
}

PageCounters PageTiers::counters() const {
    PageCounters now = counters_;
    now.to_disk = to_disk_;
    now.host_pages = std::ssize(entries_);
    {
        const std::scoped_lock lock(mutex_);
        now.host_bytes = promised_pages_ * options_.page_bytes;
    }
    now.disk_bytes = disk_ ? disk_->bytes() : 0;
    return now;
}

}  // namespace foresay::core
