// foresay bench serve: how fast a server answers several clients at once. For any server that speaks OpenAI's
// completions, or with --chat chat completions: each client asks, reads the stream to its end, and asks again.
//
// Reported:  tokens per second of all clients together; from request to first token; the gaps between pieces of the
//            text. With --rate, requests come at random times, and the time to the first token counts from there,
//            whether a client was free or not. With --verify, each request is asked again alone, and its text compared.
//            With --requests as well, requests of all protocols are compared in all that their answers say, streamed
//            against not streamed; some of their clients leave. Nothing is measured.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "app/bench/bench.h"
#include "app/bench/http_client.h"
#include "app/bench/mixed_requests.h"
#include "app/configuration.h"
#include "app/interrupt.h"
#include "app/output.h"
#include "base/error.h"

namespace foresay::app {

namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kDefaultIn = 128;
constexpr int kRequestsOfAClient = 4;

struct Answered {
    std::string text;
    std::int64_t tokens = 0, prompt_tokens = 0;
    double first_ms = 0.0;
    std::vector<double> gaps_ms;
};

// Source code that differs from request to request.
std::string prompt_text(std::size_t number, std::size_t bytes) {
    std::string text = "# module " + std::to_string(number) + "\n";
    for (std::size_t line = 0; text.size() < bytes; ++line) {
        const std::size_t mixed = (number * 2654435761u + line * 40503u) % 9973;
        text += "def function_" + std::to_string(mixed) + "(value, other=" + std::to_string(mixed % 97) +
                "):\n    return value * " + std::to_string(mixed % 31) + " + other\n\n";
    }
    text.resize(bytes);
    return text;
}

// The text of a piece of a stream, reasoning included.
std::string piece_of(const json& choice) {
    const json& from = choice.contains("delta") ? choice["delta"] : choice;
    std::string text;
    for (const char* member : {"text", "reasoning_content", "content"}) {
        if (const auto found = from.find(member); found != from.end() && found->is_string())
            text += found->get<std::string>();
    }
    return text;
}

ServerUrl server_of(const BenchOptions& options, const std::string& text) {
    ServerUrl url = parse_server_url(text);
    url.key = options.key;
    return url;
}

// Runs ask(client, number) for 0 to count - 1 over so many connections at once. The first problem ends all, and is
// thrown.
template <class Ask>
void ask_side_by_side(const ServerUrl& url, std::size_t connections, std::size_t count, Ask ask) {
    std::atomic<std::size_t> next{0};
    std::mutex mutex;
    std::exception_ptr problem;
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < connections; ++i) {
        threads.emplace_back([&] {
            try {
                HttpClient client(url);
                for (std::size_t mine; (mine = next++) < count && !interrupted();) ask(client, mine);
            } catch (...) {
                const std::lock_guard lock(mutex);
                if (!problem) problem = std::current_exception();
                next = count;
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    if (problem) std::rethrow_exception(problem);
}

class Load {
public:
    Load(const BenchOptions& options, ServerUrl url) : options_(options), url_(std::move(url)) {
        out_ = options.batch.out.value_or(options.max_tokens.value_or(kDefaultBenchTokens));
    }

    // One request, from beginning to end.
    Answered ask(HttpClient& client, std::size_t number, std::size_t bytes, std::int64_t tokens) const {
        json body = {{"max_tokens", tokens},
                     {"temperature", options_.temperatures.empty() ? 0.6 : options_.temperatures.front()},
                     {"seed", number},
                     {"ignore_eos", true},
                     {"stream", true},
                     {"stream_options", {{"include_usage", true}}}};
        if (!options_.server_model.empty()) body["model"] = options_.server_model;
        const std::string prompt = prompt_text(number, bytes);
        if (options_.chat) {
            body["messages"] = json::array({{{"role", "user"}, {"content", prompt}}});
        } else {
            body["prompt"] = prompt;
        }
        Answered answered;
        std::string held;
        const Clock::time_point start = Clock::now();
        Clock::time_point last = start;
        const auto ms = [](Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); };
        const auto take_line = [&](std::string_view line) {
            if (!line.starts_with("data: ") || line == "data: [DONE]") return;
            const json chunk = json::parse(line.substr(6), nullptr, false);
            if (chunk.is_discarded()) throw Error("the server sends a piece that is no JSON");
            if (chunk.contains("error")) throw Error("the server says: " + chunk["error"].dump());
            if (chunk.contains("usage") && chunk["usage"].is_object()) {
                answered.tokens = chunk["usage"].value("completion_tokens", std::int64_t{0});
                answered.prompt_tokens = chunk["usage"].value("prompt_tokens", std::int64_t{0});
            }
            if (!chunk.contains("choices") || !chunk["choices"].is_array() || chunk["choices"].empty()) return;
            const std::string piece = piece_of(chunk["choices"][0]);
            if (piece.empty()) return;
            const Clock::time_point now = Clock::now();
            if (answered.text.empty()) {
                answered.first_ms = ms(now - start);
            } else {
                answered.gaps_ms.push_back(ms(now - last));
            }
            last = now;
            answered.text += piece;
        };
        const char* const path = options_.chat ? "/v1/chat/completions" : "/v1/completions";
        client.post(path, body.dump(), [&](std::string_view bytes_read) {
            held += bytes_read;
            for (std::size_t end; (end = held.find('\n')) != std::string::npos; held.erase(0, end + 1))
                take_line(std::string_view(held).substr(0, end));
        });
        return answered;
    }

    // How many bytes of such a prompt make so many tokens of this server's.
    std::size_t bytes_of(std::int64_t tokens) const {
        constexpr std::size_t kSample = 600;
        HttpClient client(url_);
        const Answered sample = ask(client, 0, kSample, 1);
        if (sample.prompt_tokens <= 0) throw Error("the server tells no usage, so prompts cannot be measured");
        return static_cast<std::size_t>(static_cast<double>(kSample * static_cast<std::size_t>(tokens)) /
                                        static_cast<double>(sample.prompt_tokens));
    }

    // All requests of `clients` clients. `first`: the number of the first request.
    std::vector<Answered> run(std::size_t clients, std::size_t first, std::size_t bytes, double& seconds) const {
        const std::size_t count = clients * static_cast<std::size_t>(kRequestsOfAClient);
        std::vector<Answered> answers(count);
        const std::vector<Clock::duration> arrivals = arrivals_of(count, first);
        const Clock::time_point start = Clock::now();
        ask_side_by_side(url_, clients, count, [&](HttpClient& client, std::size_t mine) {
            double late_ms = 0.0;
            if (!arrivals.empty()) {
                std::this_thread::sleep_until(start + arrivals[mine]);
                late_ms = std::chrono::duration<double, std::milli>(Clock::now() - start - arrivals[mine]).count();
            }
            answers[mine] = ask(client, first + mine, bytes, out_);
            answers[mine].first_ms += late_ms;
        });
        stop_if_interrupted();
        seconds = std::chrono::duration<double>(Clock::now() - start).count();
        return answers;
    }

    // How many of the answers differ from those to the same requests alone.
    std::size_t differing(const std::vector<Answered>& answers, std::size_t first, std::size_t bytes) const {
        HttpClient client(url_);
        std::size_t count = 0;
        for (std::size_t i = 0; i < answers.size(); ++i) {
            stop_if_interrupted();
            if (ask(client, first + i, bytes, out_).text != answers[i].text) ++count;
        }
        return count;
    }

private:
    // When each request comes, by the gaps of a Poisson process; empty: when a client is free.
    std::vector<Clock::duration> arrivals_of(std::size_t count, std::size_t seed) const {
        std::vector<Clock::duration> out;
        if (!options_.batch.arrivals) return out;
        std::mt19937_64 random(seed);
        std::exponential_distribution<double> gap(*options_.batch.arrivals);
        double seconds = 0.0;
        for (std::size_t i = 0; i < count; ++i, seconds += gap(random))
            out.push_back(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)));
        return out;
    }

    const BenchOptions& options_;
    ServerUrl url_;
    std::int64_t out_ = 0;
};

double quantile(std::vector<double> values, double share) {
    if (values.empty()) return 0.0;
    std::sort(values.begin(), values.end());
    return values[std::min(values.size() - 1, static_cast<std::size_t>(share * static_cast<double>(values.size())))];
}

// ------------------------------------------------------------------------------------- requests of every protocol

constexpr std::size_t kConnections = 64;

struct Left {};  // the client goes

std::string ask_mixed(HttpClient& client, const MixedRequest& request) {
    std::string body;
    client.post(request.path, request.body, [&](std::string_view piece) {
        if (request.leaves) throw Left();
        body += piece;
    });
    return answer_of(request, body);
}

// What the bits depend on; the servers must agree in it.
std::string fingerprint_of(HttpClient& client, const json& more = json::object()) {
    json body = {{"prompt", "x"}, {"max_tokens", 1}};
    body.update(more);
    std::string answer;
    client.post("/v1/completions", body.dump(), [&](std::string_view piece) { answer += piece; });
    return json::parse(answer).value("system_fingerprint", std::string());
}

// The first plugin of the configuration that has an option which takes texts, where the server has it as well.
MixedPlugin plugin_of(const BenchOptions& options, HttpClient& first, HttpClient& reference) {
    const Configuration configuration(options);
    for (const core::PluginSpec& plugin : configuration.config().plugins) {
        for (const auto& [name, option] : plugin.options) {
            if (!std::holds_alternative<std::vector<std::string>>(option.value)) continue;
            const json own = {{"foresay", {{"plugins", {{plugin.name, {{name, {"x"}}}}}}}}};
            try {
                fingerprint_of(first, own);
                fingerprint_of(reference, own);
                return {plugin.name, name};
            } catch (const Error&) {
                return {};
            }
        }
    }
    return {};
}

void verify_mixed(const BenchOptions& options) {
    const ServerUrl url = server_of(options, options.url);
    const ServerUrl alone = options.against.empty() ? url : server_of(options, options.against);
    HttpClient first(url), reference(alone);
    const std::string fingerprint = fingerprint_of(first);
    if (fingerprint.empty() || fingerprint != fingerprint_of(reference))
        throw Error("the two servers cannot be compared: their fingerprints are '" + fingerprint + "' and '" +
                    fingerprint_of(reference) + "'");
    const MixedPlugin plugin = plugin_of(options, first, reference);
    const auto count = static_cast<std::size_t>(*options.requests);
    std::vector<std::string> texts(count);
    std::atomic<std::size_t> left{0};
    ask_side_by_side(url, std::min(kConnections, count), count, [&](HttpClient& client, std::size_t mine) {
        try {
            texts[mine] = ask_mixed(client, mixed_request(mine, plugin));
        } catch (const Left&) {
            ++left;
        }
    });
    // A connection that has waited so long may have been closed.
    HttpClient one_by_one(alone);
    std::size_t compared = 0, different = 0, bytes = 0;
    std::string example;
    for (std::size_t i = 0; i < count; ++i) {
        stop_if_interrupted();
        const MixedRequest request = mixed_request(i, plugin);
        if (request.leaves) continue;
        const MixedRequest again = varied(request, (i + i / 27) % kVariants);
        ++compared;
        bytes += texts[i].size();
        const std::string answer = ask_mixed(one_by_one, again);
        if (answer == texts[i]) continue;
        if (++different == 1)
            example = "; the first is " + request.path + " " + request.body + "\n" + texts[i] +
                      "\nand alone, asked with " + again.body + "\n" + answer;
    }
    const json result = {{"url", options.url},    {"requests", count},         {"compared", compared},
                         {"left", left.load()},   {"different", different},    {"bytes", bytes},
                         {"plugin", plugin.name}, {"fingerprint", fingerprint}};
    print(options.json ? result.dump() + "\n"
                       : format("%zu requests, %zu of them given up by their clients; %zu answers compared, %zu "
                                "differ; plugins %s\n",
                                count, left.load(), compared, different, plugin.name.empty() ? "not there" : "used"));
    if (different > 0)
        throw Error(std::to_string(different) + " answers differ from those to the same requests alone" + example);
}

void bench_serve(const BenchOptions& options) {
    if (options.requests && !options.verify) throw UsageError("--requests needs --verify");
    if (!options.against.empty() && !options.requests) throw UsageError("--against needs --verify --requests N");
    if (options.requests && !options.url.empty()) return verify_mixed(options);
    if (options.url.empty()) throw UsageError("bench serve needs --url http://HOST:PORT, where the server is");
    const Load load(options, server_of(options, options.url));
    const std::size_t bytes = load.bytes_of(options.batch.in.value_or(kDefaultIn));
    json rows = json::array();
    std::string text = " clients    tok/s   first token ms p50     p95   gap ms p50     p99" +
                       std::string(options.verify ? "   different" : "") + "\n";
    std::size_t first = 1, wrong = 0;
    for (const std::int32_t clients : counts_at_once(options)) {
        double seconds = 0.0;
        const std::vector<Answered> answers = load.run(static_cast<std::size_t>(clients), first, bytes, seconds);
        std::vector<double> firsts, gaps;
        std::int64_t tokens = 0;
        for (const Answered& answer : answers) {
            tokens += answer.tokens;
            firsts.push_back(answer.first_ms);
            gaps.insert(gaps.end(), answer.gaps_ms.begin(), answer.gaps_ms.end());
        }
        const std::size_t differing = options.verify ? load.differing(answers, first, bytes) : 0;
        wrong += differing;
        first += answers.size();
        const double rate = static_cast<double>(tokens) / seconds;
        json row = {{"clients", clients},
                    {"requests", answers.size()},
                    {"prompt_tokens", answers.front().prompt_tokens},
                    {"tokens_per_second", rate},
                    {"first_token_ms_p50", quantile(firsts, 0.5)},
                    {"first_token_ms_p95", quantile(firsts, 0.95)},
                    {"gap_ms_p50", quantile(gaps, 0.5)},
                    {"gap_ms_p99", quantile(gaps, 0.99)}};
        if (options.verify) row["different"] = differing;
        rows.push_back(row);
        text += format("%8d %8.1f %20.1f %7.1f %12.1f %7.1f", clients, rate, quantile(firsts, 0.5),
                       quantile(firsts, 0.95), quantile(gaps, 0.5), quantile(gaps, 0.99)) +
                (options.verify ? format("%12zu", differing) : "") + "\n";
    }
    double best = 0.0;
    for (const json& row : rows) best = std::max(best, row["tokens_per_second"].get<double>());
    text += "\n clients    tok/s\n";
    for (const json& row : rows) {
        const double rate = row["tokens_per_second"].get<double>();
        constexpr double kColumns = 60.0;
        text += format("%8d %8.1f  ", row["clients"].get<int>(), rate) +
                std::string(static_cast<std::size_t>(best > 0 ? kColumns * rate / best : 0), '#') + "\n";
    }
    print(options.json ? json{{"url", options.url}, {"rows", rows}}.dump() + "\n" : text);
    if (wrong > 0) throw Error(std::to_string(wrong) + " answers differ from those to the same requests alone");
}

const RegisterBenchmark kServe("serve", "clients at once, of any server with OpenAI's completions (--url)",
                               bench_serve);

}  // namespace

}  // namespace foresay::app
