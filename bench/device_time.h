// bench/device_time.h: how long the device takes for what is put on a stream, measured between two events on it.
//
// Errors:   calls on events are not checked; the graph's are, and what fails on the device is thrown by the wait.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "kernels/cuda/device/device.h"

namespace foresay {

// Microseconds of what `enqueue` puts on the stream: the median of `repeats`, after two that are not counted.
inline double stream_microseconds(const kernels::cuda::Stream& stream, int repeats,
                                  const std::function<void()>& enqueue) {
    cudaEvent_t begin, end;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    std::vector<float> times;
    for (int i = 0; i < repeats + 2; ++i) {
        cudaEventRecord(begin, stream);
        enqueue();
        cudaEventRecord(end, stream);
        stream.wait();
        float ms = 0;
        cudaEventElapsedTime(&ms, begin, end);
        if (i >= 2) times.push_back(ms);
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    std::sort(times.begin(), times.end());
    return 1000.0 * times[times.size() / 2];
}

// The same for replays of a graph of it, whose launches cost the host next to nothing: for many short kernels, where
// launching one by one would be slower than the device.
inline double graph_microseconds(const kernels::cuda::Stream& stream, int repeats,
                                 const std::function<void()>& enqueue) {
    using kernels::cuda::cuda_check;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    enqueue();
    cuda_check(cudaStreamEndCapture(stream, &graph), "capture");
    cuda_check(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
    const double us =
        stream_microseconds(stream, repeats, [&] { cuda_check(cudaGraphLaunch(exec, stream), "launch"); });
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    return us;
}

}  // namespace foresay
