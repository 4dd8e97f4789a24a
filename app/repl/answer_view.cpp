#include "app/repl/answer_view.h"

#include <utility>

#include "app/output.h"

namespace foresay::app {

namespace {

class PlainView : public AnswerView {
public:
    explicit PlainView(bool clean) : clean_(clean) {}

    void add(std::string_view text, bool) override {
        if (text.empty()) return;
        end_reasoning();
        open_ = !text.ends_with('\n');
        if (clean_) {
            print(printable(text));
        } else {
            print(text);
        }
    }
    void reason(std::string_view) override {
        if (!clean_) return;
        if (reasoned_ == 0) print("Reasoning ...\n");
        ++reasoned_;
    }
    void finish() override { end_reasoning(); }
    bool line_open() const override { return open_; }

private:
    void end_reasoning() {
        if (reasoned_ > 0) print(reasoning_line(std::exchange(reasoned_, 0)) + "\n");
    }

    bool clean_;
    std::size_t reasoned_ = 0;  // tokens
    bool open_ = false;
};

}  // namespace

std::string reasoning_line(std::size_t tokens) {
    return "Reasoned for " + std::to_string(tokens) + (tokens == 1 ? " token" : " tokens") + "; /reasoning shows it.";
}

std::unique_ptr<AnswerView> make_plain_view(bool clean) { return std::make_unique<PlainView>(clean); }

}  // namespace foresay::app
