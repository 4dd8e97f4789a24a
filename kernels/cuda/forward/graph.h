// kernels/cuda/forward/graph.h: a CUDA graph that can be launched.
//
// Threads:  capture() and launch() need a DeviceScope of the stream's device. A capture takes in what any thread
//           enqueues on the stream, so only the capturing thread may enqueue.
// Errors:   capture() throws what its body throws, and leaves the stream as it was and the graph empty.
#pragma once

#include <utility>

#include "kernels/cuda/device/device.h"

namespace foresay::kernels::cuda {

class Graph {
public:
    Graph() = default;
    ~Graph() { reset(); }
    Graph(Graph&& other) noexcept : exec_(std::exchange(other.exec_, nullptr)), device_(other.device_) {}
    Graph& operator=(Graph&& other) noexcept {
        std::swap(exec_, other.exec_);
        std::swap(device_, other.device_);
        return *this;
    }
    bool empty() const { return exec_ == nullptr; }
    void reset() noexcept {
        const cudaGraphExec_t exec = std::exchange(exec_, nullptr);
        if (exec == nullptr || any_device_hangs()) return;
        const DeviceScope scope(device_, std::nothrow);
        cudaGraphExecDestroy(exec);
    }
    // Captures what `body` enqueues on the stream.
    template <class Body>
    void capture(const Stream& stream, const Body& body) {
        reset();
        device_ = current_device();
        cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cannot capture a graph");
        cudaGraph_t graph = nullptr;
        try {
            body();
        } catch (...) {
            // Ends the capture, or the stream would never run anything again.
            cudaStreamEndCapture(stream, &graph);
            if (graph != nullptr) cudaGraphDestroy(graph);
            cudaGetLastError();
            throw;
        }
        cuda_check(cudaStreamEndCapture(stream, &graph), "cannot capture a graph");
        const cudaError_t status = cudaGraphInstantiate(&exec_, graph, 0);
        cudaGraphDestroy(graph);
        if (status != cudaSuccess) exec_ = nullptr;
        cuda_check(status, "cannot make a graph");
    }
    // Loads what the first launch would load.
    void upload(const Stream& stream) const { cuda_check(cudaGraphUpload(exec_, stream), "cannot load a graph"); }
    void launch(const Stream& stream) const { launch_check(cudaGraphLaunch(exec_, stream), "cannot launch a graph"); }

private:
    cudaGraphExec_t exec_ = nullptr;
    int device_ = 0;
};

}  // namespace foresay::kernels::cuda
