// See partition.h. The choice: each call has a list of ways to divide it. A pass forward finds for each sharding that a
// value may have what it takes to make it so, and a pass backward what that costs its readers: both as if the graph
// were a tree. A second pass forward takes for each call the way that is cheapest beside what its operands have become,
// and single choices are improved at the end.
#include "passes/partition.h"

#include <algorithm>
#include <limits>
#include <map>

#include "ir/operation_count.h"
#include "ir/ops/structures.h"
#include "passes/partition_write.h"
#include "passes/sums_of_steps.h"
#include "passes/uneven_axes.h"

namespace fermata {

constinit thread_local PartitionCosts partition_costs;

namespace {

/// A value takes so many ways to be divided into account at most; those along few mesh axes come first.
constexpr std::size_t kMostWays = 1024;
constexpr int kMostPasses = 8;
constexpr double kMostSmallBytes = 1 << 16;
/// How often divisions of functions follow what operands have become, and how many of them there are.
constexpr int kMostRounds = 3;
constexpr std::size_t kMostDivisions = 24;

class Chooser {
 public:
  explicit Chooser(const PartitionRequest& request)
      : request_(request),
        graph_(request.graph),
        mesh_(request.mesh),
        sums_(sums_of_steps(graph_, request.sums)),
        uneven_(request),
        calls_(graph_.nodes.size()) {}

  Choices choose() {
    Choices choices;
    if (request_.is_function)
      for (const auto& wanted : request_.results)
        choices.kept.push_back(wanted ? std::optional(KeptSharding{*wanted, false}) : std::nullopt);
    else
      find_kept(choices.kept);
    whole_ = number_of({});
    uneven_.find(choices.kept);
    choices.has_rule.assign(graph_.nodes.size(), true);
    for (ValueId v = 0; v < graph_.nodes.size(); ++v) {
      calls_[v].bytes = bytes_of(v);
      choices.has_rule[v] = list_ways(v);
      for (Way& way : calls_[v].ways) number(v, way);
      find_natural(v);
      for (std::size_t k = 0; k < graph_.nodes[v].operands.size(); ++k)
        if (!graph_.nodes[v].operands[k].is_scalar())
          calls_[graph_.nodes[v].operands[k].value].readers.push_back({v, k});
    }
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
      Call& call = calls_[graph_.outputs[i]];
      if (choices.kept[i])
        call.kept.push_back(number_of(choices.kept[i]->sharding));
      else
        call.is_small_output =
            !request_.is_function && call.ways[0].call.packed == nullptr && call.bytes <= kMostSmallBytes;
    }
    std::vector<std::size_t> best;
    choices.seconds = std::numeric_limits<double>::infinity();
    for (int round = 0; round < kMostRounds; ++round) {
      optimize(choices.seconds, best);
      if (!follow_operands(best)) break;
    }
    for (std::size_t v = 0; v < calls_.size(); ++v) choices.calls.push_back(calls_[v].ways[best[v]].call);
    for (ValueId v = 0; v < calls_.size(); ++v)
      if (uneven_.gathers(v, choices.calls)) choices.has_rule[v] = false;
    for (auto& [v, f] : functions_) choices.functions.emplace(v, std::move(f.functions));
    return choices;
  }

 private:
  struct Way {
    DividedCall call;
    double seconds;                    // of the call by itself, and of what combines its results
    std::vector<std::size_t> needs{};  // numbers of shardings, by operand; kAny where it does not matter
    std::vector<double> efforts{};     // by operand: to make it as it is needed
    std::size_t result = 0;
  };
  struct Reader {
    ValueId value;
    std::size_t operand;
  };
  struct Call {
    std::vector<Way> ways;
    std::size_t chosen = 0;
    std::vector<Reader> readers;
    double bytes = 0;
    std::vector<std::size_t> kept{};          // shardings that it has to have as an output
    std::optional<std::size_t> natural{};     // the sharding that follows from operands; none where any does
    bool is_small_output = false;             // somebody may read it, which gathers it
                                              // By its sharding, each beside the least one:
    std::map<std::size_t, double> efforts{};  // to make it so
    std::map<std::size_t, double> regrets{};  // what that costs readers
  };
  static constexpr std::size_t kAny = ~std::size_t{0};
  /// A call of functions, and its divisions, by number of its ways.
  struct Functions {
    std::unique_ptr<DividedFunctions> functions;
    std::vector<FunctionDivision> divisions{};
  };

  double bytes_of(ValueId v) const {
    const GraphNode& n = graph_.nodes[v];
    return static_cast<double>(element_count(n.shape)) * static_cast<double>(byte_size(n.dtype));
  }
  double seconds_of(ExchangeKind kind, double bytes, std::size_t mesh_axis) const {
    const std::int64_t n = mesh_.sizes[mesh_axis];
    if (n == 1) return 0;
    return request_.costs.latency + wire_bytes(kind, bytes, n) / request_.costs.bytes_per_second;
  }
  /// Of bringing a value of so many bytes from one sharding into another: a part for each collective, and one for each
  /// byte of the whole.
  struct ReshardCost {
    double fixed = 0, per_byte = 0;
  };
  double reshard_seconds(ValueId v, std::size_t from, std::size_t to) {
    if (from == to) return 0;
    const ReshardCost& cost = reshard_cost(from, to);
    return cost.fixed + cost.per_byte * calls_[v].bytes;
  }
  const ReshardCost& reshard_cost(std::size_t from, std::size_t to) {
    auto& row = reshards_[from];
    if (row.size() <= to) row.resize(shardings_.size());
    if (row[to]) return *row[to];
    ReshardCost cost;
    if (is_packed(shardings_[from]) || is_packed(shardings_[to])) {
      cost.fixed = std::numeric_limits<double>::infinity();
      return *(row[to] = cost);
    }
    double share = 1 / static_cast<double>(mesh_.parts(shardings_[from].used()));
    for (const ReshardStep& step : plan_reshard(shardings_[from], shardings_[to], kMaxRank, mesh_)) {
      const std::int64_t n = mesh_.sizes[step.mesh_axis];
      if (!step.collective) {
        share /= static_cast<double>(n);
        cost.per_byte += share / request_.costs.memory_bytes_per_second;
        continue;
      }
      if (n > 1) cost.fixed += request_.costs.latency;
      cost.per_byte += wire_bytes(step.collective->kind, share, n) / request_.costs.bytes_per_second;
      if (step.collective->kind == ExchangeKind::all_gather) share *= static_cast<double>(n);
    }
    return *(row[to] = cost);
  }
  /// Shardings have numbers, so that costs between them are found at once.
  std::size_t number_of(const Sharding& sharding) {
    const auto [at, is_new] = numbers_.try_emplace(sharding.axes, shardings_.size());
    if (is_new) shardings_.push_back(sharding), reshards_.emplace_back();
    return at->second;
  }
  /// Several results in one value, which are divided as one of the divisions says: no sharding, as each names a mesh
  /// axis once, and so none that another one can be brought into.
  static Sharding packed(std::size_t division) {
    Sharding mark;
    mark.axes[kMaxRank - 1] = 0xff, mark.axes[kMaxRank - 2] = static_cast<std::uint8_t>(division);
    return division == 0 ? Sharding() : mark;
  }
  static bool is_packed(const Sharding& s) { return s.axes[kMaxRank - 1] == 0xff && s.axes[kMaxRank - 2] != 0; }
  void number(ValueId v, Way& way) {
    way.result = number_of(way.call.result);
    for (std::size_t k = 0; k < graph_.nodes[v].operands.size(); ++k)
      way.needs.push_back(
          graph_.nodes[v].operands[k].is_scalar() || way.call.is_free[k] ? kAny : number_of(way.call.needs[k]));
  }
  double call_seconds(ValueId v) const {
    const GraphNode& n = graph_.nodes[v];
    std::vector<std::span<const std::int64_t>> operands;
    double bytes = bytes_of(v);
    for (const GraphOperand& o : n.operands)
      if (!o.is_scalar()) operands.push_back(graph_.nodes[o.value].shape), bytes += bytes_of(o.value);
    return std::max(operation_count(n.op, operands, n.shape) / request_.costs.operations_per_second,
                    bytes / request_.costs.memory_bytes_per_second);
  }

  // ---- Updates keep the sharding of what they update

  /// Where a value is computed element by element: the value of its shape that comes first and was there before, or
  /// was placed; and whether the program has placed any of those.
  struct Ancestor {
    ValueId first = kNoValue;
    bool any_placed = false;
  };
  void find_kept(std::vector<std::optional<KeptSharding>>& kept) const {
    kept.assign(graph_.outputs.size(), std::nullopt);
    std::vector<Ancestor> ancestors(graph_.nodes.size());
    std::vector<GivenSharding> given = request_.inputs;
    for (ValueId v = 0; v < graph_.nodes.size(); ++v) {
      const GraphNode& n = graph_.nodes[v];
      if (const auto wanted = request_.constraint ? request_.constraint(n) : std::nullopt)
        given[v] = {*wanted, true, true};
      if (n.op == Op::input || given[v].is_placed) {
        ancestors[v] = {v, given[v].is_placed};
      } else if (is_pointwise(n.op) || n.op == Op::cast || n.op == Op::copy) {
        for (const GraphOperand& o : n.operands) {
          if (o.is_scalar() || graph_.nodes[o.value].shape != n.shape) continue;
          const Ancestor& a = ancestors[o.value];
          if (ancestors[v].first == kNoValue) ancestors[v].first = a.first;
          ancestors[v].any_placed = ancestors[v].any_placed || a.any_placed;
        }
      }
    }
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
      const ValueId v = graph_.outputs[i];
      const Ancestor& a = ancestors[v];
      if (a.first == kNoValue || graph_.nodes[v].shape.rank() == 0) continue;
      if (given[a.first].is_divided)
        kept[i] = {given[a.first].sharding, given[a.first].is_placed};
      else if (!a.any_placed)
        kept[i] = {Sharding(), false};
    }
  }

  // ---- Ways

  bool list_ways(ValueId v) {
    const GraphNode& n = graph_.nodes[v];
    Call& call = calls_[v];
    if (n.op == Op::input) {
      const GivenSharding& given = request_.inputs[v];
      call.ways.push_back(
          {{.result = given.packed != nullptr ? packed(1) : given.sharding, .packed = given.packed}, 0});
      return true;
    }
    if (const auto wanted = request_.constraint ? request_.constraint(n) : std::nullopt) {
      call.ways.push_back({{.needs = {*wanted}, .is_free = {false}, .result = *wanted, .is_constraint = true}, 0});
      return true;
    }
    if (DividedFunctions::is_call(n)) return list_divisions(v);
    if (n.op == Op::unpack && calls_[n.operands[0].value].ways[0].call.packed != nullptr) {
      for (std::size_t i = 0; i < calls_[n.operands[0].value].ways.size(); ++i) add_part(v, i);
      return true;
    }
    const std::optional<SplitRule> rule = split_rule(graph_, n);
    DividedCall whole;
    whole.needs.resize(n.operands.size()), whole.is_free.resize(n.operands.size());
    if (rule) whole.is_free = rule->is_free, whole.added = rule->added;
    if (!rule) {
      call.ways.push_back({whole, call_seconds(v)});
      return false;
    }
    std::vector<DividedCall> found{whole};
    for (std::size_t m = 0; m < mesh_.count() && mesh_.sizes.size() > 0; ++m) {
      if (mesh_.sizes[m] == 1) continue;
      const std::size_t before = found.size();
      for (std::size_t i = 0; i < before && found.size() < kMostWays; ++i) add_ways(found, i, *rule, n, m);
    }
    const double seconds = call_seconds(v);
    // A part of a sum is one of all elements: along the axes of the sum they are not divided any more.
    std::erase_if(found, [&](const DividedCall& c) { return (c.divided & sums_.axes[v]) != 0; });
    for (DividedCall& c : found) {
      leave_parts(c, sums_.terms[v]);
      double own = seconds * largest_share(*rule, c, mesh_);
      double bytes = bytes_of(v) / static_cast<double>(mesh_.parts(before_combining(c).used()));
      for (const Combination& combination : c.combined) {
        if (combination.is_later) continue;
        const bool scatters = combination.scatter_axis.has_value();
        own += seconds_of(scatters ? ExchangeKind::reduce_scatter : ExchangeKind::all_reduce, bytes,
                          combination.mesh_axis);
        if (scatters) bytes /= static_cast<double>(mesh_.sizes[combination.mesh_axis]);
      }
      call.ways.push_back({std::move(c), own});
    }
    return true;
  }

  static void leave_parts(DividedCall& call, unsigned axes) {
    for (Combination& c : call.combined)
      c.is_later = (axes >> c.mesh_axis & 1u) != 0 && c.combine == CollectiveReduction::sum && !c.scatter_axis;
  }

  /// A way that divides along one more mesh axis, for each factor that it can divide.
  void add_ways(std::vector<DividedCall>& found, std::size_t at, const SplitRule& rule, const GraphNode& n,
                std::size_t m) const {
    const auto bit = static_cast<std::uint8_t>(1u << m);
    for (std::size_t f = 0; f < rule.factors.size(); ++f) {
      const SplitFactor& factor = rule.factors[f];
      DividedCall c = found[at];
      if (!uneven_.may_divide(factor, n, c.by_factor(f) | bit)) continue;
      c.factors.push_back({f, static_cast<std::uint8_t>(m)});
      c.divided |= bit;
      for (std::size_t k = 0; k < factor.operands.size(); ++k)
        if (factor.operands[k] != SplitFactor::kNone) c.needs[k].axes[static_cast<unsigned>(factor.operands[k])] |= bit;
      if (factor.result != SplitFactor::kNone) {
        // What was scattered already lies along this axis in an order of its own.
        if (c.scatters_along(static_cast<unsigned>(factor.result))) continue;
        c.result.axes[static_cast<unsigned>(factor.result)] |= bit;
        found.push_back(std::move(c));
        continue;
      }
      c.combined.push_back({static_cast<std::uint8_t>(m), factor.combine, {}});
      found.push_back(c);
      if (factor.combine != CollectiveReduction::sum) continue;
      for (unsigned i = 0; i < n.shape.rank(); ++i) {
        if (n.shape[i] == 0 || !uneven_.may_divide(n.shape[i], c.result.axes[i] | bit)) continue;
        DividedCall scattered = c;
        scattered.combined.back().scatter_axis = static_cast<std::uint8_t>(i);
        scattered.result.axes[i] |= bit;
        found.push_back(std::move(scattered));
      }
    }
  }

  // ---- Calls of functions

  bool list_divisions(ValueId v) {
    Functions& f = functions_[v];
    f.functions = std::make_unique<DividedFunctions>(request_, graph_.nodes[v]);
    f.divisions.push_back(f.functions->whole());
    f.functions->propose(shardings_of_operands(v, [&](ValueId x) { return calls_[x].natural; }), f.divisions);
    for (std::size_t i = 0; i < f.divisions.size(); ++i) add_division(v, i);
    return f.functions->obstacle().empty();
  }
  void add_division(ValueId v, std::size_t i) {
    const Functions& f = functions_.at(v);
    DividedCall call{.needs = f.divisions[i].operands,
                     .result = packed(i),
                     .division = std::make_shared<FunctionDivision>(f.divisions[i]),
                     .packed = f.divisions[i].packed};
    for (std::size_t k = 0; k < call.needs.size(); ++k) call.is_free.push_back(f.functions->is_waited(k));
    call.counted_once = f.functions->counted_once(f.divisions[i]);
    const double seconds = f.divisions[i].programs.empty() ? call_seconds(v) : f.divisions[i].seconds;
    if (!f.functions->is_packed()) {
      call.result = f.divisions[i].results[0];
      add_combined(v, std::move(call), f.divisions[i].sums[0], seconds);
    } else {
      calls_[v].ways.push_back({std::move(call), seconds});
    }
  }
  /// What each process has of a sum: as all of them need it, or in blocks, or as parts of a sum of an outer loop.
  void add_combined(ValueId v, DividedCall call, unsigned sums, double seconds) {
    const GraphNode& n = graph_.nodes[v];
    const double bytes = bytes_of(v) / static_cast<double>(mesh_.parts(call.result.used()));
    std::vector<Way> found{{std::move(call), seconds}};
    for (std::size_t m = 0; m < mesh_.count(); ++m) {
      if ((sums >> m & 1u) == 0) continue;
      const auto bit = static_cast<std::uint8_t>(1u << m);
      std::vector<Way> longer;
      for (const Way& way : found) {
        longer.push_back(way);
        const bool is_later = (sums_.terms[v] >> m & 1u) != 0;
        longer.back().call.combined.push_back({static_cast<std::uint8_t>(m), CollectiveReduction::sum, {}, is_later});
        if (!is_later) longer.back().seconds += seconds_of(ExchangeKind::all_reduce, bytes, m);
        for (unsigned i = 0; i < n.shape.rank(); ++i) {
          if (n.shape[i] == 0 || !uneven_.may_divide(n.shape[i], way.call.result.axes[i] | bit)) continue;
          if (way.call.result.axes[i] >= bit) continue;  // blocks lie in the order of the mesh
          longer.push_back(way);
          longer.back().call.combined.push_back(
              {static_cast<std::uint8_t>(m), CollectiveReduction::sum, static_cast<std::uint8_t>(i)});
          longer.back().call.result.axes[i] |= bit;
          longer.back().seconds += seconds_of(ExchangeKind::reduce_scatter, bytes, m);
        }
      }
      found = std::move(longer);
    }
    for (Way& way : found) calls_[v].ways.push_back(std::move(way));
  }
  /// Of what unpacks a result.
  void add_part(ValueId v, std::size_t i) {
    const GraphNode& n = graph_.nodes[v];
    const DividedCall& from = calls_[n.operands[0].value].ways[i].call;
    const std::size_t part = from.packed->part_at(attributes_of<ops::Unpack>(n).offset.value);
    DividedCall call{.needs = {from.result},
                     .is_free = {false},
                     .result = from.packed->results[part],
                     .packed = from.packed,
                     .part = part};
    const double parts = static_cast<double>(mesh_.parts(call.result.used()));
    const unsigned sums = from.packed->sums[part];
    add_combined(v, std::move(call), sums, bytes_of(v) / parts / request_.costs.memory_bytes_per_second);
  }
  template <class Find> std::vector<std::optional<Sharding>> shardings_of_operands(ValueId v, Find&& find) const {
    std::vector<std::optional<Sharding>> found;
    for (const GraphOperand& o : graph_.nodes[v].operands) {
      const std::optional<std::size_t> number = find(o.value);
      found.push_back(number && !is_packed(shardings_[*number]) ? std::optional(shardings_[*number]) : std::nullopt);
    }
    return found;
  }
  /// The sharding of a value that follows from those of its operands, one after the other.
  void find_natural(ValueId v) {
    const GraphNode& n = graph_.nodes[v];
    const auto is_free = [&](const GraphOperand& o) { return o.is_scalar() || !calls_[o.value].natural; };
    if (n.op != Op::input && calls_[v].ways.size() > 1 && n.subgraphs == nullptr &&
        std::ranges::all_of(n.operands, is_free))
      return;
    double least = std::numeric_limits<double>::infinity();
    for (const Way& way : calls_[v].ways) {
      double seconds = way.seconds;
      for (std::size_t k = 0; k < n.operands.size(); ++k)
        if (way.needs[k] != kAny && !is_free(n.operands[k]))
          seconds += reshard_seconds(n.operands[k].value, *calls_[n.operands[k].value].natural, way.needs[k]);
      if (seconds < least * (1 - 1e-9)) least = seconds, calls_[v].natural = way.result;
    }
  }
  template <class Add> void add_numbered(ValueId v, Add&& add) {
    const std::size_t before = calls_[v].ways.size();
    add();
    for (std::size_t i = before; i < calls_[v].ways.size(); ++i) number(v, calls_[v].ways[i]);
  }
  /// Divisions for operands as they have become. Whether there are any that were not known.
  bool follow_operands(const std::vector<std::size_t>& best) {
    bool is_new = false;
    for (auto& [v, f] : functions_) {
      const std::size_t before = f.divisions.size();
      if (before >= kMostDivisions) continue;
      f.functions->propose(
          shardings_of_operands(v, [&](ValueId x) { return std::optional(calls_[x].ways[best[x]].result); }),
          f.divisions);
      for (std::size_t i = before; i < f.divisions.size(); ++i) {
        is_new = true;
        add_numbered(v, [&] { add_division(v, i); });
        if (!f.functions->is_packed()) continue;
        for (const Reader& r : calls_[v].readers)
          if (graph_.nodes[r.value].op == Op::unpack) add_numbered(r.value, [&] { add_part(r.value, i); });
      }
    }
    return is_new;
  }

  // ---- Choice

  /// Improves what there is, if it can.
  void optimize(double& least, std::vector<std::size_t>& best) {
    for (Call& call : calls_) {
      call.efforts.clear(), call.regrets.clear();
      for (Way& way : call.ways) way.efforts.clear();
    }
    for (ValueId v = 0; v < graph_.nodes.size(); ++v) find_efforts(v);
    for (ValueId v = static_cast<ValueId>(graph_.nodes.size()); v-- > 0;) find_regrets(v);
    for (ValueId v = 0; v < graph_.nodes.size(); ++v) take_best(v);
    double now = total_seconds();
    if (now < least) least = now, best = choices();
    for (int pass = 0; pass < kMostPasses; ++pass) {
      for (ValueId v = static_cast<ValueId>(graph_.nodes.size()); v-- > 0;) improve(v);
      for (ValueId v = 0; v < graph_.nodes.size(); ++v) improve(v);
      const double seconds = total_seconds();
      if (seconds < least) least = seconds, best = choices();
      if (seconds > now * (1 - 1e-6)) break;
      now = seconds;
    }
  }

  std::size_t result_of(ValueId v) const { return calls_[v].ways[calls_[v].chosen].result; }
  std::vector<std::size_t> choices() const {
    std::vector<std::size_t> chosen;
    for (const Call& call : calls_) chosen.push_back(call.chosen);
    return chosen;
  }

  /// What operands cost that are divided as they are now.
  double seconds_of_operands(ValueId v, const Way& way) {
    const GraphNode& n = graph_.nodes[v];
    double seconds = 0;
    for (std::size_t k = 0; k < n.operands.size(); ++k)
      if (way.needs[k] != kAny)
        seconds += reshard_seconds(n.operands[k].value, result_of(n.operands[k].value), way.needs[k]);
    return seconds;
  }
  /// What it costs to have a value as an output.
  double seconds_of_output(ValueId v, std::size_t sharding) {
    const Call& call = calls_[v];
    double seconds = call.is_small_output ? reshard_seconds(v, sharding, whole_) / 2 : 0;
    for (const std::size_t kept : call.kept) seconds += reshard_seconds(v, sharding, kept);
    return seconds;
  }
  /// Costs beside the least of them, where no sharding costs more than bringing the value into it from another one.
  void settle(ValueId v, std::map<std::size_t, double>& costs, bool to_others) {
    const std::map<std::size_t, double> found = costs;
    double least = std::numeric_limits<double>::infinity();
    for (auto& [sharding, cost] : costs) {
      for (const auto& [other, seconds] : found)
        cost = std::min(
            cost, seconds + (to_others ? reshard_seconds(v, sharding, other) : reshard_seconds(v, other, sharding)));
      least = std::min(least, cost);
    }
    for (auto& [sharding, cost] : costs) cost -= least;
  }

  /// Operands have theirs already.
  void find_efforts(ValueId v) {
    Call& call = calls_[v];
    const GraphNode& n = graph_.nodes[v];
    for (Way& way : call.ways) {
      double seconds = way.seconds;
      for (std::size_t k = 0; k < n.operands.size(); ++k) {
        double least = way.needs[k] == kAny ? 0 : std::numeric_limits<double>::infinity();
        if (way.needs[k] != kAny)
          for (const auto& [sharding, effort] : calls_[n.operands[k].value].efforts)
            least = std::min(least, effort + reshard_seconds(n.operands[k].value, sharding, way.needs[k]));
        way.efforts.push_back(least);
        seconds += least;
      }
      const auto [at, is_new] = call.efforts.try_emplace(way.result, seconds);
      if (!is_new) at->second = std::min(at->second, seconds);
    }
    settle(v, call.efforts, false);
  }

  /// Readers have theirs already.
  void find_regrets(ValueId v) {
    Call& call = calls_[v];
    for (const auto& [sharding, effort] : call.efforts) {
      double regret = seconds_of_output(v, sharding);
      for (const Reader& r : call.readers) {
        double best = std::numeric_limits<double>::infinity();
        for (const Way& way : calls_[r.value].ways) {
          const std::size_t need = way.needs[r.operand];
          double seconds = (need == kAny ? 0 : reshard_seconds(v, sharding, need)) + way.seconds +
                           calls_[r.value].regrets.at(way.result);
          for (std::size_t k = 0; k < way.efforts.size(); ++k)
            if (k != r.operand) seconds += way.efforts[k];
          best = std::min(best, seconds);
        }
        regret += best;
      }
      call.regrets.emplace(sharding, regret);
    }
    settle(v, call.regrets, true);
  }

  void take_best(ValueId v) {
    Call& call = calls_[v];
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < call.ways.size(); ++i) {
      const Way& way = call.ways[i];
      const double seconds = way.seconds + seconds_of_operands(v, way) + call.regrets.at(way.result);
      if (seconds < least * (1 - 1e-9)) call.chosen = i, least = seconds;
    }
  }

  /// With all neighbors as they are.
  void improve(ValueId v) {
    Call& call = calls_[v];
    if (call.ways.size() == 1) return;
    double least = std::numeric_limits<double>::infinity();
    const std::size_t before = call.chosen;
    for (std::size_t i = 0; i <= call.ways.size(); ++i) {
      const std::size_t at = i == 0 ? before : i - 1;  // that one first: it stays unless another is better
      const double seconds = seconds_beside(v, call.ways[at]);
      if (seconds < least * (1 - 1e-9)) call.chosen = at, least = seconds;
    }
  }
  double seconds_beside(ValueId v, const Way& way) {
    double seconds = way.seconds + seconds_of_operands(v, way) + seconds_of_output(v, way.result);
    for (const Reader& r : calls_[v].readers)
      if (const std::size_t need = calls_[r.value].ways[calls_[r.value].chosen].needs[r.operand]; need != kAny)
        seconds += reshard_seconds(v, way.result, need);
    return seconds;
  }

  double total_seconds() {
    double seconds = 0;
    for (ValueId v = 0; v < graph_.nodes.size(); ++v) {
      const Way& way = calls_[v].ways[calls_[v].chosen];
      seconds += way.seconds + seconds_of_output(v, way.result);
      std::vector<std::size_t> needed;  // each sharding is made once
      for (const Reader& r : calls_[v].readers) {
        const std::size_t need = calls_[r.value].ways[calls_[r.value].chosen].needs[r.operand];
        if (need == kAny || std::ranges::find(needed, need) != needed.end()) continue;
        needed.push_back(need);
        seconds += reshard_seconds(v, way.result, need);
      }
    }
    return seconds;
  }

  const PartitionRequest& request_;
  const Graph& graph_;
  const MeshAxes& mesh_;
  const SumsOfSteps sums_;
  UnevenAxes uneven_;
  std::vector<Call> calls_;
  std::vector<Sharding> shardings_;
  std::map<std::array<std::uint8_t, kMaxRank>, std::size_t> numbers_;
  std::vector<std::vector<std::optional<ReshardCost>>> reshards_;  // from, to
  std::size_t whole_ = 0;
  std::map<ValueId, Functions> functions_;
};

}  // namespace

LocalProgram partition(const PartitionRequest& request) {
  return write_local_program(request, Chooser(request).choose());
}

}  // namespace fermata
