// kernels/list_ops.h: what a list of backends that stands for one does, whatever they have of a model: whole layers
// (kernels/split_ops.h) or parts of each (kernels/divided_ops.h).
//
// Layout:   in host memory a page is the parts of the backends, one after the other.
// Limits:   a list waits for a backend by looking at its Progress (kernels/progress.h), until that has not gone on for
//           the limit, and calls what waits without a limit only when there is nothing to wait for.
// Threads:  as for the backends.
// Errors:   those of the backends, with the backend's name before them; Error as well when one does not answer in time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "kernels/ops.h"
#include "kernels/progress.h"

namespace foresay::kernels {

// How long a list waits for a backend that does not go on.
inline constexpr std::chrono::milliseconds kAnswerLimit{5000};

// A sentence that says already which backend it is about: a list adds no name to it.
class NamedError : public Error {
public:
    using Error::Error;
};

// What a backend of a list can do besides kernels/ops.h, where it is on another host.
class TakesRows {
public:
    virtual ~TakesRows() = default;
    // As write_rows(), with the rows of another backend's forward and without its read_rows(). False: not possible
    // between the two, and nothing was done.
    virtual bool take_rows(Workspace& workspace, Ops& from, Workspace& source) = 0;
};

class ListOps : public Ops {
public:
    std::size_t size() const { return backends_.size(); }
    // As messages call backend `i`.
    const std::string& name(std::size_t i) const { return names_[i]; }

    // The least of any backend that has memory of its own.
    std::int64_t free_memory() const override;
    // The most that any of them wants: weights are read once for a chunk, and the host does not mind.
    std::int32_t prefill_rows() const override;
    // Of all that have memory of their own, so that a list of equal devices makes the text of one of them.
    bool reads_weights_once() const override;
    bool makes_random_weights() const override;

    std::int64_t kv_bytes(const KvShape& shape, std::int32_t pages, KvFormat format) const override;
    // The same, of what backend `i` has.
    virtual std::int64_t kv_bytes_on(std::size_t i, const KvShape& shape, std::int32_t pages,
                                     KvFormat format) const = 0;
    std::int64_t expanded_kv_bytes(const KvShape& shape, std::int32_t pages, KvFormat format) const override;
    virtual std::int64_t expanded_kv_bytes_on(std::size_t i, const KvShape& shape, std::int32_t pages,
                                              KvFormat format) const = 0;
    void copy_page(KvPages& kv, std::int32_t from, std::int32_t to) override;
    void read_page(KvPages& kv, std::int32_t page, std::span<std::byte> to) override;
    void write_page(KvPages& kv, std::int32_t page, std::span<const std::byte> from) override;
    // Memory of a device's driver, where there is a device: the processor can use that as well.
    std::unique_ptr<HostMemory> allocate_host(std::size_t bytes) override;

protected:
    // By backend.
    struct Pages : KvPages {
        std::vector<std::unique_ptr<KvPages>> parts;  // null: it has no layer
        std::vector<std::size_t> page_bytes;
    };

    // `names`: of each, for messages: "cuda:1"; none: as they describe themselves.
    ListOps(std::vector<std::shared_ptr<Ops>> backends, std::vector<std::string> names,
            std::chrono::milliseconds limit = kAnswerLimit);

    // All of them, with `between` between their names.
    BackendInfo describe_all(const std::string& between) const;
    // call(backend i). What it throws has the backend's name.
    template <class Call>
    decltype(auto) on(std::size_t i, const Call& call) const {
        try {
            return call(*backends_[i]);
        } catch (const NamedError&) {
            throw;
        } catch (const Error& problem) {
            throw Error(names_[i] + ": " + problem.what());
        }
    }
    // Called before pages of backend `i` are copied.
    virtual void before_pages(std::size_t) const {}
    // As messages call some of them, bit by bit.
    std::string all_names(std::uint32_t backends) const;

    // Null: it limits its waits itself, or has nothing to wait for.
    Progress* progress(std::size_t i) const { return progress_[i]; }
    bool idle(std::size_t i) const;
    std::int64_t unreached(std::size_t i) const;
    // Until done(), which is about backend `i`. Throws Error when none of `together`, bits of backends that wait for
    // each other and `i` among them, has gone on for the limit.
    template <class Done>
    void await(std::size_t i, std::uint32_t together, const Done& done) const;
    // Those that are late: they must not be waited for when something is destroyed.
    void give_up(std::uint32_t backends) const;
    // Called before await() throws.
    virtual void giving_up() const {}

    // The rows of a batch into `rows`, ids in place of slots, and the batch that has these. Slots are in the memory of
    // the backend that filled them, and another one may embed.
    Batch with_ids(const Batch& batch, Workspace& workspace, std::vector<Row>& rows);

    std::vector<std::shared_ptr<Ops>> backends_;
    std::vector<std::string> names_;

private:
    // Signs of life of `together`: another number is one.
    std::int64_t unreached_of(std::uint32_t together) const;
    [[noreturn]] void end_wait(std::size_t i, std::uint32_t together) const;

    std::vector<Progress*> progress_;
    std::chrono::milliseconds limit_;
};

template <class Done>
void ListOps::await(std::size_t i, std::uint32_t together, const Done& done) const {
    if (done()) return;
    using Clock = std::chrono::steady_clock;
    std::int64_t marks = unreached_of(together);
    auto end = Clock::now() + limit_;
    while (!done()) {
        std::this_thread::yield();
        const auto now = Clock::now();
        if (const std::int64_t fewer = unreached_of(together); fewer != marks) {
            marks = fewer;
            end = now + limit_;
        }
        if (now >= end) end_wait(i, together);
    }
}

}  // namespace foresay::kernels
