#include "grammar/rules.h"

#include <algorithm>

#include "base/error.h"

namespace foresay::grammar {

std::uint32_t Rules::add_rule() {
    rules_.emplace_back();
    const auto rule = static_cast<std::uint32_t>(rules_.size() - 1);
    rules_[rule].first = add_state(rule);
    return rule;
}

std::uint32_t Rules::add_state(std::uint32_t rule) {
    if (states_.size() >= kMostStates)
        throw Error("this grammar is too large: its rules need more than 2000000 states");
    expressions_.spend(4);
    states_.emplace_back().rule = rule;
    const auto state = static_cast<std::uint32_t>(states_.size() - 1);
    rules_[rule].states.push_back(state);
    return state;
}

void Rules::add_edge(std::uint32_t state, Symbol symbol, std::uint32_t target) {
    std::vector<Edge>& edges = states_[state].edges;
    expressions_.spend(1 + edges.size() / 32);
    if (std::find(edges.begin(), edges.end(), Edge{symbol, target}) == edges.end()) edges.push_back({symbol, target});
}

void Rules::define(std::uint32_t rule, ObjectRule object) {
    rules_[rule].kind = Rule::Kind::object;
    rules_[rule].index = static_cast<std::uint32_t>(objects_.size());
    Place place;
    place.seen.assign((object.names.size() + object.others.size() + 63) / 64, 0);
    objects_.push_back(std::move(object));
    states_[rules_[rule].first].built = false;
    places_.emplace(rules_[rule].first, std::move(place));
}

void Rules::define(std::uint32_t rule, ArrayRule array) {
    rules_[rule].kind = Rule::Kind::array;
    rules_[rule].index = static_cast<std::uint32_t>(arrays_.size());
    arrays_.push_back(std::move(array));
    states_[rules_[rule].first].built = false;
    places_.emplace(rules_[rule].first, Place{});
}

// -------------------------------------------------------------------------------------------- what can end, what is
// empty

bool Rules::object_productive(const ObjectRule& object) const {
    expressions_.spend(1 + object.names.size() / 8);
    std::size_t most = 0;  // different names that can be told apart
    std::size_t required = 0;
    for (const ObjectRule::Name& name : object.names) {
        if (name.required && !productive(name.value)) return false;
        required += name.required ? 1 : 0;
        most += productive(name.value) ? 1 : 0;
    }
    for (const ObjectRule::Names& names : object.others) most += productive(names.value) ? 1 : 0;
    return required <= object.most && object.least <= most && object.least <= object.most;
}

bool Rules::array_productive(const ArrayRule& array) const {
    expressions_.spend(1 + array.first.size() / 8);
    if (array.least > array.most) return false;
    for (std::size_t i = 0; i < array.first.size() && i < array.least; ++i) {
        if (!productive(array.first[i])) return false;
    }
    return array.least <= array.first.size() || productive(array.rest);
}

// Whether a final state can be reached over symbols that pass.
bool Rules::automaton(const Rule& rule, bool (Rules::*passes)(Symbol) const) const {
    std::vector<std::uint32_t> queue = {rule.first};
    std::unordered_map<std::uint32_t, bool> seen = {{rule.first, true}};
    for (std::size_t i = 0; i < queue.size(); ++i) {
        expressions_.spend(2 + states_[queue[i]].edges.size() / 4);
        if (states_[queue[i]].final) return true;
        for (const Edge& edge : states_[queue[i]].edges) {
            if ((this->*passes)(edge.symbol) && seen.emplace(edge.target, true).second) queue.push_back(edge.target);
        }
    }
    return false;
}

void Rules::finish() {
    // Least fixed points. What uses a rule is looked at again when the rule has changed.
    std::vector<std::vector<std::uint32_t>> users(rules_.size());
    const auto use = [&](std::uint32_t user, Symbol symbol) {
        if (!symbol.nothing() && symbol.is_rule()) users[symbol.index()].push_back(user);
    };
    for (std::uint32_t r = 0; r < rules_.size(); ++r) {
        const Rule& rule = rules_[r];
        if (rule.kind == Rule::Kind::object) {
            for (const auto& name : objects_[rule.index].names) use(r, name.value);
            for (const auto& names : objects_[rule.index].others) use(r, names.value);
        } else if (rule.kind == Rule::Kind::array) {
            for (const Symbol symbol : arrays_[rule.index].first) use(r, symbol);
            use(r, arrays_[rule.index].rest);
        } else {
            for (const std::uint32_t state : rule.states) {
                for (const Edge& edge : states_[state].edges) use(r, edge.symbol);
            }
        }
    }
    const auto fixed_point = [&](bool Rule::*property, const auto& holds) {
        std::vector<std::uint32_t> queue(rules_.size());
        for (std::uint32_t r = 0; r < queue.size(); ++r) queue[r] = r;
        for (std::size_t i = 0; i < queue.size(); ++i) {
            Rule& rule = rules_[queue[i]];
            if (rule.*property || !holds(rule)) continue;
            rule.*property = true;
            queue.insert(queue.end(), users[queue[i]].begin(), users[queue[i]].end());
        }
    };
    fixed_point(&Rule::productive, [&](const Rule& rule) {
        if (rule.kind == Rule::Kind::object) return object_productive(objects_[rule.index]);
        if (rule.kind == Rule::Kind::array) return array_productive(arrays_[rule.index]);
        return automaton(rule, &Rules::productive);
    });
    fixed_point(&Rule::nullable, [&](const Rule& rule) {
        return rule.kind == Rule::Kind::automaton && automaton(rule, &Rules::may_be_empty);
    });
    // Edges from which no end can be reached would lead into texts that cannot be finished.
    for (const Rule& rule : rules_) {
        if (rule.kind != Rule::Kind::automaton) continue;
        std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> before;
        std::unordered_map<std::uint32_t, bool> good;
        std::vector<std::uint32_t> queue;
        for (const std::uint32_t state : rule.states) {
            for (const Edge& edge : states_[state].edges) {
                if (productive(edge.symbol)) before[edge.target].push_back(state);
            }
            if (states_[state].final && good.emplace(state, true).second) queue.push_back(state);
        }
        for (std::size_t i = 0; i < queue.size(); ++i) {
            for (const std::uint32_t state : before[queue[i]]) {
                if (good.emplace(state, true).second) queue.push_back(state);
            }
        }
        for (const std::uint32_t state : rule.states) {
            std::erase_if(states_[state].edges,
                          [&](const Edge& edge) { return !productive(edge.symbol) || good.count(edge.target) == 0; });
        }
    }
}

// ------------------------------------------------------------------------------------------------- objects and arrays

void Rules::build(std::uint32_t state) {
    const Place place = places_.at(state);
    const Rule& rule = rules_[states_[state].rule];
    if (rule.kind == Rule::Kind::object) {
        build_object(state, objects_[rule.index], place);
    } else {
        build_array(state, arrays_[rule.index], place);
    }
    places_.erase(state);  // not earlier: what stops before the edges are known begins again
    states_[state].built = true;
}

std::uint32_t Rules::place_state(std::uint32_t rule, const Place& place) {
    expressions_.spend(4 + place.seen.size());
    std::string key;
    const auto append = [&](const auto& value) { key.append(reinterpret_cast<const char*>(&value), sizeof value); };
    append(rule), append(place.next), append(place.value), append(place.count);
    key.append(reinterpret_cast<const char*>(place.seen.data()), place.seen.size() * sizeof place.seen[0]);
    const auto [found, fresh] = place_ids_.try_emplace(std::move(key), 0);
    if (fresh) {
        if (states_.size() >= kMostStates) throw Error("this grammar has been used for too long a text");
        states_.emplace_back().rule = rule;
        found->second = static_cast<std::uint32_t>(states_.size() - 1);
        if (place.next == Place::Next::end) {
            states_.back().final = true;
        } else {
            states_.back().built = false;
            places_.emplace(found->second, place);
        }
    }
    return found->second;
}

void Rules::build_object(std::uint32_t state, const ObjectRule& object, const Place& place) {
    const std::uint32_t rule = states_[state].rule;
    Place next = place;
    std::vector<Edge> edges;
    if (place.next == Place::Next::open) {
        next.next = Place::Next::member;
        edges.push_back({Symbol::lexeme(object.open), place_state(rule, next)});
    } else if (place.next == Place::Next::value) {
        next.next = Place::Next::member;
        next.value = Symbol::kNothing;
        edges.push_back({Symbol{place.value}, place_state(rule, next)});
    } else {
        const auto seen = [&](std::size_t i) { return (place.seen[i / 64] >> (i % 64) & 1) != 0; };
        const std::size_t names = object.names.size();
        expressions_.spend(1 + names / 8);
        std::size_t known = 0;    // different names so far
        std::size_t missing = 0;  // required ones
        bool any = false;         // whether there was a member
        for (std::size_t i = 0; i < names + object.others.size(); ++i) {
            any = any || seen(i);
            known += seen(i) ? 1 : 0;
            const Symbol value = i < names ? object.names[i].value : object.others[i - names].value;
            if (seen(i) || !productive(value)) continue;
            missing += i < names && object.names[i].required ? 1 : 0;
        }
        // Members that are left when the required ones have their place. The count follows members only where a limit
        // needs it.
        const std::size_t room = object.most == UINT32_MAX ? SIZE_MAX : object.most - place.count - missing;
        const std::size_t least = object.least > known ? object.least - known : 0;
        if (missing == 0 && least == 0) {
            Place end;
            end.next = Place::Next::end;
            edges.push_back({Symbol::lexeme(object.close), place_state(rule, end)});
        }
        const auto add = [&](std::size_t i, std::uint32_t lexeme, Symbol value) {
            next = place;
            next.next = Place::Next::value;
            next.value = value.id;
            next.seen[i / 64] |= std::uint64_t{1} << (i % 64);
            if (object.most != UINT32_MAX) ++next.count;
            edges.push_back({Symbol::lexeme(lexeme), place_state(rule, next)});
        };
        for (std::size_t i = 0; i < names; ++i) {
            const ObjectRule::Name& name = object.names[i];
            if (seen(i) || !productive(name.value) || (!name.required && room == 0)) continue;
            add(i, any ? name.next : name.first, name.value);
        }
        for (std::size_t k = 0; k < object.others.size(); ++k) {
            const ObjectRule::Names& others = object.others[k];
            if (!productive(others.value) || room == 0) continue;
            // With a limit above and one below, a name that comes again must not take the place of a new one.
            if (object.most != UINT32_MAX && seen(names + k) && room <= (least > missing ? least - missing : 0))
                continue;
            add(names + k, any ? others.next : others.first, others.value);
        }
    }
    states_[state].edges = std::move(edges);
}

void Rules::build_array(std::uint32_t state, const ArrayRule& array, const Place& place) {
    const std::uint32_t rule = states_[state].rule;
    Place next = place;
    std::vector<Edge> edges;
    // From this count on, counts make no difference.
    const std::uint32_t limit = array.most != UINT32_MAX
                                    ? array.most
                                    : std::max(array.least, static_cast<std::uint32_t>(array.first.size()) + 1);
    const Symbol item = place.count < array.first.size() ? array.first[place.count] : array.rest;
    const bool more = place.count < array.most && productive(item);
    const auto add_end = [&] {
        Place end;
        end.next = Place::Next::end;
        edges.push_back({Symbol::lexeme(array.close), place_state(rule, end)});
    };
    if (place.next == Place::Next::open) {
        next.next = Place::Next::member;
        edges.push_back({Symbol::lexeme(array.open), place_state(rule, next)});
    } else if (place.next == Place::Next::member) {  // after the bracket, or after a comma: `value` is then 0
        if (place.value != 0 && array.least == 0) add_end();
        next.next = Place::Next::value;
        next.value = Symbol::kNothing;
        next.count = std::min(place.count + 1, std::max(limit, 1u));
        if (more) edges.push_back({item, place_state(rule, next)});
    } else {
        if (place.count >= array.least) add_end();
        next.next = Place::Next::member;
        next.value = 0;
        if (more) edges.push_back({Symbol::lexeme(array.comma), place_state(rule, next)});
    }
    states_[state].edges = std::move(edges);
}

}  // namespace foresay::grammar
