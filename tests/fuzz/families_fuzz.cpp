// Any bytes as the configuration of a model of any family: as a GGUF file if they begin like one, with the keys of the
// family and those of its tokenizer, else as a config.json. They are read or refused, and what was read can be used:
// layers, caches, ropes, the names of all tensors, the tokens of a text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "core/models/architecture.h"
#include "core/models/op_maker.h"
#include "core/models/read_config.h"
#include "core/text/tokenizer.h"
#include "core/weights/gguf.h"

namespace {

using namespace foresay::core;

// What the family asks the file; of a folder: nothing is there.
class Names final : public ModelSource {
public:
    explicit Names(const GgufFile* file) : file_(file) {}
    foresay::kernels::TensorView tensor(const TensorName&, TensorShape) override { return {}; }
    bool has(const TensorName& name) const override { return file_ != nullptr && file_->tensors().has(name.text()); }
    std::int64_t weight_bytes() override { return 0; }

private:
    const GgufFile* file_;
};

void must(bool condition) {
    if (!condition) std::abort();
}

template <class Action>
void succeeds(Action action) {
    try {
        action();
    } catch (const foresay::Error&) {
    }
}

void use(Keys& keys, const Architecture& family) {
    ModelConfig config = read_config(keys, family);
    if (config.shape.vocab == 0) config.shape.vocab = 512;
    check_config(config, "fuzz");
    must(!kv_shape(config).layers.empty());
    for (std::int32_t i = 0; i < config.shape.layers; ++i) {
        const LayerConfig layer = layer_config(config, i);
        for (const std::int32_t context : {1, 1 << 20}) {
            must(rope_table(layer.rope, layer.head_dim, context).inverse_frequency.size() <= 512);
        }
    }
    // As many as files may have; a configuration alone may describe more than there is memory for.
    const std::int64_t matrices = std::int64_t{config.shape.layers} * (config.experts.count + 1);
    if (matrices <= 4096) must(!tensors_of(config).empty());
}

void use(const Tokenizer& tokenizer) {
    for (const std::int32_t id : tokenizer.encode("I'm  12345 \xC3\xA9\xFF <s>\n\n")) {
        must(id >= 0 && id < tokenizer.vocab_size());
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    if (text.starts_with("GGUF")) {
        succeeds([&] {
            const GgufFile file = GgufFile::from_memory(std::as_bytes(std::span(data, size)), "fuzz.gguf");
            succeeds([&] { use(Tokenizer::from_gguf(file)); });
            const Architecture& family = architecture_for_gguf(file.get_string("general.architecture"), "fuzz.gguf");
            const Names names(&file);
            Keys keys(file, names);
            use(keys, family);
        });
        return 0;
    }
    succeeds([&] {
        const JsonConfig json = JsonConfig::parse(text, "fuzz.json");
        const std::vector<std::string> architectures = json.get_strings("architectures");
        if (architectures.empty()) return;
        const Names names(nullptr);
        Keys keys(json, names);
        use(keys, architecture_for_hf(architectures.front(), "fuzz.json"));
    });
    return 0;
}
