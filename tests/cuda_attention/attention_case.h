// tests/cuda_attention/attention_case.h: a cache with made-up keys and values, and batches of rows that attend to it in
// any of the device's forms.
#pragma once

#include "kernels/cuda/attention/flash_decode.h"
#include "kernels/cuda/attention/flash_prefill.h"

#include <cstring>
#include <numeric>

#include "kernels/kv_code.h"
#include "tests/cuda_linear/device_case.h"

namespace foresay::test {

using cuda::DeviceBuffer;
using kernels::kPagePositions;
using kernels::KvFormat;

struct Heads {
    std::int32_t heads, kv_heads, head_dim;
    KvFormat format;
    std::int32_t window = 0;
};

inline void PrintTo(const Heads& h, std::ostream* out) {
    *out << h.heads << " heads, " << h.kv_heads << " key-value heads of " << h.head_dim
         << (h.format == KvFormat::q8 ? ", codes" : "") << ", window " << h.window;
}

inline std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

// Small numbers that follow from a position and a place, the same everywhere.
inline float number(std::int64_t i) {
    auto h = static_cast<std::uint32_t>(i) * 2654435761u;
    h = (h ^ h >> 16) * 0x7feb352du;
    h = (h ^ h >> 15) * 0x846ca68bu;
    return static_cast<float>((h ^ h >> 16) >> 8) * (2.0f / 16777216.0f) - 1.0f;
}

// K and V of some sequences, whose pages lie in an order of their own.
class Cache {
public:
    Cache(const Heads& heads, std::vector<std::int32_t> lengths) : h_(heads), lengths_(std::move(lengths)) {
        std::int32_t pages = 0;
        for (const std::int32_t length : lengths_) {
            pages_.emplace_back(size((length + kPagePositions - 1) / kPagePositions));
            std::iota(pages_.back().begin(), pages_.back().end(), pages);
            std::reverse(pages_.back().begin(), pages_.back().end());
            pages += static_cast<std::int32_t>(pages_.back().size());
        }
        kernels::ModelShape shape;
        shape.layers = 1;
        shape.heads = h_.heads;
        shape.kv_heads = h_.kv_heads;
        shape.head_dim = h_.head_dim;
        layout = cuda::KvLayout(shape, pages, h_.format);
        host.resize(size(layout.layer_stride));
        for (std::size_t s = 0; s < lengths_.size(); ++s) {
            for (std::int32_t p = 0; p < lengths_[s]; ++p) store(static_cast<std::int32_t>(s), p);
        }
    }
    // What K (which 0) or V of a position is before it is stored.
    float raw(std::int32_t sequence, std::int32_t position, std::int32_t head, int which, std::int32_t d) const {
        const std::int64_t row = (std::int64_t{sequence} * 50000 + position) * h_.kv_heads + head;
        return number((row * 2 + which) * h_.head_dim + d);
    }
    // As attention reads it.
    double read(std::int32_t sequence, std::int32_t position, std::int32_t head, int which, std::int32_t d) const {
        const std::int32_t page = pages_[size(sequence)][size(position / kPagePositions)];
        const std::int32_t place = position % kPagePositions;
        const __half* base = host.data() + page * layout.page_stride + head * layout.head_stride;
        if (h_.format == KvFormat::f16) {
            return __half2float(
                which == 0
                    ? host[size(layout.k_cell(page, place) + head * layout.head_stride + cuda::KvLayout::key_value(d))]
                    : host[size(layout.v_cell(page, place) + head * layout.head_stride +
                                cuda::KvLayout::value_value(d))]);
        }
        const auto* codes = reinterpret_cast<const unsigned char*>(base);
        float scale;
        std::memcpy(&scale, codes + cuda::KvCodes::scales(layout.width, place) + 4 * which, 4);
        const unsigned char code = codes[which == 0 ? cuda::KvCodes::key(layout.width, place, d)
                                                    : cuda::KvCodes::value(layout.width, place, d)];
        return (static_cast<double>(code) - cuda::kCodeZero) * scale / cuda::kLargestCode;
    }
    const std::vector<std::int32_t>& pages(std::int32_t sequence) const { return pages_[size(sequence)]; }

    cuda::KvLayout layout;
    std::vector<__half> host;

private:
    void store(std::int32_t s, std::int32_t position) {
        const std::int32_t page = pages_[size(s)][size(position / kPagePositions)], place = position % kPagePositions;
        for (std::int32_t head = 0; head < h_.kv_heads; ++head) {
            for (int which = 0; which < 2; ++which) {
                float largest = 0;
                for (std::int32_t d = 0; d < h_.head_dim; ++d) {
                    largest = std::max(largest, std::fabs(raw(s, position, head, which, d)));
                }
                auto* codes = reinterpret_cast<unsigned char*>(host.data() + page * layout.page_stride +
                                                               head * layout.head_stride);
                const float scale = kernels::kv_code_scale(largest);
                for (std::int32_t d = 0; d < h_.head_dim; ++d) {
                    const float value = raw(s, position, head, which, d);
                    if (h_.format == KvFormat::q8) {
                        codes[which == 0 ? cuda::KvCodes::key(layout.width, place, d)
                                         : cuda::KvCodes::value(layout.width, place, d)] =
                            static_cast<unsigned char>(cuda::kCodeZero +
                                                       static_cast<int>(kernels::kv_code(value, scale)));
                    } else {
                        const std::int64_t at = which == 0
                                                    ? layout.k_cell(page, place) + cuda::KvLayout::key_value(d)
                                                    : layout.v_cell(page, place) + cuda::KvLayout::value_value(d);
                        host[size(at + head * layout.head_stride)] = __float2half_rn(value);
                    }
                }
                if (h_.format == KvFormat::q8) {
                    std::memcpy(codes + cuda::KvCodes::scales(layout.width, place) + 4 * which, &largest, 4);
                }
            }
        }
    }

    Heads h_;
    std::vector<std::int32_t> lengths_;
    std::vector<std::vector<std::int32_t>> pages_;
};

// Which kernel attends.
enum class Form { decode, flash_decode, prefill, flash_prefill, flash_prefill_of_few };

struct Place {
    std::int32_t sequence, position;
};

// Runs batches of rows against a cache, in one form or the other.
class Attention {
public:
    Attention(const Heads& heads, const Cache& cache) : h_(heads), cache_(cache) {
        pool_ = cuda::to_device(std::span<const __half>(cache.host));
    }
    // The outputs of the rows. `own`: K and V of the rows themselves are handed over as numbers, and their cells hold
    // something else before (codes only).
    std::vector<float> run(Form form, const std::vector<Place>& places, bool own = false) {
        const auto T = static_cast<std::int32_t>(places.size());
        std::vector<kernels::Row> rows;
        std::int32_t sequences = 0;
        for (const Place& place : places) {
            rows.push_back({kernels::TokenRef::id(0), place.position, place.sequence});
            sequences = std::max(sequences, place.sequence + 1);
        }
        std::vector<kernels::SequenceView> views;
        for (std::int32_t s = 0; s < sequences; ++s) {
            std::int32_t committed = 1 << 30;
            for (const Place& place : places) {
                if (place.sequence == s) committed = std::min(committed, place.position);
            }
            views.push_back({cache_.pages(s), committed});
        }
        kernels::Batch batch;
        batch.rows = rows;
        batch.sequences = views;
        const std::int32_t room = cuda::rows_per_tile(h_.heads / h_.kv_heads);
        std::vector<std::int32_t> scratch(size(sequences));
        const auto [layout, furthest, listed] = cuda::measure_batch(batch, room, scratch);
        std::vector<std::byte> bytes(size(layout.lists_at() + 4 * listed));
        cuda::write_batch(batch, room, scratch, layout, bytes.data());
        const auto on_device_batch = cuda::to_device(std::span<const std::byte>(bytes));

        const std::int32_t width = h_.heads * h_.head_dim;
        std::vector<float> queries;
        for (const Place& place : places) {
            for (std::int32_t i = 0; i < width; ++i) {
                queries.push_back(
                    number(1000000007LL + (std::int64_t{place.sequence} * 50000 + place.position) * width + i));
            }
        }
        const auto q = on_device(queries);
        const auto out = poisoned(queries.size());
        cuda::AttendCall call;
        call.batch = layout.view(on_device_batch.data());
        call.tiles = layout.tiles;
        call.heads = h_.heads;
        call.kv_heads = h_.kv_heads;
        call.head_dim = h_.head_dim;
        call.layout = cache_.layout;
        cuda::shape_attention(call);
        call.chunks = cuda::chunk_of(cuda::attend_reach(furthest) - 1, call.block_shift) + 1;
        call.scale = 2.0f / std::sqrt(static_cast<float>(h_.head_dim));
        call.window = h_.window;
        call.q = q.data();
        call.out = out.data();
        call.rows = T;
        const bool decodes = form == Form::decode || form == Form::flash_decode;
        const std::size_t floats = decodes ? size(cuda::attend_partial_floats(call)) : 0;
        if (partial_.size() < floats) {
            partial_ = DeviceBuffer<float>(floats);
            cuda::cuda_check(cudaMemset(partial_.data(), cuda::kNotReadyByte, partial_.bytes()), "cannot fill memory");
            flash_partial_ = poisoned(floats);
            taken_ = cuda::to_device(std::span<const std::int32_t>(std::vector<std::int32_t>(cuda::kTakenCounters)));
        }
        call.partial = form == Form::flash_decode ? flash_partial_.data() : partial_.data();
        call.taken = taken_.data();
        DeviceBuffer<float> new_kv;
        if (own) {
            std::vector<float> numbers;
            for (const Place& place : places) {
                for (int which = 0; which < 2; ++which) {
                    for (std::int32_t head = 0; head < h_.kv_heads; ++head) {
                        for (std::int32_t d = 0; d < h_.head_dim; ++d) {
                            numbers.push_back(cache_.raw(place.sequence, place.position, head, which, d));
                        }
                    }
                }
            }
            new_kv = on_device(numbers);
            call.new_kv = new_kv.data();
            pool_ = cuda::to_device(std::span<const __half>(without(places)));
        }
        call.kv = pool_.data();
        std::int32_t together = 1;
        for (std::size_t t = 0, run = 0; t < places.size(); ++t) {
            run = t > 0 && places[t].sequence == places[t - 1].sequence ? run + 1 : 1;
            together = std::max(together, (static_cast<std::int32_t>(run) + room - 1) / room);
        }
        switch (form) {
            case Form::decode:
                cuda::launch_attend_decode(nullptr, call);
                break;
            case Form::flash_decode:
                cuda::launch_flash_decode(nullptr, call, together);
                break;
            case Form::prefill:
                cuda::launch_attend_prefill(nullptr, call);
                break;
            case Form::flash_prefill:
                cuda::launch_flash_prefill(nullptr, call, 1);
                break;
            case Form::flash_prefill_of_few:
                cuda::launch_flash_prefill(nullptr, call, 1000000);
                break;
        }
        return to_host(out);
    }
    // Whether the launches have left what they share as they found it.
    void expect_clean() const {
        for (const std::int32_t taken : to_host(taken_)) EXPECT_EQ(taken, 0);
        for (const float word : to_host(partial_)) {
            std::uint32_t bits;
            std::memcpy(&bits, &word, 4);
            ASSERT_EQ(bits, 0xffffffffu);
        }
    }
    std::vector<__half> pool() const { return to_host(pool_); }

private:
    // The cache with other codes where the rows have their own.
    std::vector<__half> without(const std::vector<Place>& places) const {
        std::vector<__half> changed = cache_.host;
        for (const Place& place : places) {
            const std::int32_t page = cache_.pages(place.sequence)[size(place.position / kPagePositions)];
            for (std::int32_t head = 0; head < h_.kv_heads; ++head) {
                auto* codes = reinterpret_cast<unsigned char*>(changed.data() + page * cache_.layout.page_stride +
                                                               head * cache_.layout.head_stride);
                const std::int32_t at = place.position % kPagePositions;
                for (std::int32_t d = 0; d < h_.head_dim; ++d) {
                    codes[cuda::KvCodes::key(cache_.layout.width, at, d)] ^= 0x55;
                    codes[cuda::KvCodes::value(cache_.layout.width, at, d)] ^= 0x33;
                }
                const float other[] = {7.0f, 9.0f};
                std::memcpy(codes + cuda::KvCodes::scales(cache_.layout.width, at), other, sizeof(other));
            }
        }
        return changed;
    }

    Heads h_;
    const Cache& cache_;
    DeviceBuffer<__half> pool_;
    DeviceBuffer<float> partial_, flash_partial_;
    DeviceBuffer<std::int32_t> taken_;
};

inline std::vector<Place> rows_from(std::int32_t first, std::int32_t count) {
    std::vector<Place> places;
    for (std::int32_t t = 0; t < count; ++t) places.push_back({0, first + t});
    return places;
}

}  // namespace foresay::test
