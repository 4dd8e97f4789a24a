#include "core/weights/formats/refusals.h"

#include <algorithm>

#include "base/error.h"
#include "base/lower_case.h"
#include "core/weights/formats/formats.h"
#include "core/weights/quote.h"

namespace foresay::core {
namespace {

// The tensor to name in a refusal: the first one that is not made of plain numbers.
const TensorInfo* unusual_tensor(const TensorTable& table) {
    const auto found = std::ranges::find_if(table.list(), [](const TensorInfo& t) { return !t.quant_type; });
    return found != table.list().end() ? &*found : nullptr;
}

[[noreturn]] void refuse(const Folder& folder, const std::string& what, std::string_view instead,
                         const TensorInfo* tensor = nullptr) {
    if (tensor == nullptr) tensor = unusual_tensor(folder.table);
    throw Error(folder.path + ": weights in " + what + (tensor != nullptr ? ", such as " + quote(tensor->name) : "") +
                ", are not read; use " + std::string(instead));
}

constexpr std::string_view kOriginal = "the original weights, or a file in GPTQ, AWQ, FP8 or GGUF";

// Layouts that a tensor's name gives away, whatever the configuration says. `beside` is the end of the name of another
// tensor of the module, or empty.
struct ForeignLayout {
    std::string_view suffix, beside, name, instead;
};
constexpr ForeignLayout kForeignLayouts[] = {
    {".Qidxs", "", "QuIP#", kOriginal},
    {".trellis", "", "EXL3", "an EXL2 or GGUF file of the model"},
    {".B", ".s", "GPTQ laid out for marlin", "a file in the format gptq or gptq_v2, which has .qweight and .qzeros"},
    {".B_24", "", "GPTQ laid out for marlin, two of four numbers",
     "a file in the format gptq or gptq_v2, which has .qweight and .qzeros"},
    {".pre_quant_scale", "", "ModelOpt's AWQ, whose inputs have scales of their own",
     "a file that ModelOpt wrote in FP8 or NVFP4, or one in AWQ"},
    {".bitmask", ".compressed", "compressed-tensors' sparse layout", "a folder whose sparsity_config says dense"},
};

void check_layouts(const Folder& folder) {
    for (const TensorInfo& tensor : folder.table.list()) {
        for (const ForeignLayout& layout : kForeignLayouts) {
            if (!tensor.name.ends_with(layout.suffix)) continue;
            const std::string module = tensor.name.substr(0, tensor.name.size() - layout.suffix.size());
            if (!layout.beside.empty() && !folder.table.has(module + std::string(layout.beside))) continue;
            refuse(folder, std::string(layout.name), layout.instead, &tensor);
        }
    }
}

// ModelOpt's algorithms that are neither FP8 nor NVFP4.
void check_algorithm(const Folder& folder) {
    std::string algorithm = folder.settings.get_string_or("quant_algo", "");
    if (algorithm.empty()) algorithm = folder.settings.get_string_or("quantization.quant_algo", "");
    for (const std::string_view other : {"w4a", "int", "w8a8_sq"}) {
        if (!lower_case(algorithm).starts_with(other)) continue;
        refuse(folder, "ModelOpt's " + quote(algorithm) + " (quant_algo)",
               "a file that ModelOpt wrote in FP8 or NVFP4, or one in GPTQ or AWQ");
    }
}

// compressed-tensors' settings that change numbers. What its tensors show by themselves (bits, groups, zeros, an order)
// is left to their readers.
void check_compressed_format(const Folder& folder, const std::string& format) {
    constexpr std::string_view kRead[] = {
        "",      "pack-quantized",       "int-quantized",        "float-quantized", "naive-quantized",
        "dense", "nvfp4-pack-quantized", "mxfp4-pack-quantized", "mixed-precision",
    };
    if (std::ranges::find(kRead, lower_case(format)) != std::ranges::end(kRead)) return;
    refuse(folder, "compressed-tensors' format " + quote(format),
           "a folder in pack-quantized, int-quantized, float-quantized or nvfp4-pack-quantized");
}

// A transform of weights alone is in them already; one of what lies between two matrices would have to be computed.
void check_transforms(const Folder& folder) {
    const JsonConfig groups = folder.settings.object("transform_config.config_groups");
    for (const std::string& name : groups.members("")) {
        for (const JsonConfig& applied : groups.member_object(name).objects("apply")) {
            const std::string location = applied.get_string_or("location", "input");
            if (location == "weight_input" || location == "weight_output") continue;
            refuse(folder,
                   "compressed-tensors with a transform that runs with the model (transform_config, " + quote(name) +
                       " at " + quote(location) + ")",
                   "a folder without such transforms (QuaRot's R3 and R4, SpinQuant's), or the original weights");
        }
    }
}

void check_compressed_tensors(const Folder& folder) {
    check_compressed_format(folder, folder.settings.get_string_or("format", ""));
    const JsonConfig groups = folder.settings.object("config_groups");
    for (const std::string& name : groups.members("")) {
        check_compressed_format(folder, groups.member_object(name).get_string_or("format", ""));
    }
    const std::string sparsity = folder.settings.get_string_or("sparsity_config.format", "dense");
    if (sparsity != "dense") {
        refuse(folder, "compressed-tensors' sparse format " + quote(sparsity) + " (sparsity_config)",
               "a folder whose sparsity_config says dense, or none");
    }
    check_transforms(folder);
}

void check_method(const Folder& folder) {
    const std::string method = lower_case(folder.method);
    if (method.empty() || method == "mxfp4") return;
    if (method == "modelopt") check_algorithm(folder);
    if (method == "compressed-tensors") check_compressed_tensors(folder);
    for (const RefusedMethod& refused : refused_methods()) {
        if (refused.method == method) refuse(folder, std::string(refused.name), refused.instead);
    }
    for (const MatrixFormat& format : matrix_formats()) {
        if (std::ranges::find(format.methods, method) != format.methods.end()) return;
    }
    refuse(folder, "the format " + quote(folder.method) + " (quant_method)", "the original weights or a GGUF file");
}

}  // namespace

std::span<const RefusedMethod> refused_methods() {
    constexpr std::string_view kAutoRound = "a file that AutoRound exported as GPTQ, AWQ or GGUF";
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
        {"auto-round", "AutoRound's own layout", kAutoRound},
        {"intel/auto-round", "AutoRound's own layout", kAutoRound},
        {"marlin", "GPTQ laid out for marlin", "a file in the format gptq or gptq_v2"},
        {"exl3", "EXL3", "an EXL2 or GGUF file of the model"},
    };
    return kAll;
}

void check_readable(const Folder& folder) {
    check_layouts(folder);
    check_method(folder);
}

}  // namespace foresay::core
