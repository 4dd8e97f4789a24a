// foresay doctor: one page about this machine: what is there, whether it keeps the laws, and how fast it is beside its
// limits. For a bug report, or before a purchase.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "app/bench/bench.h"
#include "app/command_line/command.h"
#include "app/command_line/parser.h"
#include "app/doctor/laws.h"
#include "app/doctor/machine.h"
#include "app/interrupt.h"
#include "app/opened_engine.h"
#include "app/options.h"
#include "app/output.h"
#include "base/error.h"
#include "base/split.h"
#include "core/config/value.h"
#include "kernels/ops.h"
#include "speculative/memory_estimate.h"

namespace foresay::app {

namespace {

constexpr std::int32_t kDecoded = 64;    // tokens of a measurement
constexpr std::int32_t kPrompt = 512;    // tokens
constexpr std::int32_t kContext = 1024;  // positions
constexpr int kRuns = 3;
constexpr std::size_t kColumn = 48;  // where the texts begin

// A published shape that shows what a device can do, and the memory from which it is tried.
struct ShapeToTry {
    const char* shape;
    double least_gib;
};
constexpr ShapeToTry kShapes[] = {{"llama-3.2-1b", 3.0}, {"llama-3.1-8b", 10.0}};

class Doctor : public Command {
public:
    void declare(OptionParser& parser) override {
        add_config_argument(parser, options_);
        add_common_options(parser, options_);
        add_json_flag(parser, json_);
        parser.details(
            "Checks every device of this machine with the model of CONFIG, or with the bundled pair: the bits of rows\n"
            "alone and among others, and texts with and without speculation. GPUs of one kind must make the same, "
            "each\n"
            "alone and two of them with each layer divided. Then measures speed. --device picks one device. The "
            "status\n"
            "is 1 if a check fails.\n");
    }

    int run() override {
        try {
            section("build", build_facts());
            section("machine", machine_facts());
            section("files", file_facts());
            for (const Place& place : chosen_places()) examine(place);
        } catch (const Interrupted&) {
            if (json_) print(report_.dump(2) + "\n");
            return kCancelled;
        }
        if (json_) {
            report_["healthy"] = problems_ == 0;
            print(report_.dump(2) + "\n");
        } else {
            print(problems_ == 0 ? std::string("no problem found\n")
                                 : std::to_string(problems_) + (problems_ == 1 ? " problem" : " problems") + "\n");
        }
        return problems_ == 0 ? 0 : 1;
    }

private:
    class Interrupted {};

    // A device, or several, separated by commas, that have a model together: each some layers, or some of each layer.
    struct Place {
        std::string devices;
        bool divided = false;
        std::string like;  // the device alone that must make the same; empty: there is none
        std::string title() const { return devices + (divided ? ", each layer divided" : ""); }
    };

    void heading(const std::string& title) {
        title_ = title;
        if (!json_) print(printable(title) + "\n");
    }
    void line(const std::string& name, const std::string& text) {
        if (json_) {
            report_[title_][name] = text;
        } else {
            print("  " + printable(name) + std::string(name.size() < kColumn ? kColumn - name.size() : 1, ' ') +
                  printable(text) + "\n");
        }
    }
    void section(const std::string& title, const Facts& facts) {
        heading(title);
        for (const auto& [name, text] : facts) line(name, text);
    }
    void problem(const std::string& name, const std::string& text) {
        ++problems_;
        line(name, "PROBLEM: " + text);
    }

    // The device of --device or of a configuration. If that is "auto": each, and two GPUs of one kind together.
    std::vector<Place> chosen_places() const {
        const core::Config config = Configuration(options_).config();
        if (!config.devices.empty()) {
            Place list;
            for (const std::string& name : config.devices) list.devices += (list.devices.empty() ? "" : ",") + name;
            list.divided = std::get<std::string>(config.setting("runtime.split_mode").value) == "row";
            if (list.divided) list.like = config.devices.front();
            return {list};
        }
        if (config.device != "auto") return {{config.device}};
        const std::vector<std::string> devices = usable_devices();
        std::vector<Place> places;
        Place pair;
        for (const std::string& device : devices) {
            const std::string first = first_of_its_kind(devices, device);
            places.push_back({device, false, first != device ? first : ""});
            if (first != device && pair.devices.empty()) pair = {first + "," + device, true, first};
        }
        if (pair.divided) places.push_back(pair);
        return places;
    }

    void override_place(Options& options, const Place& place) const {
        override_device(options, place.devices);
        if (place.divided) override_key(options, "--split-mode", "runtime.split_mode", "\"row\"");
    }

    Options options_for(const Place& place, const std::string& cache) const {
        Options options = options_;
        override_place(options, place);
        if (!cache.empty())
            override_key(options, "--kv-cache", "runtime.kv_cache", core::to_toml(core::ConfigValue(cache)));
        options.append_temperature = true;  // check_laws() sets it
        if (!options.context) override_key(options, "--context", "target.context", std::to_string(kContext));
        return options;
    }

    void examine(const Place& place) {
        heading(place.title());
        guarded("laws", [&] { check_laws(place); });
        const bool usable = guarded("speed", [&] {
            OpenedEngine engine(options_for(place, ""), {});
            const double bandwidth = engine.read_bandwidth();
            line("read bandwidth", format("%.1f GB/s", bandwidth / 1e9));
            measure(engine, "model", bandwidth);
            if (place.divided) line("ways between the devices", engine.backend());
        });
        if (!usable || place.devices.find("cuda") == std::string::npos || !options_.shape.empty()) return;
        for (const ShapeToTry& shape : kShapes) guarded(shape.shape, [&] { measure_shape(place, shape); });
    }

    // An error of one check is a line, and the others follow. False after an error.
    template <class Check>
    bool guarded(const std::string& name, const Check& check) {
        if (interrupted()) throw Interrupted();
        try {
            check();
            return true;
        } catch (const Error& error) {
            if (interrupted()) throw Interrupted();
            problem(name, error.what());
            return false;
        } catch (const Cancelled&) {
            throw Interrupted();
        }
    }

    EngineNeeds law_needs() const { return {.tokenizer = options_.shape.empty()}; }

    // What a device makes alone. Null, and a line says so: it has no room for the model, for one.
    const Sample* sample_of(const std::string& device, const std::string& cache) {
        const auto [place, first] = samples_.try_emplace({device, cache});
        if (!first) return &place->second;
        try {
            place->second = take_sample(OpenedEngine(options_for({device}, cache), law_needs()));
            return &place->second;
        } catch (const Error& error) {
            samples_.erase(place);
            line("the same as " + device + " alone, " + cache, "not compared: " + std::string(error.what()));
            return nullptr;
        }
    }

    void check_laws(const Place& place) {
        for (const std::string cache : {"f16", "q8"}) {
            const Sample* const expected = place.like.empty() ? nullptr : sample_of(place.like, cache);
            OpenedEngine engine(options_for(place, cache), law_needs());
            const auto report = [&](const LawCheck& check, const std::string& with) {
                const std::string name = check.name + ", " + with;
                check.holds ? line(name, "ok, " + check.detail) : problem(name, check.detail);
            };
            for (const LawCheck& check : check_rows(engine)) report(check, cache);
            if (expected != nullptr) report(check_same(place.like, *expected, take_sample(engine)), cache);
            if (place.like.empty() && place.devices.starts_with("cuda")) {
                samples_[{place.devices, cache}] = take_sample(engine);
            }
            if (!engine.has_tokenizer()) continue;
            for (const std::string temperature : {"0.0", "0.8"}) {
                engine.set("sampling.temperature.value=" + temperature, "foresay doctor");
                report(check_speculation(engine), cache + ", T " + temperature);
            }
        }
    }

    // Free bytes of a device, or of a list of them together.
    static double room_on(const std::string& devices) {
        double room = 0.0;
        for (const std::string_view name : split(devices, ',')) {
            if (!name.starts_with("cuda")) room += static_cast<double>(speculative::available_memory());
            for (const kernels::CudaDevice& known : kernels::cuda_devices()) {
                const bool first = name == "cuda" && known.index == 0;
                if (first || name == "cuda:" + std::to_string(known.index)) {
                    room += static_cast<double>(known.free_memory);
                }
            }
        }
        return room;
    }

    void measure_shape(const Place& place, const ShapeToTry& shape) {
        Options options;
        override_place(options, place);
        override_key(options, "--context", "target.context", std::to_string(kContext));
        options.config_alone = true;
        options.shape = shape.shape;
        options.quant_type = "q4_0";
        if (room_on(place.devices) < shape.least_gib * 1024 * 1024 * 1024) {
            line(shape.shape, "not measured: too little free memory");
            return;
        }
        OpenedEngine engine(options, {.draft = false, .tokenizer = false});
        measure(engine, std::string(shape.shape) + ", random weights, Q4_0", engine.read_bandwidth());
    }

    // Decoding, and a prompt.
    void measure(OpenedEngine& engine, const std::string& name, double bandwidth) {
        const auto context = engine.make_context();
        const std::int32_t room = context->capacity() - kDecoded - 1;
        const std::vector<std::int32_t> prompt =
            some_tokens(engine.target().config().shape.vocab, std::min(kPrompt, std::max(room, 1)));
        const std::span<const std::int32_t> decoded =
            std::span(prompt).first(std::min<std::size_t>(prompt.size(), kDecoded));
        std::vector<double> prompt_ms, decode_ms;
        for (int run = 0; run <= kRuns; ++run) {  // the first warms up
            stop_if_interrupted();
            context->truncate(0);
            const Stopwatch watch;
            context->prefill(prompt);
            context->logits(0);  // waits for the device
            const double prompt_took = watch.ms();
            const Stopwatch decode_watch;
            for (const std::int32_t& token : decoded) context->decode(std::span(&token, 1));
            context->logits(0);
            if (run == 0) continue;
            prompt_ms.push_back(prompt_took);
            decode_ms.push_back(decode_watch.ms());
        }
        const double rate = static_cast<double>(decoded.size()) * 1000.0 / median(decode_ms);
        const double bytes = rate * static_cast<double>(engine.target().bytes_per_forward());
        line(name + ", decode",
             format("%.1f tokens/s, %.0f %% of the read bandwidth", rate, 100.0 * bytes / bandwidth));
        const double prompt_rate = static_cast<double>(prompt.size()) * 1000.0 / median(prompt_ms);
        line(name + ", prompt",
             format("%zu tokens in %.1f ms, %.0f tokens/s", prompt.size(), median(prompt_ms), prompt_rate));
    }

    Options options_;
    bool json_ = false;
    int problems_ = 0;
    std::string title_;
    nlohmann::ordered_json report_;
    // Of a device alone, with a kind of KV cache, that others are compared with.
    std::map<std::pair<std::string, std::string>, Sample> samples_;
};

const RegisterCommand<Doctor> kDoctor("doctor", "check this machine: devices, laws, speeds beside their limits",
                                      CommandGroup::measure);

}  // namespace

}  // namespace foresay::app
