#include "core/weights/formats/formats.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "core/weights/formats/readers.h"
#include "core/weights/quote.h"
#include "core/weights/safetensors.h"

namespace foresay::core {
namespace {

std::string lower(std::string text) {
    for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    return text;
}

// The tensor to name in a refusal: the first one that is not made of plain numbers.
const TensorInfo* unusual_tensor(const TensorTable& table) {
    const auto found = std::ranges::find_if(table.list(), [](const TensorInfo& t) { return !t.quant_type; });
    return found != table.list().end() ? &*found : nullptr;
}

[[noreturn]] void refuse(const Folder& folder, const std::string& what, std::string_view instead) {
    const TensorInfo* const tensor = unusual_tensor(folder.table);
    throw Error(folder.path + ": weights in " + what + (tensor != nullptr ? ", such as " + quote(tensor->name) : "") +
                ", are not read; use " + std::string(instead));
}

void check_method(const Folder& folder) {
    const std::string method = lower(folder.method);
    if (method.empty() || method == "mxfp4") return;
    for (const RefusedMethod& refused : refused_methods()) {
        if (refused.method == method) refuse(folder, std::string(refused.name), refused.instead);
    }
    for (const MatrixFormat& format : matrix_formats()) {
        if (std::ranges::find(format.methods, method) != format.methods.end()) return;
    }
    refuse(folder, "the format " + quote(folder.method) + " (quant_method)", "the original weights or a GGUF file");
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
    // Files that tools wrote before config.json had a place for it.
    const auto beside = [&](std::string_view name, std::string_view method) {
        if (!folder.method.empty()) return;
        if (auto settings = dir.json_beside(name)) {
            folder.settings = std::move(*settings);
            folder.method = method;
        }
    };
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

std::span<const RefusedMethod> refused_methods() {
    constexpr std::string_view kOriginal = "the original weights, or a file in GPTQ, AWQ, FP8 or GGUF";
    static constexpr RefusedMethod kAll[] = {
        {"bitsandbytes", "bitsandbytes (nf4, fp4 or int8)", kOriginal},
        {"hqq", "HQQ", kOriginal},
        {"aqlm", "AQLM", kOriginal},
        {"quip", "QuIP#", kOriginal},
        {"quip_sharp", "QuIP#", kOriginal},
        {"spqr", "SpQR", kOriginal},
        {"vptq", "VPTQ", kOriginal},
        {"higgs", "HIGGS", kOriginal},
        {"torchao", "torchao", kOriginal},
        {"quark", "AMD Quark", kOriginal},
        {"quanto", "Quanto", kOriginal},
        {"eetq", "EETQ", kOriginal},
        {"fbgemm_fp8", "FBGEMM FP8", "the original weights, or FP8 as compressed-tensors writes it"},
        {"bitnet", "BitNet's packed ternary codes", "a GGUF file in TQ1_0 or TQ2_0"},
        {"auto-round", "AutoRound's own layout", "a file that AutoRound exported as GPTQ, AWQ or GGUF"},
        {"exl3", "EXL3", "an EXL2 or GGUF file of the model"},
    };
    return kAll;
}

JsonConfig quantisation_settings(const SafetensorsDir& folder) { return described(folder).settings; }

Matrices open_matrices(const SafetensorsDir& folder) { return open_matrices(described(folder)); }

Matrices open_matrices(const Folder& folder) {
    check_method(folder);
    const std::string method = lower(folder.method);
    Matrices matrices;
    for (const MatrixFormat& format : matrix_formats()) {
        if (std::ranges::find(format.methods, method) == format.methods.end()) continue;
        for (const TensorInfo& tensor : folder.table.list()) {
            if (!format.marks(tensor)) continue;
            const std::string module = tensor.name.substr(0, tensor.name.rfind('.'));
            if (const auto known = matrices.find(module); known != matrices.end()) {
                throw Error(folder.path + ": the matrix " + quote(module) + " is there twice, in " +
                            known->second->encoding() + " and, as " + quote(tensor.name) + ", in " +
                            std::string(format.name) + "; get the files again, all of one version");
            }
            matrices[module] = format.read(folder, tensor);
        }
    }
    return matrices;
}

}  // namespace foresay::core
