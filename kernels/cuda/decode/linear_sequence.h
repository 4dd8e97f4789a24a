// kernels/cuda/decode/linear_sequence.h: the steps that wait in a LinearSequence for their launch.
//
// Life:     steps keep addresses of weights and activations, so both must live until flush() or discard().
// Threads:  one caller at a time; flush() needs a DeviceScope.
// Errors:   flush() throws Error when the launch fails; the steps are gone then as well.
#pragma once

#include "kernels/cuda/decode/gemv.h"
#include "kernels/cuda/linear.h"

namespace foresay::kernels::cuda {

struct LinearSequence::State {
    // Appends a matrix step; launches what waits first if it cannot run in the same launch.
    void add(QuantType quant_type, const LinearCall& call, std::int32_t rows, const GemvOp& op, GemvStep step);
    // Appends attention; false: it cannot run in this launch, and nothing has changed.
    bool attend(const AttendCall& call);
    // Appends the sum of a branch and the residual stream; false as above.
    bool add_rows(const AddRowsCall& call);
    void flush();
    void discard() noexcept {
        args_.steps = args_.op_count = args_.attend_count = 0;
        mixes_ = false;
    }

    // For a rank's part of all layers (rank_link.h): the next launch is linked, or with `probes` nothing is launched
    // until end_link(). After that as before. `x`: of the workspace.
    struct LinkPlan {
        LinkedStream stream;
        std::int32_t words = 0;  // floats of all buffers; 0: the steps that wait are no layers
        bool fits = false;       // words can go through host memory:
        MailRoute route;         // so
    };
    void begin_link(const RankLink& link, float* x, bool probes);
    // What the steps that wait need around their launch. Before flush().
    LinkPlan plan_link();
    // Whether all steps since begin_link() were one launch that can be linked.
    bool end_link() noexcept;

private:
    void flag_layers(const GemvScratch& scratch);
    std::int32_t find(const GemvOp& op) const;

    LinkedArgs args_;
    const RankLink* link_ = nullptr;  // of the next launch; null: none
    float* x_ = nullptr;
    bool probes_ = false;
    int link_launches_ = 0;
    bool links_ = false;                     // the launch that was probed last can be linked
    QuantType quant_type_ = QuantType::f32;  // of the first matrix
    bool mixes_ = false;                     // others have other types
    LinearCall call_;
};

}  // namespace foresay::kernels::cuda
