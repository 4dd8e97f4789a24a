// kernels/cuda/decode/packed.cuh: what the decode kernel (gemv.cuh) does otherwise for packed rows, whose blocks are
// not alike: the ring, the activations and the products. Up to 8 rows.
//
// Blocks:   a panel's blocks have the codes and the size of their run (weights/packed_format.h). Warp w has blocks w,
//           16 + w, 32 + w .. of a part of K, as with Q4_0.
// Ring:     slots have packed_chunk_bytes(). A chunk has as many blocks as fit, 16, 32 .. or fewer, of any runs.
// Kinds:    a warp chooses the code of a block by a jump that all its lanes take. Which code that is, and where the
//           block lies in its chunk, is the same in all panels, and found once a step (PackedPlaces). Nothing is
//           unrolled over the slice, and activations lie in shared memory, of each warp [row][group of 32
//           inputs][q][step] as rows 8 to 15 do elsewhere, then the sums of each 16 inputs, float32, as a lane reads
//           those of a group: [group of 32 inputs][row][16 inputs].
// Order:    inputs that have one change places where they become float16: through shared memory where the CTA has all
//           of them, else each is loaded by itself.
// Begin:    a step waits for its activations longest, so they are asked for first. What the matrix's header says, the
//           order too, is looked up while they come.
// Scales:   code times s and the sum of activations times m (minus s times zero) are added in float32, m last.
// Law 1:    which warp has which block, and the order of all sums, follow from the matrix alone.
#pragma once

#include "kernels/cuda/decode/gemv.cuh"
#include "kernels/cuda/decode/packed_header.cuh"
#include "kernels/cuda/decode/packed_multiply.cuh"
#include "kernels/cuda/decode/packed_plan.cuh"

namespace foresay::kernels::cuda {

template <int NT, class Args>
class CopyRing<QuantType::packed, NT, Args> {
public:
    static constexpr int kWarps = kPackedWarps, kSlotBytes = packed_chunk_bytes(kLittleShared);

    __device__ static void start(const Args& args, char* shared) {
        const CopyRing ring(args, shared);
        const int lane = threadIdx.x % 32;
        if (lane < args.plan.ring_slots) {
            copy_barrier_init(ring.full(lane));
            mbarrier_init(ring.empty(lane), kWarps * kWarpArrivals);
        }
        copy_barriers_ready();
        if (lane < kWarps) store_shared2(ring.parked(lane), {0, 0});
    }
    // As CopyRing::produce(). The header of a step's matrix comes with its first chunk.
    __device__ static void produce(const Args& args, char* shared) {
        constexpr int kInFlight = 2, kReady = 2;
        CopyRing ring(args, shared), landed(args, shared);
        const int lane = threadIdx.x % 32;
#if __CUDA_ARCH__ >= 900
        if (lane != 0) return;
#endif
        int in_flight = 0;
#pragma unroll 1
        for (int s = 0; s < args.steps; ++s) {
            const CtaShare share = CtaShare::of(args, shared, s);
            if (share.idle()) continue;
            const std::uint8_t* const matrix = args.step[s].panels;
            const SharedHeader header(ring.headers());
            copy_header(header, matrix, lane);
            bool header_due = true;
            const std::int64_t panel_bytes = header.panel_bytes();
            const std::uint8_t* from = matrix + header.panels_at() + share.panel_begin * panel_bytes;
            const int chunk = header.chunk();
#pragma unroll 1
            for (int panel = share.panel_begin; panel < share.panel_end; ++panel, from += panel_bytes) {
#pragma unroll 1
                for (int block = 0; block < share.count; block += chunk) {
                    const int first = share.first + block;
                    const int2 place = header.place(first, min(first + chunk, share.first + share.count));
                    mbarrier_wait(ring.empty(ring.slot_), ring.parity_ ^ 1);
                    while (in_flight > 0 && (in_flight >= kInFlight || !ring.lacks(in_flight, kReady))) {
                        mbarrier_wait(landed.full(landed.slot_), landed.parity_);
                        landed.advance();
                        --in_flight;
                    }
                    ++in_flight;
                    if (header_due) {
                        bulk_copy_ahead(ring.header_address(), matrix, sizeof(PackedHeader), ring.full(ring.slot_),
                                        lane);
                        ring.next_header();
                        header_due = false;
                    }
                    bulk_copy(ring.slot_address(ring.slot_), from + place.x, static_cast<std::uint32_t>(place.y),
                              ring.full(ring.slot_), lane);
                    ring.advance();
                }
            }
        }
    }

    __device__ static CopyRing resumed(const Args& args, char* shared) {
        CopyRing ring(args, shared);
        std::uint32_t packed;
        load_shared2(packed, ring.panels_summed_, ring.parked(threadIdx.x / 32));
        ring.slot_ = static_cast<int>(packed & 0xffu);
        ring.header_ = static_cast<int>(packed >> 8 & 0xffu);
        ring.parity_ = packed >> 16;
        return ring;
    }
    __device__ void park() const {
        __syncwarp();
        if (threadIdx.x % 32 == 0) {
            store_shared2(parked(threadIdx.x / 32),
                          {static_cast<std::uint32_t>(slot_ | header_ << 8) | parity_ << 16, panels_summed_});
        }
        __syncwarp();
    }
    // The header of the step's matrix, which comes with its first chunk.
    __device__ SharedHeader header() const {
        wait();
        return SharedHeader(header_address());
    }
    // Where this warp's PackedPlaces are.
    __device__ std::uint32_t places() const {
        return headers() + static_cast<std::uint32_t>((packed_headers(kPackedRingSlots) + 1) * sizeof(PackedHeader)) +
               threadIdx.x / 32 * kPackedPlaceBytes;
    }
    __device__ void next_header() { header_ = header_ + 1 < packed_headers(args_.plan.ring_slots) ? header_ + 1 : 0; }
    __device__ std::uint32_t& panels_summed() { return panels_summed_; }
    __device__ __forceinline__ void wait() const { mbarrier_wait(full(slot_), parity_); }
    __device__ __forceinline__ std::uint32_t address() const { return slot_address(slot_); }
    __device__ __forceinline__ void release() {
        mbarrier_arrive_warp(empty(slot_));
        advance();
    }

private:
    // By the lanes that are there: one from sm_90 on, else all.
    static __device__ void copy_header(const SharedHeader& header, const std::uint8_t* matrix, int lane) {
#if __CUDA_ARCH__ >= 900
        uint4 words[SharedHeader::kWords];
#pragma unroll
        for (int i = 0; i < SharedHeader::kWords; ++i) words[i] = SharedHeader::word(matrix, i);
#pragma unroll
        for (int i = 0; i < SharedHeader::kWords; ++i) header.put(i, words[i]);
#else
        __syncwarp();
        if (lane < SharedHeader::kWords) header.put(lane, SharedHeader::word(matrix, lane));
        __syncwarp();
#endif
    }
    __device__ CopyRing(const Args& args, char* shared) : args_(args), shared_(shared_address(shared)) {}
    __device__ __forceinline__ void advance() {
        if (++slot_ < args_.plan.ring_slots) return;
        slot_ = 0;
        parity_ ^= 1;
    }
    __device__ bool lacks(int in_flight, int enough) const {
        const int ring_slots = args_.plan.ring_slots, at = slot_ + max(ring_slots - in_flight - enough, 0);
        return at < ring_slots ? mbarrier_test(empty(at), parity_ ^ 1) : mbarrier_test(empty(at - ring_slots), parity_);
    }
    __device__ std::uint32_t full(int slot) const { return shared_ + slot * 16; }
    __device__ std::uint32_t empty(int slot) const { return shared_ + slot * 16 + 8; }
    __device__ std::uint32_t slot_address(int slot) const { return shared_ + kGemvHeaderBytes + slot * kSlotBytes; }
    __device__ std::uint32_t parked(int warp) const { return shared_ + kRingStatesAt + warp * 8; }
    // The producer's own, then those of steps.
    __device__ std::uint32_t headers() const {
        return shared_ + static_cast<std::uint32_t>(args_.plan.upper_rows_at - kPackedHeaderBytes);
    }
    __device__ std::uint32_t header_address() const {
        return headers() + static_cast<std::uint32_t>((header_ + 1) * static_cast<int>(sizeof(PackedHeader)));
    }

    const Args& args_;
    std::uint32_t shared_;
    int slot_ = 0, header_ = 0;
    std::uint32_t parity_ = 0;
    std::uint32_t panels_summed_ = 0;
};

// A warp's slice of the activations, in shared memory. Its numbers are those of Q4_0's operand: the same slices, scales
// and rounding.
class PackedOperand : private ActivationOperand<QuantType::q4_0, 1> {
public:
    // As ActivationOperand::load(). order_of(): waits for the matrix's header; where the order of its inputs lies in
    // global memory, or null. meanwhile(): waits until the row statistics and the panel sums' memory are free.
    template <class OrderOf, class Meanwhile>
    __device__ void load(const GemvOp& op, const float* x, const float* norm, int first, int count, int rows,
                         const GemvPlan& plan, char* shared, const OrderOf& order_of, const Meanwhile& meanwhile) {
        const Reader reader{op, x, norm, first, count, plan, shared};
        // Early where K has no parts: else how inputs are loaded depends on their order. Eight rows would take the
        // registers of what is done meanwhile.
        const bool early = op.split == 1;
        if (rows == 1 && early) {
            read<1, true>(reader, rows, order_of, meanwhile);
        } else if (rows == 1) {
            read<1, false>(reader, rows, order_of, meanwhile);
        } else if (rows <= 4 && early) {
            read<4, true>(reader, rows, order_of, meanwhile);
        } else if (rows <= 4) {
            read<4, false>(reader, rows, order_of, meanwhile);
        } else {
            read<8, false>(reader, rows, order_of, meanwhile);
        }
        const auto lane = static_cast<int>(thread_index() % 32);
        operands_ = reader.second() + min(lane / 4, rows - 1) * kPackedRowBytes + lane % 4 * 16;
        sums_ = reader.second() + rows * kPackedRowBytes;
        __syncwarp();
        sum_up();
        sums_ += lane % 4 * 16;
        __syncwarp();
    }
    // The operand of group g of the slice, and the sums of its two sixteens of inputs: those of the lane's first
    // column, then of its second.
    __device__ uint4 operand(int g) const { return load_shared4(operands_ + g * 64); }
    __device__ float4 sums(int g) const {
        const uint4 words = load_shared4(sums_ + g * 64);
        return {__uint_as_float(words.x), __uint_as_float(words.y), __uint_as_float(words.z), __uint_as_float(words.w)};
    }

private:
    // Where four inputs stand. Kept as they are loaded: taken apart at once, each load would be waited for.
    struct Places {
        uint2 words;
        __device__ std::uint32_t at(int i) const {
            const std::uint32_t word = i < 2 ? words.x : words.y;
            return i % 2 == 0 ? word & 0xffffu : word >> 16;
        }
    };

    // Rows 0 .. here - 1, at most B, all in flight at once, as ActivationOperand::read(). kEarly: they are asked for
    // before the header is awaited, as they lie.
    template <int B, bool kEarly, class OrderOf, class Meanwhile>
    __device__ void read(const Reader& r, int here, const OrderOf& order_of, const Meanwhile& meanwhile) {
        float4 x[B][kVectors];
        float4 weight[kVectors] = {};
        const float* from[kVectors];
        std::int32_t stride[kVectors];
#pragma unroll
        for (int v = 0; v < kVectors; ++v) {
            const int at = r.input_of(v);
            const bool exists = at < r.op.inputs;
            from[v] = exists ? r.x + at : r.plan.zeros;
            stride[v] = exists ? r.op.inputs : 0;
        }
        const auto place_of = [&](int row, int v) { return from[v] + static_cast<std::int64_t>(row) * stride[v]; };
        const auto look_at_all = [&](const auto& look) {
#pragma unroll
            for (int b = 0; b < B; ++b) {
                const int in_batch = min(b, here - 1);
                const int row = r.op.row == nullptr ? in_batch : __ldcg(r.op.row + in_batch);
#pragma unroll
                for (int v = 0; v < kVectors; ++v) look(x[b][v], row, v);
            }
        };
        if constexpr (kEarly) {
            look_at_all([&](float4& to, int row, int v) { to = load_flagged4(place_of(row, v)); });
            if (r.norm != nullptr) {
#pragma unroll
                for (int v = 0; v < kVectors; ++v) weight[v] = r.constant(v);
            }
        }
        const std::uint16_t* const order = order_of();
        // Inputs in an order: where the CTA has all of them, they change places in shared memory; else each is loaded
        // by itself.
        const bool alone = !kEarly && order != nullptr && r.op.split > 1;
        Places place[kVectors];
#pragma unroll
        for (int v = 0; v < kVectors; ++v) {
            place[v].words = {0x00010000u, 0x00030002u};
            if (order == nullptr || stride[v] == 0) continue;
            place[v].words = __ldg(reinterpret_cast<const uint2*>(order + r.input_of(v)));
            if (alone) from[v] = r.x;
        }
        meanwhile();
        const auto look = [&](float4& to, int row, int v) {
            const float* const at = place_of(row, v);
            if (!alone) {
                to = load_flagged4(at);
            } else {
                to = {load_flagged(at + place[v].at(0)), load_flagged(at + place[v].at(1)),
                      load_flagged(at + place[v].at(2)), load_flagged(at + place[v].at(3))};
            }
        };
        if constexpr (!kEarly) {
            look_at_all(look);
            if (r.norm != nullptr) {
#pragma unroll
                for (int v = 0; v < kVectors; ++v) {
                    if (!alone) {
                        weight[v] = r.constant(v);
                    } else if (stride[v] != 0) {
                        weight[v] = {r.norm[place[v].at(0)], r.norm[place[v].at(1)], r.norm[place[v].at(2)],
                                     r.norm[place[v].at(3)]};
                    }
                }
            }
        }
        // Flagged words again, until all lanes have everything. Rows are never chosen (op.row) where words are flagged.
        if (r.op.x_flagged) {
            for (;;) {
                std::uint32_t most = 0;
#pragma unroll
                for (int b = 0; b < B; ++b) {
#pragma unroll
                    for (int v = 0; v < kVectors; ++v) most = largest_word(most, x[b][v]);
                }
                const unsigned those = __ballot_sync(~0u, most == kNotReady);
                if (those == 0) break;
                // As long as nothing is there, few lanes poll.
                const bool looks = those != ~0u || thread_index() % 16 == 0;
#pragma unroll
                for (int b = 0; b < B; ++b) {
#pragma unroll
                    for (int v = 0; v < kVectors; ++v) {
                        if (looks && not_ready(x[b][v])) look(x[b][v], min(b, here - 1), v);
                    }
                }
            }
        }
        const auto lane = static_cast<int>(thread_index() % 32);
        float* const stats = r.stats();
        if (r.norm != nullptr) {
            float squares[B];
#pragma unroll
            for (int b = 0; b < B; ++b) {
                squares[b] = 0.0f;
#pragma unroll
                for (int v = 0; v < kVectors; ++v) {
                    float4& a = x[b][v];
                    const float4 w = weight[v];
                    squares[b] += fmaf(a.x, a.x, a.y * a.y) + fmaf(a.z, a.z, a.w * a.w);
                    a = {a.x * w.x, a.y * w.y, a.z * w.z, a.w * w.w};
                }
            }
            const int b = sum_over_lanes(squares, lane);
            if (lane % (32 / B) == 0 && b < here) stats[16 + b] = squares[0];
        }
        if (order != nullptr && !alone) change_places<B>(r, here, stride, place, x);
        const std::uint32_t to = r.second() + lane / 8 * 64 + lane % 4 * 16 + lane / 4 % 2 * 8;
        std::uint32_t back = 0;
#pragma unroll
        for (int b = 0; b < B; ++b) {
            float most = 0.0f;
#pragma unroll
            for (int v = 0; v < kVectors; ++v) most = larger_magnitude(most, x[b][v]);
            const RowScale<false> row(__reduce_max_sync(~0u, __float_as_uint(most)));
            const float scale = row.up();
            if (lane == b) back = row.back_exponent();
            uint2 half[1][1][kVectors];
#pragma unroll
            for (int v = 0; v < kVectors; ++v) {
                const float4 a = x[b][v];
                round({a.x * scale, a.y * scale, a.z * scale, a.w * scale}, half, 0, v);
                if (b < here) store_shared2(to + b * kPackedRowBytes + v * 256, half[0][0][v]);
            }
        }
        if (lane < here) stats[lane] = __uint_as_float(back << 23);
    }

    // Puts the inputs of rows into the matrix's order. The first barrier of several rows shows that all are there, the
    // second one that all have been taken: then others come, or the operands. Before the first rows none is needed: the
    // warps have met since the last step, and the epilogue has read the panel sums (load()'s meanwhile()).
    template <int B>
    __device__ static void change_places(const Reader& r, int here, const std::int32_t (&stride)[kVectors],
                                         const Places (&place)[kVectors], float4 (&x)[B][kVectors]) {
        constexpr int kTogether = packed_rows_together(B);
        char* const room = r.shared + r.plan.upper_rows_at;
#pragma unroll
        for (int first = 0; first < B; first += kTogether) {
            if (first >= here) break;
            if (first > 0) multiplier_barrier<kPackedWarps>();
#pragma unroll
            for (int v = 0; v < kVectors; ++v) {
                if (stride[v] == 0) continue;
                char* const to = room + r.input_of(v) * 4;
#pragma unroll
                for (int i = 0; i < kTogether; ++i) {
                    if (first + i < here) *reinterpret_cast<float4*>(to + i * kPackedPassageBytes) = x[first + i][v];
                }
            }
            multiplier_barrier<kPackedWarps>();
#pragma unroll
            for (int v = 0; v < kVectors; ++v) {
                if (stride[v] == 0) continue;
                std::uint32_t at[4];
#pragma unroll
                for (int c = 0; c < 4; ++c) at[c] = shared_address(room) + place[v].at(c) * 4;
#pragma unroll
                for (int i = 0; i < kTogether; ++i) {
                    if (first + i >= here) continue;
                    const auto there = [&](int c) {
                        return __int_as_float(
                            load_shared1(at[c] + static_cast<std::uint32_t>(i * kPackedPassageBytes)));
                    };
                    x[first + i][v] = {there(0), there(1), there(2), there(3)};
                }
            }
        }
        multiplier_barrier<kPackedWarps>();
    }

    __device__ void sum_up() {
        constexpr int kGroups = kPackedSlice / 32;
        const std::uint32_t lane = thread_index() % 32;
        // All loads, then all products: the groups need not wait for one another.
        uint4 x[kGroups];
        float2 sums[kGroups];
#pragma unroll
        for (int g = 0; g < kGroups; ++g) x[g] = operand(g);
#pragma unroll
        for (int g = 0; g < kGroups; ++g) sums[g] = sums_of_sixteens(x[g]);
        if (lane % 4 != 0) return;
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
            store_shared2(sums_ + g * 64 + lane * 2, {__float_as_uint(sums[g].x), __float_as_uint(sums[g].y)});
        }
    }

    std::uint32_t operands_ = 0, sums_ = 0;
};

// Where a warp's blocks lie, which is the same in all panels of a step: in shared memory, a word of four each.
class PackedPlaces {
public:
    explicit __device__ PackedPlaces(std::uint32_t address) : address_(address) {}
    // By the lanes of the warp, a block each. `first`, `count`: the CTA's blocks of a panel.
    __device__ void find(const SharedHeader& header, int first, int count) const {
        const auto warp = static_cast<int>(thread_index() / 32), lane = static_cast<int>(thread_index() % 32);
        const int block = lane * kPackedWarps + warp, chunk = header.chunk();
        const bool exists = lane < kPackedSliceBlocks && block < count;
        std::uint32_t of = static_cast<std::uint32_t>((count + chunk - 1) / chunk) << 16, at = 0, zero = 0;
        if (exists) {
            const std::uint32_t number = static_cast<std::uint32_t>(block / chunk);
            const int begin = first + static_cast<int>(number) * chunk;
            const PackedRun run = header.run_with(first + block);
            at = static_cast<std::uint32_t>(SharedHeader::begin_of(run, first + block) -
                                            SharedHeader::begin_of(header.run_with(begin), begin));
            of = number << 16 | static_cast<std::uint32_t>(bytes_apart(run)) / 64 << 8 |
                 static_cast<std::uint32_t>(run.kind);
            zero = __float_as_uint(run.zero);
        }
        // Whether the next block has codes of this kind and is in the same chunk.
        const std::uint32_t next = __shfl_sync(~0u, of, (lane + 1) % 32);
        if (exists && lane + 1 < kPackedSliceBlocks && block + kPackedWarps < count &&
            (next & 0xff00ffu) == (of & 0xff00ffu)) {
            of |= kGoesOn;
        }
        if (lane <= kPackedSliceBlocks) {
            store_shared2(address_ + static_cast<std::uint32_t>(lane) * 16, {at, of});
            store_shared2(address_ + static_cast<std::uint32_t>(lane) * 16 + 8, {zero, 0});
        }
        __syncwarp();
    }
    struct Place {
        uint4 words;
        __device__ std::uint32_t at() const { return words.x; }  // in its chunk
        __device__ CodeKind kind() const { return static_cast<CodeKind>(words.y & 255u); }
        __device__ int apart() const { return static_cast<int>(words.y >> 2 & 0x3fc0u); }
        __device__ int chunk() const {
            return static_cast<int>(words.y >> 16 & 255u);
        }  // after the last block: how many
        __device__ bool goes_on() const { return (words.y & kGoesOn) != 0; }
        __device__ float zero() const { return __uint_as_float(words.z); }
    };
    // Of block j of the warp's slice, or of the one after the last.
    __device__ Place of(int j) const { return {load_shared4(address_ + static_cast<std::uint32_t>(j) * 16)}; }

private:
    static constexpr std::uint32_t kGoesOn = 1u << 24;
    std::uint32_t address_;
};

// A warp's slice of one panel: adds weights times activations to `sums`.
template <bool kOneRow, class Stream>
__device__ __forceinline__ void multiply_packed_slice(Stream& ring, const PackedOperand& in, const PackedMatrix& matrix,
                                                      const PackedPlaces& places, int chunks, float (&sums)[2][1][4]) {
    PackedPlaces::Place place = places.of(0);
    int chunk = 0;
#pragma unroll 1
    for (int j = 0;;) {
        // Also chunks without a block of this warp are waited for, as in multiply_slice().
#pragma unroll 1
        for (; chunk < place.chunk(); ++chunk) {
            ring.wait();
            ring.release();
        }
        if (chunk == chunks) break;
        ring.wait();
        visit_code_kind(place.kind(), [&](auto kind) {
            bool goes_on;
#pragma unroll 1
            do {
                const PackedPlaces::Place now = place;
                place = places.of(j + 1);
                multiply_packed<kind.value, kOneRow>(SharedBlock{ring.address() + now.at()}, matrix, now.apart(),
                                                     now.zero(), in, 2 * j, static_cast<int>(thread_index() % 32),
                                                     sums);
                ++j;
                goes_on = now.goes_on();
            } while (goes_on);
        });
    }
}

// One panel after the other. No lambda: the compiler would call one as long as this is, with all sums in memory.
template <bool kOneRow, class Stream, class Args>
__device__ __forceinline__ void multiply_packed_panels(Stream& ring, const PackedOperand& in,
                                                       const PackedMatrix& matrix, int panels,
                                                       PanelSums<kPackedWarps>& panel_sums, const Args& args,
                                                       char* shared) {
    const PackedPlaces places(ring.places());
    const int chunks = places.of(kPackedSliceBlocks).chunk();
#pragma unroll 1
    for (; panels > 0; --panels) {
        float sums[2][1][4] = {};
        multiply_packed_slice<kOneRow>(ring, in, matrix, places, chunks, sums);
        store_sums<kOneRow>(sums, panel_sums, args.rows, args.plan, shared);
        panel_sums.hand_over();
        panel_sums.next();
    }
}

// A matrix step, by the multiplying warps: preferred to the one of gemv.cuh because it is constrained.
template <QuantType E, int NT, class Args>
requires(E == QuantType::packed) __device__ __forceinline__ void multiply_cta_share(const Args& args, char* shared) {
    static_assert(NT == 1);
    const auto now = [&] { return load_shared1(shared_address(shared) + kStepStateAt); };
    const GemvPlan& plan = args.plan;
    PackedOperand in;
    {
        const int s = now();
        const GemvOp& op = args.op(s);
        const CtaShare share = CtaShare::of(args, shared, s);
        if (share.idle()) return;
        const auto order_of = [&]() -> const std::uint16_t* {
            const SharedHeader header = CopyRing<E, NT, Args>::resumed(args, shared).header();
            if (header.panels_at() == sizeof(PackedHeader)) return nullptr;
            return reinterpret_cast<const std::uint16_t*>(args.step[s].panels + kOrderAt);
        };
        in.load(op, op.x + args.flagged_offset(op.x_flagged, args.step[s].x_buffer), args.step[s].norm, share.first,
                share.count, args.rows, plan, shared, order_of, [&] {
                    auto ring = CopyRing<E, NT, Args>::resumed(args, shared);
                    PackedPlaces(ring.places()).find(ring.header(), share.first, share.count);
                    // Waits until the epilogue has read the statistics of the step before.
                    PanelSums<kPackedWarps>(shared, plan, args.rows, ring.panels_summed()).all_read();
                });
    }
    auto ring = CopyRing<E, NT, Args>::resumed(args, shared);
    PanelSums<kPackedWarps> panel_sums(shared, plan, args.rows, ring.panels_summed());
    const CtaShare share = CtaShare::of(args, shared, now());
    const SharedHeader header = ring.header();
    const PackedMatrix matrix{header, header.scales(), header.minimum_is_zero(), header.factor(thread_index() / 4)};
    const int panels = share.panel_end - share.panel_begin;
    if (args.rows == 1) {
        multiply_packed_panels<true>(ring, in, matrix, panels, panel_sums, args, shared);
    } else {
        multiply_packed_panels<false>(ring, in, matrix, panels, panel_sums, args, shared);
    }
    ring.next_header();
    ring.park();
}

}  // namespace foresay::kernels::cuda
