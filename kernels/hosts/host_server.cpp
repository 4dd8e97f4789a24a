#include "kernels/hosts/host_server.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "kernels/hosts/host_group.h"
#include "kernels/quant/packed_panels.h"

namespace foresay::kernels {
namespace {

using std::int32_t;
using std::int64_t;

struct HeldKv {
    std::size_t device = 0;
    std::unique_ptr<KvPages> pages;
    std::unique_ptr<LinkBuffer> page;  // made when one crosses
    std::vector<std::byte> bytes;
};

struct HeldWorkspace {
    std::size_t device = 0;
    std::unique_ptr<Workspace> memory;
    std::unique_ptr<LinkBuffer> rows, logits;
    std::vector<float> values;  // either of them on the host
    // The batch of the forward.
    bool begun = false;
    std::vector<Row> batch_rows;
    std::vector<std::vector<int32_t>> pages;
    std::vector<SequenceView> sequences;
    std::vector<int32_t> logit_rows;
};

Error wrong(const char* what) { return Error(std::string("a request is wrong: ") + what); }

void require(bool condition, const char* what) {
    if (!condition) throw wrong(what);
}

}  // namespace

struct HostServer::State {
    State(HostLink& of, HostServerOptions with) : link(of), options(std::move(with)), ops(options.devices.size()) {
        block = link.device().allocate(kBlock);
    }
    ~State() { end_load(); }

    HostLink& link;
    HostServerOptions options;
    double patience = 0.0;  // until rank 0 is heard again
    std::unique_ptr<LinkBuffer> block, echoed;
    std::vector<std::byte> scratch, body;

    std::vector<NotedOps> ops;  // by device
    std::map<int32_t, HeldKv> kvs;
    std::map<int32_t, HeldWorkspace> workspaces;
    int32_t next_id = 0;

    std::thread loader;
    std::mutex load_mutex;  // guards the next four
    LoadStatus load_status;
    std::string load_problem;
    std::vector<NotedOps> loaded;
    bool loading = false;
    std::atomic<bool> ends{false};

    // ---- answers
    void answer(const Message& message) { send_message(link, 0, message, block, scratch, options.seconds); }
    void done() { answer(Message(MessageKind::done)); }
    void send(const LinkBuffer& buffer, std::size_t bytes) { link.send(0, buffer, bytes, options.seconds); }
    void receive(LinkBuffer& buffer, std::size_t bytes) { link.receive(0, buffer, bytes, options.seconds); }

    bool serve(MessageKind kind, MessageReader reader);
    void say_hello(MessageReader reader);
    void begin_load(MessageReader reader);
    void end_load();
    void tell_load();
    void allocate_kv(MessageReader reader);
    void allocate_workspace(MessageReader reader);
    void copy_page(MessageReader reader);
    void move_page(MessageReader reader, bool reads);
    void forward(MessageReader reader);
    void read_batch(MessageReader& reader, const ForwardHead& head, HeldWorkspace& held);
    void check_batch(const HeldWorkspace& held) const;
    void check_steps(const std::vector<RemoteStep>& steps, const HeldWorkspace& held, const HeldKv* kv) const;
    void take_rows(HeldWorkspace& held);
    void send_logits(HeldWorkspace& held);
    void send_rows(MessageReader reader);
    void echo(MessageReader reader);

    std::size_t device_of(MessageReader& reader) const {
        const auto device = reader.get<int32_t>();
        require(device >= 0 && static_cast<std::size_t>(device) < options.devices.size(), "an unknown device");
        return static_cast<std::size_t>(device);
    }
    template <class Held>
    static Held& held(std::map<int32_t, Held>& all, int32_t id) {
        const auto found = all.find(id);
        require(found != all.end(), "an unknown id");
        return found->second;
    }
    Ops& device(std::size_t d) { return *options.devices[d]; }
};

HostServer::HostServer(HostLink& link, HostServerOptions options)
    : state_(std::make_unique<State>(link, std::move(options))) {}
HostServer::~HostServer() = default;

void HostServer::run() {
    State& s = *state_;
    s.patience = s.options.start_seconds;
    for (;;) {
        const MessageKind kind = receive_message(s.link, 0, s.block, s.body, s.patience);
        s.patience = s.link.size() > 2 ? 2.0 * s.options.seconds : s.options.seconds;
        try {
            if (!s.serve(kind, MessageReader(s.body))) return;
        } catch (const LostHost&) {
            throw;
        } catch (const Error& problem) {
            s.answer(Message(MessageKind::failed).put_text(problem.what()));
        } catch (const std::bad_alloc&) {
            s.answer(Message(MessageKind::failed).put_text("out of memory"));
        }
    }
}

bool HostServer::State::serve(MessageKind kind, MessageReader reader) {
    const bool any_time = kind <= MessageKind::hello || kind == MessageKind::load_status ||
                          kind == MessageKind::free_kv || kind == MessageKind::free_workspace;
    if (!any_time) {
        const std::lock_guard lock(load_mutex);
        require(!loading, "the model is being loaded");
    }
    Message message;
    switch (kind) {
        case MessageKind::ping:
            patience = reader.get<double>();
            return true;
        case MessageKind::end:
            done();
            return false;
        case MessageKind::hello:
            say_hello(reader);
            return true;
        case MessageKind::bandwidth:
            answer(message.put(options.bandwidth(device_of(reader))));
            return true;
        case MessageKind::free_memory:
            answer(message.put(options.free_memory(device_of(reader))));
            return true;
        case MessageKind::kv_bytes:
        case MessageKind::expanded_kv_bytes: {
            const std::size_t d = device_of(reader);
            const KvShape shape = get_kv_shape(reader);
            const auto pages = reader.get<int32_t>();
            const auto format = reader.get<KvFormat>();
            answer(message.put(kind == MessageKind::kv_bytes ? device(d).kv_bytes(shape, pages, format)
                                                             : device(d).expanded_kv_bytes(shape, pages, format)));
            return true;
        }
        case MessageKind::workspace_bytes: {
            const std::size_t d = device_of(reader);
            const auto shape = reader.get<ModelShape>();
            const auto rows = reader.get<int32_t>();
            answer(message.put(device(d).workspace_bytes(shape, rows, reader.get<int32_t>())));
            return true;
        }
        case MessageKind::load:
            begin_load(reader);
            return true;
        case MessageKind::load_status:
            tell_load();
            return true;
        case MessageKind::allocate_kv:
            allocate_kv(reader);
            return true;
        case MessageKind::allocate_workspace:
            allocate_workspace(reader);
            return true;
        case MessageKind::free_kv:
            kvs.erase(reader.get<int32_t>());
            return true;
        case MessageKind::free_workspace:
            workspaces.erase(reader.get<int32_t>());
            return true;
        case MessageKind::copy_page:
            copy_page(reader);
            return true;
        case MessageKind::read_page:
            move_page(reader, true);
            return true;
        case MessageKind::write_page:
            move_page(reader, false);
            return true;
        case MessageKind::forward:
            forward(reader);
            return true;
        case MessageKind::read_rows:
            send_rows(reader);
            return true;
        case MessageKind::echo:
            echo(reader);
            return true;
        default:
            throw wrong("an unknown kind");
    }
}

void HostServer::State::say_hello(MessageReader reader) {
    const std::string other = reader.get_text();
    if (other != options.version) {
        throw Error("it runs foresay " + options.version + ", and rank 0 foresay " + other +
                    "; start the same program on every host");
    }
    Message message;
    message.put(static_cast<std::uint32_t>(options.devices.size()));
    for (const std::shared_ptr<Ops>& ops : options.devices) {
        const BackendInfo info = ops->describe();
        message.put(RemoteDeviceFacts{.threads = info.threads,
                                      .prefill_rows = ops->prefill_rows(),
                                      .makes_random_weights = ops->makes_random_weights(),
                                      .reads_weights_once = ops->reads_weights_once()});
        message.put_text(info.name).put_text(info.detail);
    }
    answer(message);
}

// --------------------------------------------------------------------------------------------------------- loading

void HostServer::State::end_load() {
    ends = true;
    if (loader.joinable()) loader.join();
    ends = false;
}

void HostServer::State::begin_load(MessageReader reader) {
    end_load();
    for (NotedOps& notes : ops) notes.clear();
    const std::lock_guard lock(load_mutex);
    load_status = {};
    load_problem.clear();
    loading = true;
    const auto rest = reader.rest();
    loader = std::thread([this, request = std::vector<std::byte>(rest.begin(), rest.end())] {
        const auto progress = [this](int64_t done_bytes, int64_t all_bytes) {
            if (ends) throw Error("rank 0 has ended");
            const std::lock_guard held(load_mutex);
            load_status.done_bytes = done_bytes;
            load_status.all_bytes = all_bytes;
        };
        std::vector<NotedOps> prepared;
        std::string problem;
        try {
            prepared = options.load(MessageReader(request), progress);
        } catch (const std::bad_alloc&) {
            problem = "out of memory";
        } catch (const std::exception& caught) {
            problem = caught.what();
        }
        const std::lock_guard held(load_mutex);
        loaded = std::move(prepared);
        load_problem = std::move(problem);
        load_status.done = true;
        loading = false;
    });
    done();
}

void HostServer::State::tell_load() {
    Message message;
    {
        const std::lock_guard lock(load_mutex);
        if (load_status.done && !load_problem.empty()) throw Error(load_problem);
        if (load_status.done && !loaded.empty()) ops = std::exchange(loaded, {});
        message.put(load_status);
        for (const NotedOps& notes : ops) message.put(static_cast<int32_t>(notes.size()));
    }
    answer(message);
}

void HostServer::State::allocate_kv(MessageReader reader) {
    const std::size_t d = device_of(reader);
    const KvShape shape = get_kv_shape(reader);
    const auto pages = reader.get<int32_t>();
    const auto format = reader.get<KvFormat>();
    require(pages > 0 && !shape.layers.empty(), "a cache without pages");
    HeldKv kv{.device = d, .pages = device(d).allocate_kv(shape, pages, format)};
    const int64_t bytes = kv.pages->bytes;
    kvs.emplace(next_id, std::move(kv));
    answer(Message().put(next_id++).put(bytes));
}

void HostServer::State::allocate_workspace(MessageReader reader) {
    const std::size_t d = device_of(reader);
    const auto shape = reader.get<ModelShape>();
    const auto rows = reader.get<int32_t>(), logit_rows = reader.get<int32_t>();
    require(rows > 0 && logit_rows > 0 && shape.d_model > 0 && shape.vocab > 0, "a workspace without rows");
    HeldWorkspace held{.device = d, .memory = device(d).allocate_workspace(shape, rows, logit_rows)};
    held.rows = link.device().allocate(float_bytes(int64_t{rows} * shape.d_model));
    held.logits = link.device().allocate(float_bytes(int64_t{logit_rows} * shape.vocab));
    const auto bytes = held.memory->bytes + static_cast<int64_t>(held.rows->size + held.logits->size);
    workspaces.emplace(next_id, std::move(held));
    answer(Message().put(next_id++).put(bytes));
}

// ----------------------------------------------------------------------------------------------------------- pages

void HostServer::State::copy_page(MessageReader reader) {
    HeldKv& kv = held(kvs, reader.get<int32_t>());
    const auto from = reader.get<int32_t>(), to = reader.get<int32_t>();
    require(std::min(from, to) >= 0 && std::max(from, to) < kv.pages->pages, "a page that is not there");
    device(kv.device).copy_page(*kv.pages, from, to);
    done();
}

void HostServer::State::move_page(MessageReader reader, bool reads) {
    HeldKv& kv = held(kvs, reader.get<int32_t>());
    const auto page = reader.get<int32_t>();
    const auto size = reader.get<std::uint64_t>();
    // Both sides count with the same function; a message that says otherwise leaves the two out of step.
    const int64_t own = device(kv.device).kv_bytes(kv.pages->shape, 1, kv.pages->format);
    if (page < 0 || page >= kv.pages->pages || static_cast<int64_t>(size) != own) link.lose("a page has another size");
    if (!kv.page) kv.page = link.device().allocate(size);
    kv.bytes.resize(size);
    if (reads) {
        device(kv.device).read_page(*kv.pages, page, kv.bytes);
        link.device().write(*kv.page, kv.bytes);
        done();
        send(*kv.page, size);
        return;
    }
    receive(*kv.page, size);
    link.device().read(*kv.page, kv.bytes);
    device(kv.device).write_page(*kv.pages, page, kv.bytes);
    done();
}

// --------------------------------------------------------------------------------------------------------- forward

void HostServer::State::read_batch(MessageReader& reader, const ForwardHead& head, HeldWorkspace& held) {
    reader.get_list(held.batch_rows);
    const auto sequences = reader.get<std::uint32_t>();
    require(held.batch_rows.size() == static_cast<std::size_t>(head.rows) && sequences <= held.batch_rows.size(),
            "other rows than it says");
    held.pages.resize(std::max<std::size_t>(held.pages.size(), sequences));
    held.sequences.resize(sequences);
    for (std::size_t i = 0; i < sequences; ++i) {
        held.sequences[i].length = reader.get<int32_t>();
        reader.get_list(held.pages[i]);
        held.sequences[i].pages = held.pages[i];
    }
    reader.get_list(held.logit_rows);
}

// What the backends take for granted.
void HostServer::State::check_batch(const HeldWorkspace& held) const {
    const auto rows = static_cast<int32_t>(held.batch_rows.size());
    require(rows > 0 && rows <= held.memory->max_rows, "too many rows");
    require(std::ssize(held.logit_rows) <= held.memory->max_logit_rows, "too many logit rows");
    for (const SequenceView& view : held.sequences) {
        require(view.length >= 0 && view.length <= std::ssize(view.pages) * kPagePositions, "a length without pages");
    }
    for (int32_t t = 0; t < rows; ++t) {
        const Row& row = held.batch_rows[static_cast<std::size_t>(t)];
        require(row.token.value >= 0 && row.token.value < held.memory->shape.vocab, "no such token");
        require(row.sequence >= 0 && row.sequence < std::ssize(held.sequences), "no such sequence");
        const int64_t cells = std::ssize(held.sequences[static_cast<std::size_t>(row.sequence)].pages) * kPagePositions;
        require(row.position >= 0 && row.position < cells && row.cell < cells, "a row without a place");
        require(row.parent < t, "a row before its parent");
    }
    int32_t before = -1;
    for (const int32_t row : held.logit_rows) {
        require(row > before && row < rows, "no such logit row");
        before = row;
    }
}

void HostServer::State::check_steps(const std::vector<RemoteStep>& steps, const HeldWorkspace& held,
                                    const HeldKv* kv) const {
    const NotedOps& prepared = ops[held.device];
    for (const RemoteStep& step : steps) {
        require(step.op >= 0 && step.op < std::ssize(prepared) &&
                    prepared[static_cast<std::size_t>(step.op)].call == step.call,
                "an op that was not loaded");
        if (!reads_cache(step.call)) continue;
        require(kv != nullptr && kv->device == held.device && step.layer >= 0 &&
                    step.layer < std::ssize(kv->pages->shape.layers),
                "a layer without a cache");
    }
    if (kv == nullptr) return;
    for (const SequenceView& view : held.sequences) {
        for (const int32_t page : view.pages) require(page >= 0 && page < kv->pages->pages, "no such page");
    }
}

void HostServer::State::take_rows(HeldWorkspace& held) {
    Ops& to = device(held.device);
    const auto rows = static_cast<int32_t>(held.batch_rows.size());
    if (link.device().give_rows(*held.rows, to, *held.memory, rows)) return;
    held.values.resize(static_cast<std::size_t>(rows) * static_cast<std::size_t>(held.memory->shape.d_model));
    link.device().read(*held.rows, std::as_writable_bytes(std::span(held.values)));
    to.write_rows(*held.memory, held.values);
}

void HostServer::State::forward(MessageReader reader) {
    const auto head = reader.get<ForwardHead>();
    std::vector<RemoteStep> steps;
    reader.get_list(steps);
    // The rows follow whatever is wrong with the rest.
    const auto known = workspaces.find(head.workspace);
    if (known == workspaces.end() || head.rows < 1 || head.rows > known->second.memory->max_rows) {
        link.lose("a forward of " + link.name(0) + " has no workspace here");
    }
    HeldWorkspace& own = known->second;
    if (head.has_rows) receive(*own.rows, float_bytes(int64_t{head.rows} * own.memory->shape.d_model));

    HeldKv* const kv = head.kv >= 0 ? &held(kvs, head.kv) : nullptr;
    if (head.begins) {
        own.begun = false;
        read_batch(reader, head, own);
        check_batch(own);
    }
    require(head.begins || own.begun, "a forward without a beginning");
    check_steps(steps, own, kv);
    if (head.begins) {
        device(own.device)
            .begin(*own.memory, {.row_class = head.row_class,
                                 .tree = head.tree,
                                 .rows = own.batch_rows,
                                 .sequences = own.sequences,
                                 .logit_rows = own.logit_rows,
                                 .token_source = nullptr});
        own.begun = true;
    }
    if (head.has_rows) take_rows(own);
    bool logits = false;
    for (const RemoteStep& step : steps) {
        run_op(step.call, device(own.device), *ops[own.device][static_cast<std::size_t>(step.op)].op, *own.memory,
               kv != nullptr ? kv->pages.get() : nullptr, step.layer);
        logits |= step.call == ForwardOp::lm_head;
    }
    if (logits) return send_logits(own);
    device(own.device).wait(*own.memory);
    done();
}

void HostServer::State::send_logits(HeldWorkspace& held) {
    const auto vocab = static_cast<std::size_t>(held.memory->shape.vocab);
    held.values.resize(held.logit_rows.size() * vocab);
    for (std::size_t i = 0; i < held.logit_rows.size(); ++i) {
        const std::span<float> row = device(held.device).logits(*held.memory, static_cast<int32_t>(i));
        std::ranges::copy(row, held.values.begin() + static_cast<std::ptrdiff_t>(i * vocab));
    }
    link.device().write(*held.logits, std::as_bytes(std::span(held.values)));
    done();
    send(*held.logits, held.values.size() * sizeof(float));
}

void HostServer::State::send_rows(MessageReader reader) {
    HeldWorkspace& own = held(workspaces, reader.get<int32_t>());
    require(own.begun, "rows of no forward");
    const auto rows = static_cast<int32_t>(own.batch_rows.size());
    Ops& from = device(own.device);
    if (!link.device().take_rows(*own.rows, from, *own.memory, rows)) {
        own.values.resize(static_cast<std::size_t>(rows) * static_cast<std::size_t>(own.memory->shape.d_model));
        from.read_rows(*own.memory, own.values);
        link.device().write(*own.rows, std::as_bytes(std::span(own.values)));
    }
    done();
    send(*own.rows, float_bytes(int64_t{rows} * own.memory->shape.d_model));
}

void HostServer::State::echo(MessageReader reader) {
    constexpr std::uint64_t kMost = std::uint64_t{1} << 30;
    const auto size = reader.get<std::uint64_t>();
    if (size == 0 || size > kMost) link.lose("an echo of a wrong size");
    if (!echoed || echoed->size < size) echoed = link.device().allocate(size);
    receive(*echoed, size);
    done();
    send(*echoed, size);
}

}  // namespace foresay::kernels
