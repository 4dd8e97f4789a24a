// kernels/ops.h: the fused operations ("ops") of a decoder as one abstract class. Every backend implements the same
// ops; core/models/forward.cpp calls them layer by layer and never asks which backend it runs on.
//
// Dimensions, used in every shape comment below:
//   T rows of the batch   D model width   H query heads   Hkv key-value heads   Dh head width   F feed-forward width
//   V vocabulary          S positions held by a sequence   L layers
//   E experts             K experts that a row uses        Fe feed-forward width of an expert
// H, Hkv, Dh and F may differ between layers; a spec has those of its own layer.
//
// Law 1 (a row is a row): within a row class, the bits that an op computes for a row depend on that row's prefix only,
// never on T, on the other rows of the batch, on where a chunk began, or on the number of threads.
//
// Life:     prepare(), once at load, packs the tensors of a file into the layout that the backend's kernels read. It is
//           lossless and keeps no view of the file, except embed, whose table must outlive its use. allocate_kv() and
//           allocate_workspace() follow. Then, per forward: begin, embed, (attention_in, attend, attention_out, mlp_in,
//           mlp_out) x L, lm_head, and sample or logits. moe may take the place of mlp_in and mlp_out, or come before
//           them. mlp_in may come before attend: then attention and feed-forward read the same x. A forward allocates
//           nothing.
// Threads:  one caller at a time per Ops object, but for allocate_host(); a backend may use many threads inside.
// Errors:   prepare() and allocate_*() throw Error (shapes that the backend cannot run, no memory). The ops themselves
//           throw nothing; wrong shapes at run time are bugs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/quant_type.h"
#include "kernels/sampled_token.h"

namespace foresay::kernels {

struct SamplingPlan;  // kernels/sampling_plan.h
struct Candidates;    // likewise

// ---------------------------------------------------------------------------------------------------------- shapes

// Where the layers of a model differ, the shape of the whole model has the largest value of each.
struct ModelShape {
    std::int32_t layers = 0;        // L
    std::int32_t d_model = 0;       // D
    std::int32_t heads = 0;         // H
    std::int32_t kv_heads = 0;      // Hkv, divides H
    std::int32_t head_dim = 0;      // Dh
    std::int32_t d_ff = 0;          // F
    std::int32_t vocab = 0;         // V, rows of the LM head
    std::int32_t experts = 0;       // E; 0: the model has none
    std::int32_t experts_used = 0;  // K
    std::int32_t expert_ff = 0;     // Fe
    std::int32_t per_layer = 0;     // width of a layer's part of the per-layer embeddings; 0: the model has none
    // Bit d: of a list of backends (kernels/split_ops.h), number d has the layer, or some layers of the model. A
    // backend that is alone does not read it.
    std::uint32_t devices = 1;
};

// The keys and values that the KV cache holds of one layer.
struct KvLayer {
    std::int32_t heads = 0;
    std::int32_t head_dim = 0;
    std::int32_t device = 0;  // number of its backend in a list of them; see ModelShape::devices
    bool operator==(const KvLayer&) const = default;
};

// The layers of a KV cache. A model layer that attends to an earlier layer's keys and values has none of its own.
struct KvShape {
    std::vector<KvLayer> layers;

    KvShape() = default;
    explicit KvShape(std::vector<KvLayer> of) : layers(std::move(of)) {}
    // All layers alike.
    KvShape(const ModelShape& s)  // NOLINT(google-explicit-constructor): a model's shape is one
        : layers(static_cast<std::size_t>(s.layers), KvLayer{s.kv_heads, s.head_dim, 0}) {}
};

// Positions per page of the KV cache. A page holds K and V of all layers for this many consecutive positions.
inline constexpr std::int32_t kPagePositions = 64;

// The types of keys and of values in the KV cache. Pairs with a name here have one type for both; kv_format()
// (kernels/kv_format.h) makes the others, of q8, q6 and q4, and takes them apart. q8: int8 codes; each vector of an
// attention head is scaled by its largest magnitude m, so that x is stored as round(127 x / m) and read as
// code * m / 127: half the memory and traffic of f16.
enum class KvFormat : std::uint8_t { f16, q8 };

// ----------------------------------------------------------------------------------------------------------- batch

// Prefill rows hold given text. Decode rows hold generated or drafted text, one row or many: verification is decode.
enum class RowClass : std::uint8_t { prefill, decode };

// A row's token: an id, or a token slot that an earlier sample() fills. With slots, several draft steps and their
// verification need no round trip to the host.
struct TokenRef {
    std::int32_t value = 0;  // id when >= 0, slot ~value otherwise
    static TokenRef id(std::int32_t token) { return {token}; }
    static TokenRef slot(std::int32_t slot) { return {~slot}; }
    bool is_slot() const { return value < 0; }
    std::int32_t slot_index() const { return ~value; }
};

struct Row {
    TokenRef token;
    std::int32_t position = 0;  // absolute; drives rope and the order of attention
    std::int32_t sequence = 0;  // index into Batch::sequences
    std::int32_t cell = -1;     // cell that receives K and V; -1: the cell of `position`. Set for tree rows only
    std::int32_t parent = -1;   // row of this batch that precedes this one in a tree; -1: the committed prefix or, in a
                                // batch without a tree, the row at position - 1 of the same sequence
};

// Where a sequence's K and V lie. Cell c is at pages[c / kPagePositions], offset c % kPagePositions.
struct SequenceView {
    std::span<const std::int32_t> pages;  // must cover every cell that the batch's rows write or read
    std::int32_t length = 0;              // positions committed before this batch; its rows attend to all of them
};

class Workspace;

struct Batch {
    RowClass row_class = RowClass::decode;
    bool tree = false;          // rows use `cell` and `parent`
    std::span<const Row> rows;  // T of them; rows of one sequence in increasing position unless `tree`
    std::span<const SequenceView> sequences;
    std::span<const std::int32_t> logit_rows;  // rows whose logits lm_head() computes, in increasing order
    Workspace* token_source = nullptr;         // owner of the token slots that rows name; null: the forward's own
};

// -------------------------------------------------------------------------------------------------------------- ops
// The differences between architectures are data in these descriptors. An empty TensorView or weight means "absent".

enum class NormKind : std::uint8_t { rms, layer };  // layer: LayerNorm, which subtracts the mean first

struct NormSpec {
    TensorView weight;  // [1, n]
    float eps = 1e-6f;
    bool plus_one = false;  // multiply by (1 + weight)
    NormKind kind = NormKind::rms;
    TensorView bias;  // [1, n], LayerNorm only
    bool empty() const { return weight.empty(); }
};

enum class RopePairs : std::uint8_t { none, adjacent, half_split };  // (2i, 2i+1), or (i, i + dims/2)

struct RopeSpec {
    RopePairs pairs = RopePairs::none;
    std::span<const float> inverse_frequency;  // [dims / 2]; scaling is already in it; copied by prepare(). The values
                                               // of a head after the first `dims` pass through unchanged
    float attention_factor = 1.0f;             // multiplies cos and sin
};

// Queries are multiplied by 1 + beta ln(1 + floor(position / length)), after rope. beta 0: by nothing.
struct QueryTemperature {
    float beta = 0.0f;
    std::int32_t length = 1;
};

// clamped_swiglu, of gpt-oss: g sigmoid(1.702 g) (u + 1) with g = min(gate, limit) and u = up within [-limit, limit].
enum class Activation : std::uint8_t { silu, gelu_tanh, gelu, clamped_swiglu };

// Token ids to the residual stream: x[t] = scale * table[token].
struct EmbedSpec {
    TensorView table;  // [V, D]; stays mapped
    float scale = 1.0f;
    std::uint32_t devices = 1;  // of the whole model
};

// [norm]; Q, K and V projections with bias; norm per attention head; rope. Writes K and V into the KV cache. Without k
// and v the layer attends to the keys and values of an earlier one.
struct AttentionInSpec {
    ModelShape shape;
    NormSpec norm;                      // over D
    TensorView q, k, v;                 // [H*Dh, D], [Hkv*Dh, D], [Hkv*Dh, D]
    TensorView q_bias, k_bias, v_bias;  // [1, H*Dh], [1, Hkv*Dh], [1, Hkv*Dh]
    NormSpec q_norm, k_norm;            // over Dh, per head; the weights are [1, Dh] for all heads or [1, H*Dh]
    RopeSpec rope;
    NormSpec v_norm;           // over Dh, per head
    bool whole_norms = false;  // q_norm and k_norm are over H*Dh and Hkv*Dh values instead
    QueryTemperature temperature;
};

// Softmax attention of each row over its own prefix, including itself.
struct AttendSpec {
    ModelShape shape;
    float scale = 1.0f;       // multiplies q.k
    std::int32_t window = 0;  // attend to the last `window` positions only; 0: all
    float soft_cap = 0.0f;    // c: scores become c * tanh(score / c); 0: none
    TensorView sinks;  // [1, H]: a further score of each head, which takes its share of the softmax and has no value
};

// x += scale * [post_norm](o . attended + bias)
struct AttentionOutSpec {
    ModelShape shape;
    TensorView o;        // [D, H*Dh]
    TensorView bias;     // [1, D]
    NormSpec post_norm;  // over D
    float scale = 1.0f;
};

// act = activation(gate . [norm](x) + gate_bias) * (up . [norm](x) + up_bias). Without a gate, act = activation(up
// ...).
struct MlpInSpec {
    ModelShape shape;
    NormSpec norm;        // over D
    TensorView gate, up;  // [F, D] each
    Activation activation = Activation::silu;
    TensorView gate_bias, up_bias;  // [1, F]
    float limit = 0.0f;             // of clamped_swiglu
};

// x = stream_scale * (x + scale * [post_norm]([inner_norm](down . act + bias) [+ the branch that moe kept]))
struct MlpOutSpec {
    ModelShape shape;
    TensorView down;     // [D, F]
    NormSpec post_norm;  // over D
    TensorView bias;     // [1, D]
    NormSpec inner_norm;
    bool add_branch = false;
    float scale = 1.0f, stream_scale = 1.0f;
};

// How the scores of the experts become weights: of all experts by softmax or sigmoid, or by the softmax of the chosen.
enum class Gating : std::uint8_t { softmax, sigmoid, softmax_chosen };

// Chooses the K experts of a row and their weights. Scores and weights are float32; ties go to the lowest id.
struct RouterSpec {
    NormSpec norm;           // of its own input, over D; empty: it reads what the experts read
    TensorView weight;       // [E, D]
    TensorView bias;         // [1, E], added to the scores
    TensorView choice_bias;  // [1, E], added to the weights for the choice only
    TensorView factor;       // [1, E], multiplies the final weight of each expert
    Gating gating = Gating::softmax;
    bool renormalize = false;  // the weights of the chosen sum to 1
    float scale = 1.0f;        // of all weights
    // The experts are in this many groups of equal size. Only the `groups_used` groups with the largest sum of their
    // two best experts take part.
    std::int32_t groups = 1, groups_used = 1;
};

// A mixture of experts: y = [post_norm](sum over the chosen experts, by ascending id, of
// weight * (down . activation(gate . norm(x) + gate_bias) * (up . norm(x) + up_bias) + down_bias)).
// x = stream_scale * (x + scale * y), or, with keep_branch, y is kept for mlp_out, which adds it.
struct MoeSpec {
    ModelShape shape;
    NormSpec norm;  // over D
    RouterSpec router;
    std::vector<TensorView> gate, up, down;    // of each expert: [Fe, D], [Fe, D], [D, Fe]
    TensorView gate_bias, up_bias, down_bias;  // [E, Fe], [E, Fe], [E, D]
    Activation activation = Activation::silu;
    float limit = 0.0f;  // of clamped_swiglu
    NormSpec post_norm;  // over D
    bool keep_branch = false;
    float scale = 1.0f, stream_scale = 1.0f;
};

// Per-layer embeddings, of width P for each of L layers, from the token and from the embedded x:
// scale * (table_scale * table[token] + norm(projection_scale * projection . x)), norm over each layer's P values.
struct PerLayerEmbedSpec {
    ModelShape shape;
    TensorView table;       // [V, L*P]; stays mapped
    TensorView projection;  // [L*P, D]
    NormSpec norm;          // over P
    float table_scale = 1.0f, projection_scale = 1.0f, scale = 1.0f;
};

// x = stream_scale * (x + post_norm(projection . (activation(gate . x) * per-layer embedding of layer `layer`)))
struct PerLayerSpec {
    ModelShape shape;
    std::int32_t layer = 0;
    TensorView gate;        // [P, D]
    TensorView projection;  // [D, P]
    NormSpec post_norm;     // over D
    Activation activation = Activation::gelu_tanh;
    float stream_scale = 1.0f;
};

// logits = soft_cap(scale * weight . norm(x)) for the batch's logit rows
struct LmHeadSpec {
    ModelShape shape;
    NormSpec norm;      // over D
    TensorView weight;  // [V, D]
    float scale = 1.0f;
    float soft_cap = 0.0f;
};

// An op with its weights in the backend's own layout. Use it only with the Ops whose prepare() made it.
class PreparedOp {
public:
    virtual ~PreparedOp() = default;
    std::int64_t weight_bytes = 0;  // read once per forward, whatever T is (embed: read per row)
    std::int64_t macs_per_row = 0;  // multiply-accumulates per row
    // A mixture of experts reads, besides weight_bytes, each expert that some row of the batch has chosen: between K
    // and min(E, T K) of them.
    std::int64_t expert_bytes = 0;  // of one expert
    std::int32_t experts = 0, experts_used = 0;

    // Bytes that a forward of `rows` rows reads, if rows choose their experts independently and evenly.
    double bytes_read(std::int64_t rows) const;
};

// Pages of one model's K and V. Contents are unspecified until written.
class KvPages {
public:
    virtual ~KvPages() = default;
    KvShape shape;
    KvFormat format = KvFormat::f16;
    std::int32_t pages = 0;
    std::int64_t bytes = 0;
};

// Host memory that read_page() and write_page() copy from and to.
class HostMemory {
public:
    virtual ~HostMemory() = default;
    std::span<std::byte> bytes;
};

// The memory of one model's forwards: residual stream, projections, logits, token slots.
class Workspace {
public:
    virtual ~Workspace() = default;
    ModelShape shape;
    std::int32_t max_rows = 0;        // largest T
    std::int32_t max_logit_rows = 0;  // largest number of logit rows
    std::int64_t bytes = 0;
};

struct BackendInfo {
    std::string name;    // "reference", "cpu"
    std::string detail;  // instruction set, threads, device
    int threads = 1;
};

class Ops {
public:
    virtual ~Ops() = default;
    virtual BackendInfo describe() const = 0;

    // Properties of the device. The defaults are those of a backend on the host.
    // Free bytes of the device's own memory; -1: the backend uses the host's.
    virtual std::int64_t free_memory() const { return -1; }
    // Bytes per second of a plain read of the device's memory, measured by this call; 0: measure the host's.
    virtual double read_bandwidth() { return 0.0; }
    // The best number of rows in a prefill chunk.
    virtual std::int32_t prefill_rows() const { return 256; }
    // Whether 17 decode rows and more read the weights once, not once for each 16 rows. Given text up to a length that
    // depends on it is made of decode rows (core/models/given_text.h), so the bits of texts do.
    virtual bool reads_weights_once() const { return false; }
    // Whether prepare() fills in random weights for a view that has a shape and no data. For benchmarks.
    virtual bool makes_random_weights() const { return false; }
    // Whether ops return before they have run. wait() returns when all ops issued on the workspace have run.
    virtual bool asynchronous() const { return false; }
    virtual void wait(Workspace&) {}

    virtual std::unique_ptr<PreparedOp> prepare(const EmbedSpec& spec) = 0;
    virtual std::unique_ptr<PreparedOp> prepare(const AttentionInSpec& spec) = 0;
    virtual std::unique_ptr<PreparedOp> prepare(const AttendSpec& spec) = 0;
    virtual std::unique_ptr<PreparedOp> prepare(const AttentionOutSpec& spec) = 0;
    virtual std::unique_ptr<PreparedOp> prepare(const MlpInSpec& spec) = 0;
    virtual std::unique_ptr<PreparedOp> prepare(const MlpOutSpec& spec) = 0;
    virtual std::unique_ptr<PreparedOp> prepare(const MoeSpec& spec) = 0;
    virtual std::unique_ptr<PreparedOp> prepare(const PerLayerEmbedSpec& spec) = 0;
    virtual std::unique_ptr<PreparedOp> prepare(const PerLayerSpec& spec) = 0;
    virtual std::unique_ptr<PreparedOp> prepare(const LmHeadSpec& spec) = 0;

    // Bytes that allocate_kv and allocate_workspace would take, for estimates before loading. kv_bytes() and
    // allocate_kv() throw Error when the backend does not support the format.
    virtual std::int64_t kv_bytes(const KvShape& shape, std::int32_t pages, KvFormat format) const = 0;
    virtual std::int64_t workspace_bytes(const ModelShape& shape, std::int32_t max_rows,
                                         std::int32_t max_logit_rows) const;
    // Bytes that a workspace takes in addition when the rows of a prompt first attend to a cache of such pages: where
    // these are codes, a layer of it as such rows read it.
    virtual std::int64_t expanded_kv_bytes(const KvShape& /*shape*/, std::int32_t /*pages*/, KvFormat) const {
        return 0;
    }
    virtual std::unique_ptr<KvPages> allocate_kv(const KvShape& shape, std::int32_t pages, KvFormat format) = 0;
    virtual std::unique_ptr<Workspace> allocate_workspace(const ModelShape& shape, std::int32_t max_rows,
                                                          std::int32_t max_logit_rows) = 0;
    // Copies page `from` to page `to`, all layers. For copy-on-write.
    virtual void copy_page(KvPages& kv, std::int32_t from, std::int32_t to) = 0;
    // Copies a page to host memory and back: kv_bytes(kv.shape, 1, kv.format) bytes, whose order is the backend's own.
    // Both come after the forwards issued so far, and have copied when they return.
    virtual void read_page(KvPages& kv, std::int32_t page, std::span<std::byte> to) = 0;
    virtual void write_page(KvPages& kv, std::int32_t page, std::span<const std::byte> from) = 0;
    // The host memory that the two copy fastest, page-locked where there is a device. It may take a second for 2 GB.
    // Any thread, beside all other calls.
    virtual std::unique_ptr<HostMemory> allocate_host(std::size_t bytes);

    // Starts a forward. `batch` and what it points to must stay valid until the forward's last op has returned.
    virtual void begin(Workspace& workspace, const Batch& batch) = 0;
    virtual void embed(const PreparedOp& op, Workspace& workspace) = 0;
    // `layer` is a layer of the KV cache. It is the model's, unless layers share keys and values.
    virtual void attention_in(const PreparedOp& op, Workspace& workspace, KvPages& kv, std::int32_t layer) = 0;
    virtual void attend(const PreparedOp& op, Workspace& workspace, const KvPages& kv, std::int32_t layer) = 0;
    virtual void attention_out(const PreparedOp& op, Workspace& workspace) = 0;
    virtual void mlp_in(const PreparedOp& op, Workspace& workspace) = 0;
    virtual void mlp_out(const PreparedOp& op, Workspace& workspace) = 0;
    virtual void moe(const PreparedOp& op, Workspace& workspace) = 0;
    virtual void per_layer_embed(const PreparedOp& op, Workspace& workspace) = 0;  // after embed
    virtual void per_layer(const PreparedOp& op, Workspace& workspace) = 0;
    virtual void lm_head(const PreparedOp& op, Workspace& workspace) = 0;

    // Samples from logit row i of the last lm_head() by plans[i] into token slot slots[i]. plans.size() ==
    // slots.size(), at most the number of logit rows. Logits may be modified in place. Engines call it on asynchronous
    // backends only (speculative/device_sampling.h). Host backends implement it too, so that one test suite covers all
    // and a test backend can delay a host backend like a device (tests/models/paced_ops.h).
    virtual void sample(Workspace& workspace, std::span<const SamplingPlan> plans,
                        std::span<const std::int32_t> slots) = 0;
    // The token in slot `slot`. Waits until sample() has filled it.
    virtual SampledToken sampled(Workspace& workspace, std::int32_t slot) = 0;
    // The candidates, best first, that the plan of slot `slot` kept (SamplingPlan::keep). A chain with host stages
    // continues from them. Writable until the slot is next filled. Waits as sampled() does.
    virtual Candidates candidates(Workspace& workspace, std::int32_t slot) = 0;

    // Logit row i of the last lm_head(), V values on the host, writable until the next begin(). Waits for the ops.
    virtual std::span<float> logits(Workspace& workspace, std::int32_t i) = 0;
    // Residual stream row t, D values on the host. For tests and comparisons between backends.
    virtual std::span<const float> residual(Workspace& workspace, std::int32_t t) = 0;
    // The residual stream of all rows of the forward, [T, D], to the host and from there, for a forward whose layers
    // are on several backends (kernels/split_ops.h). read_rows() comes after a layer, write_rows() after begin() or a
    // layer; what follows reads those rows. Both have copied when they return. The host memory is allocate_host()'s.
    virtual void read_rows(Workspace& workspace, std::span<float> to) = 0;
    virtual void write_rows(Workspace& workspace, std::span<const float> from) = 0;
};

// The specification: plain loops, weights dequantised value by value, float32 activations, sums in double precision.
std::unique_ptr<Ops> make_reference_ops();

struct CpuOptions {
    int threads = 0;  // 0: the number of cores that this process may use
    std::string isa;  // "avx512", "avx2", "portable"; empty: FORESAY_CPU_ISA from the environment, else the best
};

// SIMD on the host. Activations are int8 with a scale per 128 inputs for quantised weights, float32 otherwise.
// Throws Error for an instruction set that is unknown or that this processor lacks.
std::unique_ptr<Ops> make_cpu_ops(const CpuOptions& options);

// A GPU as the CUDA backend sees it.
struct CudaDevice {
    std::int32_t index = 0;        // N of cuda:N
    std::string name;              // "NVIDIA H200"
    std::int32_t capability = 0;   // compute capability, 90 for 9.0
    std::int64_t memory = 0;       // total bytes
    std::int64_t free_memory = 0;  // free bytes at the time of the call
};

// The usable devices of this machine. When there are none, `why` (if given) receives the reason in one clause: the
// build has no CUDA backend, there is no driver, or the build has no code for the devices.
std::vector<CudaDevice> cuda_devices(std::string* why = nullptr);

struct CudaOptions {
    std::int32_t device = 0;
    // Backends of one device that have to run at the same time, because they wait for each other (LayerShare::link):
    // each has a part of its multiprocessors and a stream of its own. Others take turns on one stream.
    std::int32_t part = 0, parts = 1;
};

// One NVIDIA GPU. Weights, KV cache and workspace are in its memory.
// Throws Error for a build without CUDA, no driver, no such device, or too little memory.
std::unique_ptr<Ops> make_cuda_ops(const CudaOptions& options);

}  // namespace foresay::kernels
