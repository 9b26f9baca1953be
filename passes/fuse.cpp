// See fuse.h.
#include "passes/fuse.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <unordered_map>

#include "ir/complex_form.h"
#include "ir/error.h"
#include "ir/ops/reduce.h"
#include "ir/short_form.h"
#include "passes/dimensions.h"
#include "passes/group_order.h"
#include "passes/index_map.h"
#include "runtime/steps/kernel_step.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

// Limits of one kernel: beyond them compile time grows faster than what fusion saves.
constexpr std::size_t kMaxMembers = 160;
constexpr std::size_t kMaxPrims = 2000;
constexpr std::size_t kMaxAccesses = 48,
                      kMaxLoads = 2 * kMaxAccesses;  // operands; the places that they are loaded from
/// A pass over rows that depends on a reduction of them runs one row per thread; fewer rows than this with more
/// elements than that are better off as a split reduction and a separate pass.
constexpr double kFewRows = 8, kLongRow = 65536;
/// In kernels with reductions vectors end where a row ends (in column kernels: where columns do). What they would
/// compute in lanes that do not exist, in primitives per element, may be this much before a kernel of its own, which
/// fills them, is better; storing and loading an element costs as much. Less than a launch's worth of them is not
/// looked at. The vectors of two rows also overlap less than those of one (rms_norm of gelu, rows of 16: 1.18 of the
/// eager time).
constexpr double kVectorLanes = 16, kRowEnd = 8, kStoredElement = 24, kLaunch = 100000;
/// What it takes to hand work to other threads, in primitives of an element.
constexpr double kFork = 1e6;
/// Primitives a broadcast value may cost to be computed again at every point instead of being stored.
constexpr std::size_t kCheapPrims = 3;

std::size_t prim_count(const Graph& g, ValueId v) {
  const GraphNode& n = g.nodes[v];
  const DType operand = operand_dtype(g, n);
  if (is_complex(operand) || is_complex(n.dtype)) return complex_form_size(n.op, operand, n.dtype);
  if (traits(n.op).gathers) return 6;
  if (traits(n.op).joins) return 4 * n.operands.size();
  if (!is_pointwise(n.op)) return family(n.op) == Family::random ? 120 : 1;
  return usual_size(pointwise_formula(n.op, compute_dtype(operand)));
}

struct Verdict {
  bool ok = false;
  const char* reason = "";
  bool is_final = true;  // whether no later merge of other groups makes it yes
  static Verdict no(const char* why) { return {false, why}; }
  static Verdict not_yet(const char* why) { return {false, why, false}; }
  static Verdict yes() { return {true, ""}; }
};

class Fuser {
 public:
  explicit Fuser(Program& program)
      : p_(program),
        g_(program.graph),
        dims_(program.graph),
        users_(g_.nodes.size()),
        output_(g_.nodes.size(), false),
        prims_(g_.nodes.size(), 0) {
    for (ValueId v = 0; v < g_.nodes.size(); ++v)
      for (const GraphOperand& o : g_.nodes[v].operands)
        if (!o.is_scalar()) users_[o.value].push_back(v);
    for (const ValueId v : g_.outputs) output_[v] = true;
  }

  void run() {
    p_.groups.clear();
    p_.group_of.assign(g_.nodes.size(), -1);
    for (ValueId v = 0; v < g_.nodes.size(); ++v) {
      if (p_.choices[v].form != Form::emit) continue;
      prims_[v] = prim_count(g_, v);
      p_.group_of[v] = static_cast<std::int32_t>(p_.groups.size());
      p_.groups.push_back(single(v));
    }
    order_.emplace(p_);
    merge_producers();
    merge_what_reads_together();
    merge_siblings();
    call_what_stayed_alone();
    note_refusals();
  }

 private:
  Group single(ValueId v) const {
    Group group{.members = {v}, .inlined = {false}, .domain = v, .reduced = 0, .alive = true};
    const GraphNode& n = g_.nodes[v];
    if (family(n.op) == Family::reduce) {
      group.domain = n.operands[0].value;
      group.reduced = reduced_axes(n);
    }
    return group;
  }

  void merge_producers() {
    for (ValueId v = 0; v < g_.nodes.size(); ++v) {
      if (p_.group_of[v] < 0) continue;
      for (std::size_t k = 0; k < g_.nodes[v].operands.size(); ++k) {
        if (g_.nodes[v].operands[k].is_scalar()) continue;
        ValueId s = g_.nodes[v].operands[k].value;
        while (is_view(g_.nodes[s].op)) s = g_.nodes[s].operands[0].value;
        if (p_.group_of[s] < 0 || p_.group_of[s] == p_.group_of[v]) continue;
        const Verdict verdict = try_merge(p_.group_of[s], p_.group_of[v]);
        if (!verdict.ok && (p_.explains || !verdict.is_final)) refused_.push_back({s, v, verdict});
      }
    }
  }

  /// What several calls read at indices of their own is computed where they are once all of them are in one kernel: the
  /// last ones first, since what they read in turn waits for them.
  void merge_what_reads_together() {
    for (auto refused = refused_.rbegin(); refused != refused_.rend(); ++refused) {
      const std::int32_t producer = p_.group_of[refused->producer], consumer = p_.group_of[refused->consumer];
      if (!refused->verdict.is_final && producer != consumer) try_merge(producer, consumer);
    }
  }

  void note_refusals() {
    if (!p_.explains) return;
    for (const Refused& r : refused_)
      if (p_.group_of[r.producer] < 0 || p_.group_of[r.producer] != p_.group_of[r.consumer])
        p_.notes.push_back(fmt::format("%{} {} is not fused into %{} {}: {}", r.producer, name(g_.nodes[r.producer].op),
                                       r.consumer, name(g_.nodes[r.consumer].op), r.verdict.reason));
  }

  void merge_siblings() {
    for (ValueId s = 0; s < g_.nodes.size(); ++s) {
      if (users_[s].size() < 2) continue;
      for (std::size_t i = 1; i < users_[s].size(); ++i) {
        const std::int32_t a = p_.group_of[users_[s][0]], b = p_.group_of[users_[s][i]];
        if (a < 0 || b < 0 || a == b) continue;
        if (!dims_.same_shape(p_.groups[index(a)].domain, p_.groups[index(b)].domain)) continue;
        try_home_merge(a, b);
      }
    }
  }

  /// What only moves elements is done better by a call, which copies whole rows.
  void call_what_stayed_alone() {
    for (Group& group : p_.groups) {
      if (!group.alive || group.members.size() != 1 || !only_moves_elements(g_.nodes[group.members[0]].op)) continue;
      p_.group_of[group.members[0]] = -1;
      p_.choices[group.members[0]].form = Form::call;
      group.members.clear(), group.inlined.clear(), group.alive = false;
    }
  }

  bool only_moves_elements(Op op) const {
    return picks_elements(op) || (op == Op::copy && p_.capabilities.rows_in_vectors);
  }

  static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

  Verdict try_merge(std::int32_t producer, std::int32_t consumer) {
    const Verdict home = try_home_merge(producer, consumer);
    if (home.ok) return home;
    const Verdict inlined = try_inline(producer, consumer);
    return inlined.ok ? inlined : Verdict{false, home.reason, inlined.is_final};
  }

  // ---- Merging at home ----------------------------------------------------------------------------------------------

  Verdict try_home_merge(std::int32_t a, std::int32_t b) {
    const Group &x = p_.groups[index(a)], &y = p_.groups[index(b)];
    if (x.reduced != 0 && y.reduced != 0 && (x.reduced != y.reduced || !dims_.same_shape(x.domain, y.domain)))
      return Verdict::no("they reduce different axes");
    Group merged = unite(x, y);
    merged.domain = x.reduced != 0 ? x.domain : y.domain;
    merged.reduced = x.reduced | y.reduced;
    const Verdict fits = check(merged);
    if (!fits.ok) return fits;
    // What was inlined before may read what is in the kernel only now, and elsewhere than where it is computed.
    if (std::ranges::find(merged.inlined, true) != merged.inlined.end() && !places_in(merged))
      return Verdict::no("it is read at a different index than it is computed at");
    if (wastes_lanes(x, merged) || wastes_lanes_of_rows(x, merged) || wastes_lanes_of_rows(y, merged))
      return Verdict::no("rows are too short to fill vectors");
    if (merged.reduced != 0 && too_few_rows(merged)) return Verdict::no("few long rows: a split reduction is faster");
    if (!order_->are_next_to_each_other(a, b)) return Verdict::no("another step must run between them");
    commit(a, b, std::move(merged));
    return Verdict::yes();
  }

  Group unite(const Group& x, const Group& y) const {
    Group merged;
    std::size_t i = 0, j = 0;
    while (i < x.members.size() || j < y.members.size()) {
      const bool left = j == y.members.size() || (i < x.members.size() && x.members[i] < y.members[j]);
      merged.members.push_back(left ? x.members[i] : y.members[j]);
      merged.inlined.push_back(left ? x.inlined[i] : y.inlined[j]);
      ++(left ? i : j);
    }
    return merged;
  }

  bool contains(const Group& group, ValueId v, bool& inlined) const {
    const auto at = std::lower_bound(group.members.begin(), group.members.end(), v);
    if (at == group.members.end() || *at != v) return false;
    inlined = group.inlined[static_cast<std::size_t>(at - group.members.begin())];
    return true;
  }

  Verdict check(const Group& group) const {
    if (group.members.size() > kMaxMembers) return Verdict::no("the kernel would have too many ops");
    std::size_t prims = 0, accesses = 0;
    for (std::size_t i = 0; i < group.members.size(); ++i) {
      const ValueId v = group.members[i];
      prims += prims_[v];
      if (needs_store(group, v)) ++accesses;
      if (group.inlined[i]) continue;
      const GraphNode& n = g_.nodes[v];
      if (family(n.op) == Family::reduce) {
        if (!dims_.same_shape(n.operands[0].value, group.domain) || reduced_axes(n) != group.reduced)
          return Verdict::no("the reduction has a different domain");
        for (unsigned a = 0; a < g_.nodes[group.domain].shape.rank(); ++a)
          if ((group.reduced >> a & 1) != 0 && dims_.of(group.domain, a) == Dimensions::kOne &&
              group.members.size() > 1)
            return Verdict::no("it reduces an axis of size 1");
      }
      std::vector<std::int8_t> home;
      if (!home_axes(p_, dims_, group, v, home)) return Verdict::no("the shapes differ");
      for (std::size_t k = 0; k < n.operands.size(); ++k)
        if (!n.operands[k].is_scalar()) {
          const Verdict edge = check_edge(group, v, k, home, accesses);
          if (!edge.ok) return edge;
        }
    }
    if (prims > kMaxPrims) return Verdict::no("the kernel would have too many instructions");
    if (accesses > kMaxAccesses) return Verdict::no("the kernel would have too many operands");
    return Verdict::yes();
  }

  bool needs_store(const Group& group, ValueId v) const {
    if (output_[v]) return true;
    bool inlined;
    return std::any_of(users_[v].begin(), users_[v].end(),
                       [&](ValueId u) { return is_view(g_.nodes[u].op) || !contains(group, u, inlined); });
  }

  IndexMap map_of(const Group& group, ValueId v, const std::vector<std::int8_t>& home) const {
    if (family(g_.nodes[v].op) == Family::reduce) return identity_map(g_.nodes[group.domain].shape.rank());
    IndexMap map;
    for (const std::int8_t axis : home) map.axes.push_back({axis, true, true});
    return map;
  }

  Verdict check_edge(const Group& group, ValueId v, std::size_t k, const std::vector<std::int8_t>& home,
                     std::size_t& accesses) const {
    const auto map = into_operand(g_, v, map_of(group, v, home), k);
    const auto followed = map ? follow_views(g_, g_.nodes[v].operands[k].value, *map) : std::nullopt;
    if (!followed) return Verdict::no("a view cannot be folded into a load");
    bool inlined;
    const bool gathered = is_gathered(g_.nodes[v], k), joins = traits(g_.nodes[v].op).joins;
    if (!contains(group, followed->source, inlined)) {
      if (gathered && lies_across(*followed)) return Verdict::no("what it gathers does not lie in order");
      accesses += gathered ? 3 : joins ? 2 : 1;  // with what numbers of its axis go with it
      return Verdict::yes();
    }
    if (gathered) return Verdict::no("its elements are read at positions");
    if (joins && !needs_no_memory(followed->source)) return Verdict::no("a part must be in memory");
    if (inlined) return Verdict::yes();
    std::vector<std::int8_t> below;
    home_axes(p_, dims_, group, followed->source, below);
    return aligned(*followed, below) ? Verdict::yes()
                                     : Verdict::no("it is read at a different index than it is computed at");
  }

  /// Whether a value is computed from nothing in memory, so that it may be so anywhere.
  bool needs_no_memory(ValueId v) const { return g_.nodes[v].operands.empty(); }

  /// Whether neighbors along the last axis are not known to be neighbors in memory: a call reads them once, in tiles.
  bool lies_across(const Followed& f) const {
    if (f.map.axes.empty() || f.map.axes.back().axis < 0) return false;
    const AxisMap& last = f.map.axes.back();
    const GraphNode &source = g_.nodes[f.source], &shown = f.map.reshaped ? g_.nodes[f.map.reshape] : source;
    const bool is_in_order = source.op != Op::input || source.dense || (source.unit_inner && !f.map.reshaped);
    return !is_in_order || !last.unit || static_cast<unsigned>(last.axis) + 1 != shown.shape.rank();
  }

  bool aligned(const Followed& f, const std::vector<std::int8_t>& home) const {
    if (f.map.reshaped) return false;
    const auto plain = [&](std::int8_t axis) {
      return axis >= 0 && dims_.of(f.source, static_cast<unsigned>(axis)) == Dimensions::kOne ? std::int8_t{-1} : axis;
    };
    for (std::size_t d = 0; d < home.size(); ++d) {
      const AxisMap& a = f.map.axes[d];
      if (plain(a.axis) != plain(home[d])) return false;
      if (plain(a.axis) >= 0 && (!a.unit || !a.whole)) return false;
    }
    return true;
  }

  /// Whether threads would wait for the few that have a row: a row is computed by one thread where something at element
  /// level waits for a reduction of it; a plain reduction can be split.
  bool too_few_rows(const Group& group) const {
    const Shape& shape = g_.nodes[group.domain].shape;
    double rows = 1, columns = 1, length = 1, before = 0;  // columns: of a column kernel
    for (unsigned a = 0; a < shape.rank(); ++a) {
      const bool is_column = group.reduced >> a == 0;
      ((group.reduced >> a & 1) != 0 ? length : is_column ? columns : rows) *= static_cast<double>(shape[a]);
    }
    if (!waits_for_reduction(group, before)) return false;
    if (rows * columns < kFewRows && length > kLongRow) return true;
    if (!p_.capabilities.launches_on_caller) return false;
    const double threads = thread_count(), shares = std::max(rows, columns / kReducedColumnGranule);
    const double busy = std::clamp(shares, 1.0, threads);
    return before * (1 / busy - 1 / threads) > kStoredElement / busy + kFork / (rows * columns * length);
  }

  /// `before` gets the primitives at element level that depend on no reduction.
  bool waits_for_reduction(const Group& group, double& before) const {
    std::vector<bool> depends(g_.nodes.size(), false);
    bool inlined, waits = false;
    for (const ValueId v : group.members) {
      const bool reduction = family(g_.nodes[v].op) == Family::reduce;
      bool below = false;
      for (const GraphOperand& o : g_.nodes[v].operands) {
        if (o.is_scalar()) continue;
        ValueId s = o.value;
        while (is_view(g_.nodes[s].op)) s = g_.nodes[s].operands[0].value;
        below = below || (contains(group, s, inlined) && depends[s]);
      }
      depends[v] = reduction || below;
      const bool at_element_level = dims_.same_shape(v, group.domain);
      waits = waits || (below && (reduction || at_element_level));
      if (!depends[v] && at_element_level) before += static_cast<double>(prims_[v]);
    }
    return waits;
  }

  /// Whether a kernel has so short rows that its lanes lie across them.
  bool turns_rows(const Group& merged) const {
    const Shape& shape = g_.nodes[merged.domain].shape;
    const std::int64_t length = shape[shape.rank() - 1u];
    return shape.rank() > 1 && merged.reduced == 1u << (shape.rank() - 1u) && length > 1 &&
           length <= p_.capabilities.turned_rows && shape[shape.rank() - 2u] >= p_.capabilities.fewest_turned_rows;
  }

  /// Whether a producer at element level would compute much for nothing behind the ends of short rows.
  bool wastes_lanes(const Group& producer, const Group& merged) const {
    if (!p_.capabilities.rows_in_vectors || producer.reduced != 0 || merged.reduced == 0) return false;
    if (!dims_.same_shape(producer.domain, merged.domain) || turns_rows(merged)) return false;
    const Shape& shape = g_.nodes[merged.domain].shape;
    const bool row_kernel = (merged.reduced >> (shape.rank() - 1) & 1) != 0;
    double length = 1, prims = 0;
    for (unsigned a = shape.rank(); a-- > 0 && ((merged.reduced >> a & 1) != 0) == row_kernel;)
      length *= static_cast<double>(shape[a]);
    for (const ValueId v : producer.members) prims += static_cast<double>(prims_[v]);
    const double lanes = std::ceil(length / kVectorLanes) * kVectorLanes + kRowEnd;
    const double wasted = prims * (lanes / std::max(1.0, length) - 1);
    return wasted > kStoredElement && wasted * elements(g_, merged.domain) > kLaunch;
  }

  /// Whether much is computed once per short row, one row at a time, that a kernel of its own does for a vector of
  /// rows.
  bool wastes_lanes_of_rows(const Group& per_row, const Group& merged) const {
    if (!p_.capabilities.rows_in_vectors || per_row.reduced != 0 || merged.reduced == 0) return false;
    const bool row_kernel = (merged.reduced >> (g_.nodes[merged.domain].shape.rank() - 1u) & 1) != 0;
    if (!row_kernel || dims_.same_shape(per_row.domain, merged.domain) || turns_rows(merged)) return false;
    double prims = 0;
    for (const ValueId v : per_row.members) prims += static_cast<double>(prims_[v]);
    const double rows = elements(g_, per_row.domain), wasted = prims * kVectorLanes * rows;
    return wasted > kStoredElement * elements(g_, merged.domain) && wasted > kLaunch;
  }

  // ---- Inlining: computing a producer again at the index where it is read -------------------------------------------

  Verdict try_inline(std::int32_t producer, std::int32_t consumer) {
    const Group &x = p_.groups[index(producer)], &y = p_.groups[index(consumer)];
    if (x.reduced != 0) return Verdict::no("a reduction is not recomputed");
    bool inlined;
    std::size_t cost = 0;
    for (const ValueId v : x.members) {
      cost += prims_[v];
      if (traits(g_.nodes[v].op).may_fail_on_values) return Verdict::no("all its elements are checked");
      if (output_[v]) return Verdict::no("its value is also needed");
      for (const ValueId u : users_[v])
        if (!only_reaches(u, x, y)) return Verdict::not_yet("other calls read its value");
    }
    for (const ValueId v : x.members)
      for (const GraphOperand& o : g_.nodes[v].operands) {
        if (o.is_scalar()) continue;
        ValueId s = o.value;
        while (is_view(g_.nodes[s].op)) s = g_.nodes[s].operands[0].value;
        if (contains(y, s, inlined)) return Verdict::no("it reads the consumer's operand at a different index");
      }
    const double again = elements(g_, y.domain) / std::max(1.0, elements(g_, x.domain));
    if (again > 1.01 && cost > kCheapPrims) return Verdict::no("it would be recomputed several times");
    Group merged = unite(x, y);
    for (std::size_t i = 0; i < merged.members.size(); ++i) {
      if (contains(x, merged.members[i], inlined)) merged.inlined[i] = true;
    }
    merged.domain = y.domain, merged.reduced = y.reduced;
    const Verdict fits = check(merged);
    if (!fits.ok) return fits;
    const auto places = places_in(merged);
    if (!places) return Verdict::no("a view cannot be folded into its loads");
    double everywhere = 0;  // primitives of the producer at a point, at all places
    for (const ValueId v : x.members) everywhere += static_cast<double>(prims_[v] * places->of(v));
    const auto once = static_cast<double>(cost);
    if (everywhere > once && everywhere * again > once + kStoredElement)
      return Verdict::no("it would be recomputed several times");
    if (places->loaded > kMaxLoads) return Verdict::no("it would be loaded from too many places");
    if (wastes_lanes(x, merged)) return Verdict::no("rows are too short to fill vectors");
    if (!order_->are_next_to_each_other(producer, consumer)) return Verdict::no("another step must run between them");
    commit(producer, consumer, std::move(merged));
    return Verdict::yes();
  }

  /// True if everything that reads `u` (through views) is in one of the two groups.
  bool only_reaches(ValueId u, const Group& x, const Group& y) const {
    std::vector<ValueId> work{u};
    bool inlined;
    while (!work.empty()) {
      const ValueId v = work.back();
      work.pop_back();
      if (contains(x, v, inlined) || contains(y, v, inlined)) continue;
      if (!is_view(g_.nodes[v].op) || output_[v]) return false;
      work.insert(work.end(), users_[v].begin(), users_[v].end());
    }
    return true;
  }

  /// Where the values of a group are computed and its operands loaded at a point.
  struct Places {
    std::unordered_map<ValueId, std::vector<IndexMap>> maps;
    std::size_t loaded = 0;

    std::size_t of(ValueId v) const {
      const auto found = maps.find(v);
      return found == maps.end() ? 0 : found->second.size();
    }
    /// Whether the place is a new one.
    bool add(ValueId v, const IndexMap& map) {
      std::vector<IndexMap>& known = maps[v];
      if (std::ranges::find(known, map) != known.end()) return false;
      known.push_back(map);
      return true;
    }
  };

  /// Follows every read down to loads, through inlined members; nothing if one of them cannot be expressed, or is of
  /// what the kernel computes at another index.
  std::optional<Places> places_in(const Group& group) const {
    struct Visit {
      ValueId value;
      IndexMap map;
    };
    Places places;
    std::vector<Visit> work;
    for (std::size_t i = 0; i < group.members.size(); ++i) {
      if (group.inlined[i]) continue;
      std::vector<std::int8_t> home;
      home_axes(p_, dims_, group, group.members[i], home);
      work.push_back({group.members[i], map_of(group, group.members[i], home)});
    }
    for (std::size_t visits = 0; !work.empty(); ++visits) {
      if (visits > 4 * kMaxMembers) return std::nullopt;
      const Visit at = std::move(work.back());
      work.pop_back();
      const GraphNode& n = g_.nodes[at.value];
      // Positions are counted over the axes of the node itself.
      if (at.map.reshaped && (n.op == Op::iota || family(n.op) == Family::random || traits(n.op).joins))
        return std::nullopt;
      for (std::size_t k = 0; k < n.operands.size(); ++k) {
        if (n.operands[k].is_scalar()) continue;
        const auto map = into_operand(g_, at.value, at.map, k);
        const auto followed = map ? follow_views(g_, n.operands[k].value, *map) : std::nullopt;
        if (!followed) return std::nullopt;
        bool inlined;
        if (contains(group, followed->source, inlined)) {
          if (is_gathered(n, k) || (traits(n.op).joins && !needs_no_memory(followed->source))) return std::nullopt;
          if (inlined) {
            if (places.add(followed->source, followed->map)) work.push_back({followed->source, followed->map});
            continue;
          }
          std::vector<std::int8_t> below;
          home_axes(p_, dims_, group, followed->source, below);
          if (!aligned(*followed, below)) return std::nullopt;
        } else if (followed->map.reshaped && g_.nodes[followed->source].op == Op::input &&
                   !g_.nodes[followed->source].dense) {
          return std::nullopt;
        } else if (places.add(followed->source, followed->map)) {
          ++places.loaded;
        }
      }
    }
    return places;
  }

  void commit(std::int32_t a, std::int32_t b, Group merged) {
    for (const ValueId v : merged.members) p_.group_of[v] = b;
    p_.groups[index(a)].alive = false;
    p_.groups[index(a)].members.clear();
    p_.groups[index(b)] = std::move(merged);
    order_->merged(a, b);
  }

  struct Refused {
    ValueId producer, consumer;
    Verdict verdict;
  };

  Program& p_;
  const Graph& g_;
  Dimensions dims_;
  std::vector<Refused> refused_;  // in the order of consumers
  std::vector<std::vector<ValueId>> users_;
  std::optional<GroupOrder> order_;  // once there are groups
  std::vector<bool> output_;
  std::vector<std::size_t> prims_;
};

}  // namespace

bool home_axes(const Program& program, const Dimensions& dims, const Group& group, ValueId value,
               std::vector<std::int8_t>& axes) {
  const Graph& g = program.graph;
  const unsigned rank = g.nodes[group.domain].shape.rank(), own = g.nodes[value].shape.rank();
  const bool reduction = family(g.nodes[value].op) == Family::reduce;
  axes.clear();
  if (!reduction && dims.same_shape(value, group.domain)) {  // element level
    for (unsigned d = 0; d < rank; ++d) axes.push_back(static_cast<std::int8_t>(d));
    return true;
  }
  if (group.reduced == 0) return false;
  const auto reduced_axes = static_cast<unsigned>(std::popcount(static_cast<unsigned>(group.reduced)));
  const bool kept = own == rank, dropped = own + reduced_axes == rank;
  if (!kept && !dropped) return false;
  for (unsigned d = 0, a = 0; d < rank; ++d) {  // row level: reduced axes are gone, or 1
    if ((group.reduced >> d & 1) != 0) {
      if (kept && dims.of(value, a++) != Dimensions::kOne) return false;
      axes.push_back(-1);
      continue;
    }
    if (dims.of(value, a) != dims.of(group.domain, d)) return false;
    axes.push_back(static_cast<std::int8_t>(a++));
  }
  return true;
}

bool fuse(Program& program) {
  Fuser(program).run();
  return true;
}

}  // namespace fermata
