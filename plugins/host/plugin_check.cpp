// Runs the checks, each in a child process: run_child() returns what the
// child's body returned, or how it ended.
#include "plugins/host/plugin_check.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>

#include "base/error.h"
#include "plugins/host/checks.h"
#include "plugins/host/elf_check.h"
#include "plugins/host/plugin_host.h"
#include "samplers/plugin_call.h"
#include "samplers/sdk/sampler.h"

namespace foresay::plugins {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Outcome = CheckResult::Outcome;

constexpr unsigned kSeconds = 30;     // that a check may take
constexpr double kSlowLoadMs = 100.0; // that loading may take
constexpr std::size_t kMaxText = 1 << 20;

struct Ended {
  bool well = false;
  std::string
      text; // of the body; or how the child ended, as the end of a sentence
};

std::string signal_text(int number) {
  if (number == SIGALRM)
    return "does not return within " + std::to_string(kSeconds) + " s";
  const char *name = ::strsignal(number);
  return std::string("crashes: ") + (name != nullptr ? name : "a signal");
}

// Runs `body` in a child whose standard output is a file in memory.
template <typename Body> Ended run_child(Body &&body) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw Error(std::string("cannot make a pipe: ") + std::strerror(errno));
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0)
    throw Error(std::string("cannot start a process: ") + std::strerror(errno));
  if (child == 0) {
    for (const int fatal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGALRM})
      ::signal(fatal, SIG_DFL);
    ::close(ends[0]);
    ::alarm(kSeconds);
    const int output = ::memfd_create("output", 0);
    const int nowhere = ::open("/dev/null", O_RDWR);
    ::dup2(nowhere, STDIN_FILENO);
    ::dup2(output, STDOUT_FILENO);
    ::dup2(nowhere, STDERR_FILENO);
    std::string text = "=";
    try {
      text += body();
    } catch (const NotApplicable &skipped) {
      text = "-" + skipped.why;
    } catch (const std::exception &error) {
      text = std::string("!") + error.what();
    }
    const char *at = text.data();
    for (std::size_t left = text.size(); left > 0;) {
      const ssize_t put = ::write(ends[1], at, left);
      if (put <= 0)
        break;
      at += put;
      left -= static_cast<std::size_t>(put);
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t got = 1; got > 0 && text.size() < kMaxText;) {
    got = ::read(ends[0], buffer, sizeof buffer);
    if (got < 0 && errno == EINTR)
      got = 1;
    else if (got > 0)
      text.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status))
    return {false, signal_text(WTERMSIG(status))};
  if (text.empty())
    return {false, "ends the process, with status " +
                       std::to_string(WEXITSTATUS(status))};
  return {true, text};
}

CheckInput load(const fs::path &file, const std::string &sampler,
                const CheckOptions &options) {
  PluginHost host({});
  return {host.load(sampler, file), options.parameters, options.seed};
}

class Checking {
public:
  Checking(fs::path file, const CheckOptions &options)
      : file_(std::move(file)), options_(options) {}

  std::vector<CheckResult> run() {
    for (const std::string &sampler : samplers()) {
      for (const Check &check : checks())
        one(sampler, check);
      timing(sampler);
    }
    return std::move(results_);
  }

private:
  void add(const std::string &sampler, const std::string &check,
           Outcome outcome, const std::string &text) {
    results_.push_back(
        {sampler, check, outcome, samplers::one_line(text, 1000)});
    if (options_.report)
      options_.report(results_.back());
  }

  // The library's own checks; the names of its samplers.
  std::vector<std::string> samplers() {
    const PluginFile found = PluginHost::inspect(file_);
    if (!found.problem.empty())
      throw Error("plugin '" + file_.string() +
                  "' cannot be loaded: " + found.problem);
    exports();
    const Ended described = run_child([&] {
      PluginHost host({});
      std::string names;
      for (const auto &factory : host.load_all(file_))
        names += factory->description().name + "\n";
      return names;
    });
    if (!described.well || described.text[0] != '=') {
      add("", "loads", Outcome::failed,
          described.well ? described.text.substr(1) : "it " + described.text);
      return {};
    }
    const Ended timed = run_child([&] {
      const Clock::time_point start = Clock::now();
      void *library = ::dlopen(file_.c_str(), RTLD_NOW | RTLD_LOCAL);
      const double ms =
          std::chrono::duration<double, std::milli>(Clock::now() - start)
              .count();
      char text[64];
      std::snprintf(text, sizeof text, "%.1f", library != nullptr ? ms : 1e9);
      return std::string(text);
    });
    const double ms = timed.well ? std::stod(timed.text.substr(1)) : 0.0;
    add("", "loads", ms > kSlowLoadMs ? Outcome::failed : Outcome::passed,
        ms > kSlowLoadMs ? "it takes " + timed.text.substr(1) +
                               " ms to load; a plugin has 100 ms"
                         : "");
    std::vector<std::string> names;
    std::string rest = described.text.substr(1);
    for (std::size_t end; (end = rest.find('\n')) != rest.npos;
         rest.erase(0, end + 1)) {
      const std::string name = rest.substr(0, end);
      if (options_.sampler.empty() || options_.sampler == name)
        names.push_back(name);
    }
    if (names.empty())
      throw Error(file_.string() + " has no sampler '" + options_.sampler +
                  "'");
    return names;
  }

  void exports() {
    std::ifstream stream(file_, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(stream)), {});
    const std::vector<std::string> all =
        exported_symbols(std::as_bytes(std::span(bytes)));
    if (all.size() == 1)
      return add("", "exports", Outcome::passed, "");
    std::string others;
    for (const std::string &symbol : all) {
      if (symbol == FORESAY_SAMPLER_ENTRY || others.size() > 200)
        continue;
      others += (others.empty() ? "" : ", ") + symbol;
    }
    add("", "exports", Outcome::failed,
        "it exports " + std::to_string(all.size()) +
            " symbols, and should export one; also " + others +
            ": build it with add_sampler_plugin(), or with "
            "-fvisibility=hidden");
  }

  void one(const std::string &sampler, const Check &check) {
    if (check.transcript != nullptr)
      return elsewhere(sampler, check);
    const Ended ended =
        run_child([&] { return check.run(load(file_, sampler, options_)); });
    conclude(sampler, check, ended);
  }

  void conclude(const std::string &sampler, const Check &check,
                const Ended &ended) {
    if (!ended.well)
      return add(sampler, check.name, Outcome::failed, "it " + ended.text);
    const std::string text = ended.text.substr(1);
    if (ended.text[0] == '-')
      return add(sampler, check.name, Outcome::skipped, text);
    const bool passed = ended.text[0] == '=' && text.empty();
    add(sampler, check.name, passed ? Outcome::passed : Outcome::failed, text);
  }

  // The same questions in two processes. In the second one everything lies
  // elsewhere, the clock has moved on, and another thread asks.
  void elsewhere(const std::string &sampler, const Check &check) {
    const Clock::time_point start = Clock::now();
    const Ended here = run_child(
        [&] { return check.transcript(load(file_, sampler, options_)); });
    if (!here.well || here.text[0] != '=')
      return conclude(sampler, check, here);
    std::this_thread::sleep_until(start + std::chrono::milliseconds(1100));
    const Ended there = run_child([&] {
      std::vector<std::unique_ptr<char[]>> ballast;
      for (std::size_t size = 24; size < 2000000; size = size * 5 / 3)
        ballast.push_back(std::make_unique<char[]>(size));
      for (std::size_t pages = 3; pages < 5000; pages *= 3)
        ::mmap(nullptr, pages * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS,
               -1, 0);
      std::string text, wrong;
      std::thread([&] {
        try {
          text = check.transcript(load(file_, sampler, options_));
        } catch (const std::exception &error) {
          wrong = error.what();
        }
      }).join();
      if (!wrong.empty())
        throw Error(wrong);
      return text;
    });
    if (!there.well || there.text[0] != '=')
      return conclude(sampler, check, there);
    const bool same = here.text == there.text;
    add(sampler, check.name, same ? Outcome::passed : Outcome::failed,
        same ? ""
             : "it answers differently in another process: it depends on "
               "addresses, on the clock or on chance of "
               "its own");
  }

  void timing(const std::string &sampler) {
    const Ended ended = run_child([&] {
      const CheckInput input = load(file_, sampler, options_);
      const auto ms = [](Clock::time_point from) {
        return std::chrono::duration<double, std::milli>(Clock::now() - from)
            .count();
      };
      Clock::time_point start = Clock::now();
      const Subject subject = input.subject(128256);
      const double created = ms(start);
      std::mt19937_64 random(input.seed);
      Place at = subject.place(random);
      const auto state = subject.begin(at);
      const Row row = subject.row(random, 64);
      const Row best = subject.row(random);
      constexpr int kTimes = 50;
      std::int32_t token = -1;
      start = Clock::now();
      for (int i = 0; i < kTimes; ++i)
        token =
            subject.pick(subject.answer(state.get(), at, best), best, random);
      const double answered = ms(start) / kTimes;
      start = Clock::now();
      for (int i = 0; i < kTimes && token >= 0; ++i)
        subject.accept(state.get(), at, token);
      const double accepted = ms(start) / kTimes;
      char text[200];
      std::snprintf(text, sizeof text,
                    "create %.2f ms at 128,256 tokens; a row of %zu candidates "
                    "%.1f us; accept %.2f us",
                    created, best.ids.size(), 1000.0 * answered,
                    1000.0 * accepted);
      return std::string(text);
    });
    if (ended.well && ended.text[0] == '=')
      add(sampler, "timing", Outcome::measured, ended.text.substr(1));
  }

  fs::path file_;
  const CheckOptions &options_;
  std::vector<CheckResult> results_;
};

} // namespace

std::string_view name(CheckResult::Outcome outcome) {
  switch (outcome) {
  case Outcome::passed:
    return "ok";
  case Outcome::failed:
    return "FAILED";
  case Outcome::skipped:
    return "skipped";
  case Outcome::measured:
    return "timing";
  }
  return "";
}

std::vector<CheckResult> check_plugin(const fs::path &file,
                                      const CheckOptions &options) {
  return Checking(fs::absolute(file), options).run();
}

} // namespace foresay::plugins
