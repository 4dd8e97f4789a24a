#include "kernels/kv_names.h"

#include "base/error.h"
#include "kernels/kv/list.h"

namespace foresay::kernels {

namespace {

const char* name(KvType type) { return AllKvTypes::kNames[static_cast<int>(type)]; }

}  // namespace

std::string name(KvFormat format) {
    const KvType k = key_type(format), v = value_type(format);
    return k == v ? name(k) : std::string("k=") + name(k) + ",v=" + name(v);
}

std::vector<KvFormat> all_kv_formats() {
    std::vector<KvFormat> alike, mixed;
    for (int k = 0; k < AllKvTypes::kCount; ++k) {
        for (int v = 0; v < AllKvTypes::kCount; ++v) {
            const auto keys = static_cast<KvType>(k), values = static_cast<KvType>(v);
            if (k == v) {
                alike.push_back(kv_format(keys, values));
            } else if (keys != KvType::f16 && values != KvType::f16) {
                mixed.push_back(kv_format(keys, values));
            }
        }
    }
    alike.insert(alike.end(), mixed.begin(), mixed.end());
    return alike;
}

std::optional<KvFormat> find_kv_format(std::string_view text) {
    for (const KvFormat format : all_kv_formats()) {
        if (text == name(format)) return format;
    }
    return std::nullopt;
}

void check_kv(const KvShape& shape, KvFormat format) {
    constexpr std::int32_t kTogether = 4;  // values whose codes share bytes
    if (!has_low_bits(format)) return;
    for (const KvLayer& layer : shape.layers) {
        if (layer.head_dim % kTogether == 0) continue;
        throw Error("a KV cache of " + name(format) + " needs attention heads whose width is a multiple of " +
                    std::to_string(kTogether) + ", and this model has heads of " + std::to_string(layer.head_dim) +
                    "; use f16 or q8");
    }
}

}  // namespace foresay::kernels
