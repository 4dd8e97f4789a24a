#include "app/repl/answer_view.h"

#include "app/output.h"

namespace foresay::app {

namespace {

class PlainView : public AnswerView {
public:
    explicit PlainView(bool clean) : clean_(clean) {}

    void add(std::string_view text, bool) override {
        if (text.empty()) return;
        open_ = !text.ends_with('\n');
        if (clean_) {
            print(printable(text));
        } else {
            print(text);
        }
    }
    void finish() override {}
    bool line_open() const override { return open_; }

private:
    bool clean_;
    bool open_ = false;
};

}  // namespace

std::unique_ptr<AnswerView> make_plain_view(bool clean) { return std::make_unique<PlainView>(clean); }

}  // namespace foresay::app
