#include "core/weights/formats/formats.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/lower_case.h"
#include "core/weights/formats/readers.h"
#include "core/weights/formats/refusals.h"
#include "core/weights/quote.h"
#include "core/weights/safetensors.h"

namespace foresay::core {
namespace {

std::string module_of(const TensorInfo& tensor) { return tensor.name.substr(0, tensor.name.rfind('.')); }

[[noreturn]] void fail_without_settings(const Folder& folder, const TensorInfo& tensor, std::string_view format,
                                        std::string_view settings) {
    throw Error(folder.path + ": the tensor " + quote(tensor.name) + " is quantised in " + std::string(format) +
                ", and no file says with which settings (" + std::string(settings) +
                "); get the model's other files, too, or the original weights or a GGUF file");
}

// The method of a folder that names none. The tensors of EXL2 and AWQ say all that their readers need; those of other
// formats do not: a zero of GPTQ, for one, counts from 0 or from 1.
std::string method_by_tensors(const Folder& folder) {
    for (const TensorInfo& tensor : folder.table.list()) {
        const auto beside = [&](std::string_view suffix) {
            return folder.table.find(module_of(tensor) + std::string(suffix));
        };
        if (tensor.name.ends_with(".q_weight")) return "exl2";
        if (tensor.name.ends_with(".qweight")) {
            const TensorInfo* const zeros = beside(".qzeros");
            const bool along_outputs = zeros != nullptr && tensor.shape.size() == 2 && zeros->shape.size() == 2 &&
                                       zeros->shape[1] == tensor.shape[1];
            if (along_outputs) return "awq";
            fail_without_settings(folder, tensor, "GPTQ",
                                  "bits, group_size and checkpoint_format, of config.json's quantization_config or of "
                                  "quantize_config.json");
        }
        if (tensor.name.ends_with(".weight_packed")) {
            fail_without_settings(folder, tensor, "compressed-tensors", "quantization_config of config.json");
        }
        if (!tensor.name.ends_with(".weight")) continue;
        if (tensor.type == "U32" && beside(".scales") != nullptr) {
            fail_without_settings(folder, tensor, "MLX", "group_size and bits, of config.json's quantization");
        }
        const bool scaled = beside(".weight_scale") != nullptr || beside(".weight_scale_inv") != nullptr;
        if (scaled && !tensor.quant_type) {
            fail_without_settings(folder, tensor, "FP8, FP4 or int8", "quantization_config of config.json");
        }
    }
    return "";
}

// How the family calls one expert of a stack, which MLX makes of what it finds; Mixtral has names of its own.
std::string expert_name(const Folder& folder, const TensorInfo& stack, std::int64_t expert) {
    constexpr std::string_view kStack = ".switch_mlp.";
    std::string name = module_of(stack);
    const std::size_t at = name.rfind(kStack);
    if (at == std::string::npos) {
        throw Error(folder.path + ": the tensor " + quote(stack.name) + " has three dimensions, which is read of " +
                    "experts called switch_mlp only; use the original weights or a GGUF file");
    }
    std::string part = name.substr(at + kStack.size());
    name.resize(at);
    if (name.ends_with("block_sparse_moe")) {
        part = part == "gate_proj" ? "w1" : part == "down_proj" ? "w2" : part == "up_proj" ? "w3" : part;
    }
    return name + ".experts." + std::to_string(expert) + "." + part;
}

void check_new(const Matrices& matrices, const std::string& module, const Folder& folder, const MatrixFormat& format,
               const TensorInfo& mark) {
    const auto known = matrices.find(module);
    if (known == matrices.end()) return;
    throw Error(folder.path + ": the matrix " + quote(module) + " is there twice, in " + known->second->encoding() +
                " and, as " + quote(mark.name) + ", in " + std::string(format.name) +
                "; get the files again, all of one version");
}

// A stack that claims more would cost memory for each of them.
constexpr std::int64_t kMostExperts = 4096;

void add_experts(Matrices& matrices, const Folder& folder, const MatrixFormat& format, const TensorInfo& stack) {
    const std::int64_t experts = stack.shape[0];
    if (experts > kMostExperts) {
        throw Error(folder.path + ": the tensor " + quote(stack.name) + " has " + std::to_string(experts) +
                    " experts, which no model has; the file is damaged, get it again");
    }
    for (std::int64_t e = 0; e < experts; ++e) {
        const std::string name = expert_name(folder, stack, e);
        check_new(matrices, name, folder, format, stack);
        matrices[name] = format.read_expert(folder, stack, e);
    }
}

// Where a folder says how its weights are quantised.
Folder described(const SafetensorsDir& dir) {
    const JsonConfig& config = dir.config();
    Folder folder{.path = dir.path(), .table = dir.tensors(), .method = {}, .settings = {}};
    // MLX writes the same object under both names.
    if (config.is_object("quantization") && !config.has("quantization_config.quant_method")) {
        folder.settings = config.object("quantization");
        folder.method = "mlx";
        return folder;
    }
    for (const std::string_view object : {"quantization_config", "text_config.quantization_config"}) {
        if (!config.is_object(object)) continue;
        folder.settings = config.object(object);
        folder.method = folder.settings.get_string_or("quant_method", "");
        if (folder.method.empty() && folder.settings.has("quant_algo")) folder.method = "modelopt";
        if (folder.method.empty()) {
            throw Error(config.path() +
                        ": the weights are quantised and quantization_config does not say how (quant_method); use the "
                        "original weights or a GGUF file");
        }
        return folder;
    }
    if (config.has("quip_params")) {
        folder.method = "quip";
        return folder;
    }
    // Files that tools wrote before config.json had a place for it. `sign` is a member that only they have.
    const auto beside = [&](std::string_view name, std::string_view method, std::string_view sign = "") {
        if (!folder.method.empty()) return;
        auto settings = dir.json_beside(name);
        if (!settings) return;
        const std::string stated = settings->get_string_or("quant_method", "");
        if (stated.empty() && !sign.empty() && !settings->has(sign)) return;
        folder.method = stated.empty() ? std::string(method) : stated;
        folder.settings = std::move(*settings);
    };
    beside("quant_config.json", "awq", "w_bit");
    beside("quantize_config.json", "gptq");
    beside("hf_quant_config.json", "modelopt");
    return folder;
}

}  // namespace

std::span<const MatrixFormat> matrix_formats() {
    static const std::array all = {gptq_format(), awq_format(), packed_format(), int8_format(),
                                   fp8_format(),  fp4_format(), mlx_format(),    exl2_format()};
    return all;
}

JsonConfig quantisation_settings(const SafetensorsDir& folder) { return described(folder).settings; }

Matrices open_matrices(const SafetensorsDir& folder) { return open_matrices(described(folder)); }

Matrices open_matrices(const Folder& folder) {
    check_readable(folder);
    const std::string method = folder.method.empty() ? method_by_tensors(folder) : lower_case(folder.method);
    Matrices matrices;
    for (const MatrixFormat& format : matrix_formats()) {
        if (std::ranges::find(format.methods, method) == format.methods.end()) continue;
        for (const TensorInfo& tensor : folder.table.list()) {
            if (!format.marks(tensor)) continue;
            if (format.read_expert != nullptr && tensor.shape.size() == 3) {
                add_experts(matrices, folder, format, tensor);
                continue;
            }
            const std::string module = module_of(tensor);
            check_new(matrices, module, folder, format, tensor);
            matrices[module] = format.read(folder, tensor);
        }
    }
    // A module whose codes are lost is not found by them.
    for (const TensorInfo& tensor : folder.table.list()) {
        const bool left = tensor.name.ends_with(".qzeros") || tensor.name.ends_with(".q_groups");
        if (!left || matrices.contains(module_of(tensor))) continue;
        const std::string codes = module_of(tensor) + (tensor.name.ends_with(".qzeros") ? ".qweight" : ".q_weight");
        throw Error(folder.path + ": tensor " + quote(tensor.name) + " needs " + quote(codes) +
                    ", which is missing; get the files again, all of one version");
    }
    return matrices;
}

}  // namespace foresay::core
