// kernels/list_ops.h: what a list of backends that stands for one does, whatever they have of a model: whole layers
// (kernels/split_ops.h) or parts of each (kernels/divided_ops.h).
//
// Layout:   in host memory a page is the parts of the backends, one after the other.
// Threads:  as for the backends.
// Errors:   those of the backends, with the backend's name before them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/ops.h"

namespace foresay::kernels {

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
    ListOps(std::vector<std::shared_ptr<Ops>> backends, std::vector<std::string> names);

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
    // The rows of a batch into `rows`, ids in place of slots, and the batch that has these. Slots are in the memory of
    // the backend that filled them, and another one may embed.
    Batch with_ids(const Batch& batch, Workspace& workspace, std::vector<Row>& rows);

    std::vector<std::shared_ptr<Ops>> backends_;
    std::vector<std::string> names_;
};

}  // namespace foresay::kernels
