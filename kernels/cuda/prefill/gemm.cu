// Which algorithms of cuBLASLt keep law 1, found by trying: a row's sums must have the same bits whatever rows are
// beside it and wherever it lies in its tile.
//
// cuBLASLt promises the same bits only for the same call. Left alone, it chooses tiles and split K by the number of
// rows, so a row of a short prompt would differ from the same row in a long one. Hence:
//
//   candidates()  asks for proposals at kGemmRows rows and drops those with split K or a workspace
//   find()        tries the few best ones, smallest tiles first, and keeps the first that keeps_law()
//   run()         calls the library with that algorithm, whatever the number of rows
//
// The result of find() is kept for the life of the process, null included. It follows from the shape, the device and
// the version of the library, so another driver or library may change the bits of prefill, but never within a process.

#include "kernels/cuda/prefill/gemm.h"

#include <cuda_fp16.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>

#include "base/error.h"
#include "kernels/cuda/prefill/cublaslt.h"

namespace foresay::kernels::cuda {
namespace {

constexpr int kProposals = 16;          // that the library is asked for
constexpr std::size_t kConsidered = 6;  // of the proposals, sorted by tiles: their speeds differ by a few percent
// Whole tiles, few and many, odd numbers of them too; the largest plus kCheckedStart is within kGemmRows.
constexpr std::int32_t kCheckedRows[] = {64, 128, 192, 256, 320, 512, 1024, 1984};
constexpr std::int32_t kCheckedStart = 38;  // a row has another place in its tile then

// The finaliser of splitmix64.
__device__ std::uint32_t scramble(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return static_cast<std::uint32_t>(x ^ (x >> 31));
}

// Numbers of either sign and of magnitudes from 2^-7 to 2, whose sums round differently in every order.
template <class T>
__global__ void fill_uneven(T* to, std::int64_t count, std::uint64_t seed) {
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
        const std::uint32_t bits = scramble(seed + static_cast<std::uint64_t>(i) * 0x9e3779b97f4a7c15ull);
        const float size = __uint_as_float(((bits & 7u) + 120u) << 23 | bits >> 9);
        to[i] = static_cast<T>(bits & 8u ? -size : size);
    }
}

// Counts words that differ or are not finite. The sums are filled with 0xff (NaN) before the products, so a sum that
// neither product has written counts too.
__global__ void count_differences(const std::uint32_t* a, const std::uint32_t* b, std::int64_t count,
                                  std::uint32_t* differences) {
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    std::uint32_t found = 0;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
        if (a[i] != b[i] || (a[i] & 0x7f800000u) == 0x7f800000u) ++found;
    }
    if (found > 0) atomicAdd(differences, found);
}

// New memory of `count` numbers of fill_uneven().
template <class T>
DeviceBuffer<std::byte> uneven(std::int64_t count, std::uint64_t seed, cudaStream_t stream) {
    DeviceBuffer<std::byte> buffer(static_cast<std::size_t>(count) * sizeof(T));
    fill_uneven<<<1024, 256, 0, stream>>>(reinterpret_cast<T*>(buffer.data()), count, seed);
    launched("fill_uneven");
    return buffer;
}

// Descriptors are plain values on the host; a failure is a bug.
void done(cublasStatus_t status) {
    check(status == CUBLAS_STATUS_SUCCESS, "descriptors of cuBLASLt take their values");
}

}  // namespace

// One algorithm for one shape, with its descriptors. Shared by the copies of a PrefillGemm. The descriptors of x and
// sums hold the number of rows, so each product sets them, under `mutex`, before it enqueues.
struct PrefillGemm::State {
    const CublasLt& library;
    cublasLtHandle_t handle;
    GemmType kind;
    std::int64_t outs, inputs;
    cublasLtMatmulAlgo_t algo;
    float waves = 0;  // how often kGemmRows rows fill the device
    // cuBLASLt is column-major. Our row-major weights [outs, inputs] are its matrix [inputs, outs], hence TRANSA; x and
    // sums are its [inputs, rows] and [outs, rows] as they lie in memory.
    mutable std::mutex mutex;  // of the layouts
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t weights = nullptr, x = nullptr, sums = nullptr;

    State(const CublasLt& with, cublasLtHandle_t on, GemmType of, std::int64_t o, std::int64_t i)
        : library(with), handle(on), kind(of), outs(o), inputs(i) {
        const cudaDataType_t type = kind == GemmType::half ? CUDA_R_16F : CUDA_R_32F;
        const cublasOperation_t transposed = CUBLAS_OP_T;
        done(library.desc_create(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
        done(library.desc_set(operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)));
        const auto rows = static_cast<std::uint64_t>(kGemmRows);
        done(library.layout_create(&weights, type, static_cast<std::uint64_t>(inputs), static_cast<std::uint64_t>(outs),
                                   inputs));
        done(library.layout_create(&x, type, static_cast<std::uint64_t>(inputs), rows, inputs));
        done(library.layout_create(&sums, CUDA_R_32F, static_cast<std::uint64_t>(outs), rows, outs));
    }
    ~State() {
        if (sums != nullptr) library.layout_destroy(sums);
        if (x != nullptr) library.layout_destroy(x);
        if (weights != nullptr) library.layout_destroy(weights);
        if (operation != nullptr) library.desc_destroy(operation);
    }
    State(const State&) = delete;
    State& operator=(const State&) = delete;

    // An attribute of the algorithm; zero if this version of the library does not know it.
    template <class T>
    T config(cublasLtMatmulAlgoConfigAttributes_t attribute) const {
        T value{};
        std::size_t written = 0;
        library.algo_get(&algo, attribute, &value, sizeof(value), &written);
        return value;
    }
};

// Asks without workspace and without split K, whose sums would depend on the number of rows.
std::vector<PrefillGemm> PrefillGemm::candidates(GemmType kind, std::int64_t outs, std::int64_t inputs,
                                                 std::int32_t rows) {
    std::vector<PrefillGemm> found;
    const CublasLt* library = cublaslt();
    cublasLtHandle_t handle = cublaslt_handle();
    if (library == nullptr || handle == nullptr) return found;
    const State asked(*library, handle, kind, outs, inputs);
    const auto cols = static_cast<std::uint64_t>(rows);
    done(library->layout_set(asked.x, CUBLASLT_MATRIX_LAYOUT_COLS, &cols, sizeof(cols)));
    done(library->layout_set(asked.sums, CUBLASLT_MATRIX_LAYOUT_COLS, &cols, sizeof(cols)));
    cublasLtMatmulPreference_t preference = nullptr;
    done(library->preference_create(&preference));
    const std::uint64_t no_memory = 0;
    // 128 bytes: cudaMalloc gives more, and slabs and sums begin at multiples of 32 floats (PrefillMatrix).
    const std::uint32_t no_splits = CUBLASLT_REDUCTION_SCHEME_NONE, alignment = 128;
    done(library->preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &no_memory, sizeof(no_memory)));
    done(
        library->preference_set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &no_splits, sizeof(no_splits)));
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
        done(library->preference_set(preference, attribute, &alignment, sizeof(alignment)));
    }
    cublasLtMatmulHeuristicResult_t results[kProposals] = {};
    int count = 0;
    const cublasStatus_t status = library->heuristic(handle, asked.operation, asked.weights, asked.x, asked.sums,
                                                     asked.sums, preference, kProposals, results, &count);
    library->preference_destroy(preference);
    if (status != CUBLAS_STATUS_SUCCESS) return found;
    // Looks again at what came back: the preferences are hints, and law 1 must not rest on hints.
    for (int i = 0; i < count; ++i) {
        if (results[i].state != CUBLAS_STATUS_SUCCESS || results[i].workspaceSize > 0) continue;
        const auto state = std::make_shared<State>(*library, handle, kind, outs, inputs);
        state->algo = results[i].algo;
        state->waves = results[i].wavesCount;
        const auto splits = state->config<std::int32_t>(CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
        const auto scheme = state->config<std::uint32_t>(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
        if (splits > 1 || splits < 0 || scheme != CUBLASLT_REDUCTION_SCHEME_NONE) continue;
        found.emplace_back().state_ = state;
    }
    return found;
}

// Kept per device, because algorithms are chosen for its architecture. Results stay where they are: callers keep the
// pointer for as long as they live.
const PrefillGemm* PrefillGemm::find(GemmType kind, std::int64_t outs, std::int64_t inputs) {
    using Key = std::tuple<int, GemmType, std::int64_t, std::int64_t>;
    static std::mutex mutex;
    static std::map<Key, std::unique_ptr<const PrefillGemm>> known;
    if (cublaslt() == nullptr) return nullptr;
    int device = 0;
    cuda_check(cudaGetDevice(&device), "cannot ask for the current device");
    const std::lock_guard lock(mutex);
    const Key key{device, kind, outs, inputs};
    if (const auto place = known.find(key); place != known.end()) return place->second.get();
    std::unique_ptr<const PrefillGemm> chosen;  // null if none keeps the law; that is remembered, too
    // The lock is held while products are tried: two threads that ask for the same shape would try it twice.
    std::vector<PrefillGemm> proposed = candidates(kind, outs, inputs);
    // Small tiles first, that is, many waves: few rows then still keep most of the device busy. Only the best
    // kConsidered are reordered; the others stay as a last resort, in the library's order.
    std::stable_sort(proposed.begin(), proposed.begin() + std::min(kConsidered, proposed.size()),
                     [](const PrefillGemm& a, const PrefillGemm& b) { return a.state_->waves > b.state_->waves; });
    for (const PrefillGemm& candidate : proposed) {
        if (!candidate.keeps_law()) continue;
        chosen = std::make_unique<const PrefillGemm>(candidate);
        break;
    }
    return known.emplace(key, std::move(chosen)).first->second.get();
}

// Which rows of weights are multiplied together decides nothing about a sum, if the algorithm is the same. That is
// tried as well.
const PrefillGemm* PrefillGemm::find_part(GemmType kind, std::int64_t whole, std::int64_t outs, std::int64_t inputs) {
    using Key = std::tuple<int, GemmType, std::int64_t, std::int64_t, std::int64_t>;
    static std::mutex mutex;
    static std::map<Key, std::unique_ptr<const PrefillGemm>> known;
    const PrefillGemm* const all = find(kind, whole, inputs);
    if (all == nullptr || whole == outs) return all;
    int device = 0;
    cuda_check(cudaGetDevice(&device), "cannot ask for the current device");
    const std::lock_guard lock(mutex);
    const Key key{device, kind, whole, outs, inputs};
    if (const auto place = known.find(key); place != known.end()) return place->second.get();
    const State& s = *all->state_;
    const auto state = std::make_shared<State>(s.library, s.handle, kind, outs, inputs);
    state->algo = s.algo;
    state->waves = s.waves * static_cast<float>(outs) / static_cast<float>(whole);
    auto part = std::make_unique<PrefillGemm>();
    part->state_ = state;
    if (!part->keeps_law() || !part->agrees_with(*all)) part.reset();
    return known.emplace(key, std::move(part)).first->second.get();
}

bool PrefillGemm::agrees_with(const PrefillGemm& whole) const {
    const State &s = *state_, &w = *whole.state_;
    const Stream stream;
    constexpr std::int32_t kRows = 256;
    const bool half = s.kind == GemmType::half;
    const auto numbers = [&](std::int64_t count, std::uint64_t seed) {
        return half ? uneven<__half>(count, seed, stream) : uneven<float>(count, seed, stream);
    };
    const auto weights = numbers(w.outs * s.inputs, 3), x = numbers(kRows * s.inputs, 4);
    const DeviceBuffer<float> all(static_cast<std::size_t>(kRows * w.outs));
    const DeviceBuffer<float> expected(static_cast<std::size_t>(kRows * s.outs)), found(expected.size());
    const DeviceBuffer<std::uint32_t> differences(1);
    cuda_check(cudaMemsetAsync(differences.data(), 0, sizeof(std::uint32_t), stream), "cannot clear memory");
    cuda_check(cudaMemsetAsync(found.data(), 0xff, found.bytes(), stream), "cannot fill memory");
    if (!whole.try_run(stream, weights.data(), x.data(), kRows, 0.5f, all.data(), w.outs) ||
        !try_run(stream, weights.data(), x.data(), kRows, 0.5f, found.data(), s.outs)) {
        return false;
    }
    const auto bytes = [](std::int64_t values) { return static_cast<std::size_t>(values) * sizeof(float); };
    cuda_check(cudaMemcpy2DAsync(expected.data(), bytes(s.outs), all.data(), bytes(w.outs), bytes(s.outs), kRows,
                                 cudaMemcpyDeviceToDevice, stream),
               "cannot copy sums");
    count_differences<<<1024, 256, 0, stream>>>(reinterpret_cast<const std::uint32_t*>(expected.data()),
                                                reinterpret_cast<const std::uint32_t*>(found.data()), kRows * s.outs,
                                                differences.data());
    launched("count_differences");
    std::uint32_t count = 0;
    cuda_check(cudaMemcpyAsync(&count, differences.data(), sizeof(count), cudaMemcpyDeviceToHost, stream),
               "cannot read back");
    stream.wait();
    return count == 0;
}

// C and D are the same matrix and beta is 0, so `sums` is written and never read. The lock is short: it covers setting
// the widths and enqueuing, not the products.
bool PrefillGemm::try_run(cudaStream_t stream, const void* weights, const void* x, std::int32_t rows, float scale,
                          float* sums, std::int64_t stride) const {
    const State& s = *state_;
    const std::int64_t x_row = s.inputs * (s.kind == GemmType::half ? 2 : 4);  // bytes
    const float zero = 0.0f;
    const std::lock_guard lock(s.mutex);
    done(s.library.layout_set(s.sums, CUBLASLT_MATRIX_LAYOUT_LD, &stride, sizeof(stride)));
    // Never more than kGemmRows rows at once: wider products have not been checked.
    for (std::int32_t first = 0; first < rows; first += kGemmRows) {
        const auto cols = static_cast<std::uint64_t>(std::min(kGemmRows, rows - first));
        done(s.library.layout_set(s.x, CUBLASLT_MATRIX_LAYOUT_COLS, &cols, sizeof(cols)));
        done(s.library.layout_set(s.sums, CUBLASLT_MATRIX_LAYOUT_COLS, &cols, sizeof(cols)));
        float* to = sums + first * stride;
        const cublasStatus_t status = s.library.matmul(s.handle, s.operation, &scale, weights, s.weights,
                                                       static_cast<const std::byte*>(x) + first * x_row, s.x, &zero, to,
                                                       s.sums, to, s.sums, &s.algo, nullptr, 0, stream);
        if (status != CUBLAS_STATUS_SUCCESS) return false;
    }
    return true;
}

void PrefillGemm::run(cudaStream_t stream, const void* weights, const void* x, std::int32_t rows, float scale,
                      float* sums, std::int64_t stride) const {
    check(rows % kGemmTile == 0, "products have whole tiles of rows");
    if (!try_run(stream, weights, x, rows, scale, sums, stride)) {
        throw Error("cuBLASLt refuses a product of " + std::to_string(state_->outs) + " x " +
                    std::to_string(state_->inputs) + " weights and " + std::to_string(rows) +
                    " rows that it has computed before; is the device out of memory?");
    }
}

// Computes kGemmRows rows at once, then some of the same rows at each width of kCheckedRows, beginning at the first row
// and at one that lies elsewhere in its tile, and compares bits. On a stream of its own: nothing else is waited for.
bool PrefillGemm::keeps_law() const {
    const State& s = *state_;
    const Stream stream;
    const bool half = s.kind == GemmType::half;
    const auto numbers = [&](std::int64_t count, std::uint64_t seed) {
        return half ? uneven<__half>(count, seed, stream) : uneven<float>(count, seed, stream);
    };
    const auto weights = numbers(s.outs * s.inputs, 1), x = numbers(kGemmRows * s.inputs, 2);
    const DeviceBuffer<float> all(static_cast<std::size_t>(kGemmRows * s.outs));
    const DeviceBuffer<float> some(static_cast<std::size_t>(kCheckedRows[std::size(kCheckedRows) - 1] * s.outs));
    const DeviceBuffer<std::uint32_t> differences(1);
    cuda_check(cudaMemsetAsync(differences.data(), 0, sizeof(std::uint32_t), stream), "cannot clear memory");
    cuda_check(cudaMemsetAsync(all.data(), 0xff, all.bytes(), stream), "cannot fill memory");
    if (!try_run(stream, weights.data(), x.data(), kGemmRows, 0.5f, all.data(), s.outs)) return false;
    for (const std::int32_t rows : kCheckedRows) {
        for (const std::int32_t start : {0, kCheckedStart}) {
            const std::byte* from = x.data() + start * s.inputs * (half ? 2 : 4);
            cuda_check(cudaMemsetAsync(some.data(), 0xff, some.bytes(), stream), "cannot fill memory");
            if (!try_run(stream, weights.data(), from, rows, 0.5f, some.data(), s.outs)) return false;
            count_differences<<<1024, 256, 0, stream>>>(
                reinterpret_cast<const std::uint32_t*>(all.data() + start * s.outs),
                reinterpret_cast<const std::uint32_t*>(some.data()), rows * s.outs, differences.data());
            launched("count_differences");
        }
    }
    // One count for all widths: a single different bit anywhere rules the algorithm out.
    std::uint32_t found = 0;
    cuda_check(cudaMemcpyAsync(&found, differences.data(), sizeof(found), cudaMemcpyDeviceToHost, stream),
               "cannot read back");
    stream.wait();
    return found == 0;
}

// For bench/prefill_bench.cu: what tells one proposal from another.
std::string PrefillGemm::describe() const {
    const State& s = *state_;
    return "algorithm " + std::to_string(s.config<std::int32_t>(CUBLASLT_ALGO_CONFIG_ID)) + " tile " +
           std::to_string(s.config<std::uint32_t>(CUBLASLT_ALGO_CONFIG_TILE_ID)) + " stages " +
           std::to_string(s.config<std::uint32_t>(CUBLASLT_ALGO_CONFIG_STAGES_ID)) + " cluster " +
           std::to_string(s.config<std::uint16_t>(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID)) + " inner " +
           std::to_string(s.config<std::uint16_t>(CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID)) + " swizzle " +
           std::to_string(s.config<std::uint32_t>(CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING)) + " custom " +
           std::to_string(s.config<std::uint32_t>(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION)) + " waves " +
           std::to_string(s.waves);
}

}  // namespace foresay::kernels::cuda
