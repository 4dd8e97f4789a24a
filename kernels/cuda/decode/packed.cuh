// kernels/cuda/decode/packed.cuh: what the decode kernel (gemv.cuh) does otherwise for packed rows, whose blocks are
// not alike: the ring, the activations and the products. Up to 8 rows.
//
// Blocks:   a panel's blocks have the codes and the size of their run (weights/packed_format.h). Warp w has blocks w,
//           16 + w, 32 + w .. of a part of K, as with Q4_0.
// Ring:     slots have packed_chunk_bytes(). A chunk is as many blocks as fit, 16, 32 .. or fewer, and ends with its
//           run.
// Kinds:    a warp chooses the code of each block again, by a jump that all its lanes take. So nothing is unrolled over
//           the slice, and activations lie in shared memory, of each warp [row][group of 32 inputs][q][step] as rows 8
//           to 15 do elsewhere, then the sums of each 16 inputs, [16 inputs][8 rows] float32.
// Order:    inputs that have one are gathered where they become float16.
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
    // As CopyRing::produce(), with chunks of a run each. Short ones count by their bytes: as much is in flight as two
    // long ones have, in at most four.
    __device__ static void produce(const Args& args, char* shared) {
        constexpr int kInFlight = 2, kShortInFlight = 4, kLines = kInFlight * kSlotBytes / 64;
        CopyRing ring(args, shared), landed(args, shared);
        const int lane = threadIdx.x % 32;
#if __CUDA_ARCH__ >= 900
        if (lane != 0) return;
#endif
        int in_flight = 0, lines_in_flight = 0;
        std::uint64_t lines_of = 0;  // of each chunk in flight, 16 bits, the oldest lowest
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
            const int first_run = header.run_of(0, share.first), end = share.first + share.count;
            const PackedRun first = header.run(first_run);
            const int ready = end > first.end ? 3 : 2;  // chunks that may lie unread beside two in flight
#pragma unroll 1
            for (int panel = share.panel_begin; panel < share.panel_end; ++panel, from += panel_bytes) {
                int number = first_run;
                PackedRun run = first;
#pragma unroll 1
                for (int block = share.first; block < end;) {
                    if (block >= run.end) run = header.run(number = header.run_of(number, block));
                    const int blocks = min(static_cast<int>(run.chunk), min(static_cast<int>(run.end), end) - block);
                    const int lines = blocks * run.lines;
                    mbarrier_wait(ring.empty(ring.slot_), ring.parity_ ^ 1);
                    while (in_flight > 0 && (in_flight >= kShortInFlight ||
                                             (in_flight >= kInFlight && lines_in_flight + lines > kLines) ||
                                             !ring.lacks(in_flight, ready))) {
                        mbarrier_wait(landed.full(landed.slot_), landed.parity_);
                        landed.advance();
                        --in_flight;
                        lines_in_flight -= static_cast<int>(lines_of & 0xffffu);
                        lines_of >>= 16;
                    }
                    lines_of |= static_cast<std::uint64_t>(lines) << (16 * in_flight);
                    lines_in_flight += lines;
                    ++in_flight;
                    if (header_due) {
                        bulk_copy_ahead(ring.header_address(), matrix, sizeof(PackedHeader), ring.full(ring.slot_),
                                        lane);
                        ring.next_header();
                        header_due = false;
                    }
                    bulk_copy(ring.slot_address(ring.slot_),
                              from + run.offset + static_cast<std::int64_t>(block - run.first) * run.bytes(),
                              static_cast<std::uint32_t>(lines * 64), ring.full(ring.slot_), lane);
                    ring.advance();
                    block += blocks;
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
        return shared_ + static_cast<std::uint32_t>(args_.plan.upper_rows_at + kWarps * args_.plan.upper_rows_bytes);
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
    // As ActivationOperand::load(). `header`: of the matrix, whose order of inputs lies in global memory.
    __device__ void load(const GemvOp& op, const float* x, const float* norm, const SharedHeader& header,
                         const std::uint8_t* matrix, int first, int count, int rows, const GemvPlan& plan,
                         char* shared) {
        const Reader reader{op, x, norm, first, count, plan, shared};
        const auto* const order = header.panels_at() == sizeof(PackedHeader)
                                      ? nullptr
                                      : reinterpret_cast<const std::uint16_t*>(matrix + kOrderAt);
        if (rows == 1) {
            read<1>(reader, order, rows);
        } else if (rows <= 4) {
            read<4>(reader, order, rows);
        } else {
            read<8>(reader, order, rows);
        }
        const auto lane = static_cast<int>(thread_index() % 32);
        operands_ = reader.second() + min(lane / 4, rows - 1) * kPackedRowBytes + lane % 4 * 16;
        sums_ = reader.second() + rows * kPackedRowBytes;
        __syncwarp();
        sum_up();
        sums_ += lane % 4 * 8;
        __syncwarp();
    }
    // The operand of group g of the slice, and the sums of inputs 16 u .. of it for the lane's two columns.
    __device__ uint4 operand(int g) const { return load_shared4(operands_ + g * 64); }
    __device__ float2 sums(int u) const {
        std::uint32_t a, b;
        load_shared2(a, b, sums_ + u * 32);
        return {__uint_as_float(a), __uint_as_float(b)};
    }

private:
    // Rows 0 .. here - 1, at most B, all in flight at once, as ActivationOperand::read().
    template <int B>
    __device__ void read(const Reader& r, const std::uint16_t* order, int here) {
        float4 x[B][kVectors];
        const float* from[kVectors];
        std::int32_t stride[kVectors];
        ushort4 place[kVectors];
        // Inputs in an order: where the CTA has all of them, they change places in shared memory; else each is loaded
        // by itself.
        const bool alone = order != nullptr && r.op.split > 1;
#pragma unroll
        for (int v = 0; v < kVectors; ++v) {
            const int at = r.input_of(v);
            const bool exists = at < r.op.inputs;
            from[v] = !exists ? r.plan.zeros : alone ? r.x : r.x + at;
            stride[v] = exists ? r.op.inputs : 0;
            place[v] = {0, 1, 2, 3};
            if (order != nullptr && exists) place[v] = __ldg(reinterpret_cast<const ushort4*>(order + at));
        }
        const auto look = [&](float4& to, int row, int v) {
            const float* const at = from[v] + static_cast<std::int64_t>(row) * stride[v];
            if (!alone) {
                to = load_flagged4(at);
            } else {
                to = {load_flagged(at + place[v].x), load_flagged(at + place[v].y), load_flagged(at + place[v].z),
                      load_flagged(at + place[v].w)};
            }
        };
#pragma unroll
        for (int b = 0; b < B; ++b) {
            const int in_batch = min(b, here - 1);
            const int row = r.op.row == nullptr ? in_batch : __ldcg(r.op.row + in_batch);
#pragma unroll
            for (int v = 0; v < kVectors; ++v) look(x[b][v], row, v);
        }
        float4 weight[kVectors] = {};
        if (r.norm != nullptr) {
#pragma unroll
            for (int v = 0; v < kVectors; ++v) {
                if (!alone) {
                    weight[v] = r.constant(v);
                } else if (stride[v] != 0) {
                    weight[v] = {r.norm[place[v].x], r.norm[place[v].y], r.norm[place[v].z], r.norm[place[v].w]};
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
        if (order != nullptr && !alone) {
            // The panel sums' memory is free, and has room for a row.
            const std::uint32_t room = shared_address(r.shared + r.plan.sums_at);
#pragma unroll 1
            for (int b = 0; b < B; ++b) {
                if (b == here) break;
                multiplier_barrier<kPackedWarps>();
#pragma unroll
                for (int v = 0; v < kVectors; ++v) {
                    if (stride[v] == 0) continue;
                    const std::uint32_t at = room + static_cast<std::uint32_t>(r.input_of(v)) * 4;
#pragma unroll
                    for (int i = 0; i < B; ++i) {
                        if (i != b) continue;
                        store_shared2(at, {__float_as_uint(x[i][v].x), __float_as_uint(x[i][v].y)});
                        store_shared2(at + 8, {__float_as_uint(x[i][v].z), __float_as_uint(x[i][v].w)});
                    }
                }
                multiplier_barrier<kPackedWarps>();
                const auto there = [&](std::uint16_t input) {
                    return __int_as_float(load_shared1(room + static_cast<std::uint32_t>(input) * 4));
                };
#pragma unroll
                for (int v = 0; v < kVectors; ++v) {
                    if (stride[v] == 0) continue;
                    const float4 got = {there(place[v].x), there(place[v].y), there(place[v].z), there(place[v].w)};
#pragma unroll
                    for (int i = 0; i < B; ++i) {
                        if (i == b) x[i][v] = got;
                    }
                }
            }
            multiplier_barrier<kPackedWarps>();
        }
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

    __device__ void sum_up() {
        const std::uint32_t lane = thread_index() % 32;
#pragma unroll
        for (int g = 0; g < kPackedSlice / 32; ++g) {
            const float2 sums = sums_of_sixteens(operand(g));
            if (lane % 4 != 0) continue;
            store_shared1(sums_ + g * 64 + lane, sums.x);
            store_shared1(sums_ + g * 64 + 32 + lane, sums.y);
        }
    }

    std::uint32_t operands_ = 0, sums_ = 0;
};

// The runs of a CTA's part of K, round and round, one panel after the other. The next one is loaded while the one
// before is multiplied with.
class RunWalk {
public:
    __device__ RunWalk(const SharedHeader& header, int first, int end)
        : header_(header),
          first_(header.run_of(0, first)),
          last_(header.run_of(first_, end - 1)),
          number_(first_),
          now_(header.run(first_)),
          next_(header.run_words(after())) {}
    __device__ const PackedRun& now() const { return now_; }
    __device__ void next() {
        number_ = after();
        now_ = SharedHeader::run(next_);
        next_ = header_.run_words(after());
    }
    // After the last block of a panel.
    __device__ void rewind() {
        if (first_ != last_) next();
    }

private:
    __device__ int after() const { return number_ == last_ ? first_ : number_ + 1; }
    SharedHeader header_;
    int first_, last_, number_;
    PackedRun now_;
    uint4 next_;
};

// A warp's slice of one panel: adds weights times activations to `sums`.
template <bool kOneRow, class Stream>
__device__ __forceinline__ void multiply_packed_slice(Stream& ring, const PackedOperand& in, const PackedMatrix& matrix,
                                                      int first, int count, RunWalk& runs, float (&sums)[2][1][4]) {
#pragma unroll 1
    for (int begin = 0; begin < count;) {
        if (first + begin >= runs.now().end) runs.next();
        const PackedRun run = runs.now();
        const int blocks = min(static_cast<int>(run.chunk), min(static_cast<int>(run.end) - first, count) - begin);
        ring.wait();
        const auto warp = static_cast<int>(thread_index() / 32), lane = static_cast<int>(thread_index() % 32);
        int k = (warp - begin) & (kPackedWarps - 1);
        if (k < blocks) {
            visit_code_kind(run.kind, [&](auto kind) {
#pragma unroll 1
                do {
                    const SharedBlock block{ring.address() + static_cast<std::uint32_t>(k * run.bytes())};
                    multiply_packed<kind.value, kOneRow>(block, matrix, run, in, (begin + k) / kPackedWarps * 2, lane,
                                                         sums);
                } while ((k += kPackedWarps) < blocks);
            });
        }
        ring.release();
        begin += blocks;
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
        auto ring = CopyRing<E, NT, Args>::resumed(args, shared);
        // Waits until the epilogue has read the statistics of the step before.
        PanelSums<kPackedWarps>(shared, plan, args.rows, ring.panels_summed()).all_read();
        in.load(op, op.x + args.flagged_offset(op.x_flagged, args.step[s].x_buffer), args.step[s].norm, ring.header(),
                args.step[s].panels, share.first, share.count, args.rows, plan, shared);
    }
    auto ring = CopyRing<E, NT, Args>::resumed(args, shared);
    PanelSums<kPackedWarps> panel_sums(shared, plan, args.rows, ring.panels_summed());
    const CtaShare share = CtaShare::of(args, shared, now());
    const SharedHeader header = ring.header();
    const PackedMatrix matrix{header, header.scales(), header.minimum_is_zero(), header.factor(thread_index() / 4)};
    int panels = share.panel_end - share.panel_begin;
    RunWalk runs(header, share.first, share.first + share.count);
    const auto multiply_panels = [&](auto one_row) {
#pragma unroll 1
        for (; panels > 0; --panels) {
            float sums[2][NT][4] = {};
            multiply_packed_slice<one_row>(ring, in, matrix, share.first, share.count, runs, sums);
            runs.rewind();
            store_sums<one_row>(sums, panel_sums, args.rows, plan, shared);
            panel_sums.hand_over();
            panel_sums.next();
        }
    };
    if (args.rows == 1) {
        multiply_panels(std::true_type());
    } else {
        multiply_panels(std::false_type());
    }
    ring.next_header();
    ring.park();
}

}  // namespace foresay::kernels::cuda
