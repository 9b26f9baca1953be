// A tensor that was never given a value, as every operand of every public function: always ValueError FM1306 at the
// caller's line, never a crash. Functions of the coverage table are called through it, the others by the rows below; a
// function of the public headers that has neither fails the last test.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "fermata/fermata.h"
#include "fermata/library.h"
#include "fermata/mesh.h"
#include "frontend/coverage/coverage.h"
#include "tests/test_folder.h"

namespace fermata {
namespace {

/// What became of a call: "" for a result, else the first line of the error, and whether it names a line of `file` or,
/// of a row made from a table, of that table.
struct Outcome {
  std::string text;
  bool is_undefined = false, names_file = false;
};
template <class F> Outcome outcome(F&& call, std::string_view file) {
  try {
    call();
    return {};
  } catch (const Error& e) {
    const std::string text = e.what();
    return {text, e.code() == 1306, text.find(file) != text.npos || text.find(".def:") != text.npos};
  }
}

class UndefinedOperands : public testing::TestWithParam<coverage::Function> {};

/// Operands behind the first may be optional: then there is a result.
TEST_P(UndefinedOperands, are_refused) {
  const coverage::Function& f = GetParam();
  const std::vector<coverage::Input> inputs = coverage::parse_inputs(f.inputs);
  for (const Mode mode : {Mode::eager, Mode::compiled})
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      const ModeGuard guard(mode);
      std::vector<Tensor> given = coverage::sample_inputs(inputs, coverage::main_dtype(f));
      given[k] = Tensor();
      const Outcome o = outcome(
          [&] {
            for (const Tensor& r : f.call(given)) r.sync();
          },
          "coverage/");
      if (k > 0 && o.text.empty()) continue;
      if (k > 0 && f.name == "batch_norm") {  // takes both statistics or none
        EXPECT_EQ(o.text.substr(0, 6), "FM1377");
        continue;
      }
      EXPECT_TRUE(o.is_undefined && o.names_file) << f.name << ", input " << k << ": " << o.text;
    }
}

std::vector<coverage::Function> with_inputs() {
  std::vector<coverage::Function> all;
  for (const coverage::Function& f : coverage::functions())
    if (f.call != nullptr && !f.inputs.empty()) all.push_back(f);
  return all;
}
INSTANTIATE_TEST_SUITE_P(Rows, UndefinedOperands, testing::ValuesIn(with_inputs()),
                         [](const auto& info) { return std::string(info.param.name); });

struct Row {
  std::string_view name;
  void (*call)(const Tensor& none, const Tensor& x);
};
Row row(std::string_view name, void (*call)(const Tensor& none, const Tensor& x)) { return {name, call}; }
#define ROW(name, ...) \
  row(#name,           \
      []([[maybe_unused]] const Tensor& none, [[maybe_unused]] const Tensor& x) { static_cast<void>(__VA_ARGS__); })
#define UNARY_ROW(name) ROW(name, name(none))
const Shape kTwo{2};

const Row kFunctions[] = {
// Rows of the op table that the coverage table may not have.
#define FERMATA_UNARY(name, rule, formula, vjp, doc) ROW(name, name(none)),
#define FERMATA_BINARY(name, rule, formula, vjp_a, vjp_b, doc) ROW(name, name(none, x)), ROW(name, name(x, none)),
#define FERMATA_REDUCE(name, rule, vjp, doc) ROW(name, name(none)),
#define FERMATA_SCAN(name, monoid, rule, doc) ROW(name, name(none)),
#include "ir/ops.def"
    // activations.h, composites.h, layers.h, normalization.h
    ROW(nextafter, nextafter(none, x)),
    ROW(nextafter, nextafter(x, none)),
    ROW(gelu, gelu(none, "tanh")),
    ROW(softplus, softplus(none, 2)),
    ROW(prelu, prelu(none, x)),
    ROW(gumbel_softmax, gumbel_softmax(none)),
    ROW(alpha_dropout, alpha_dropout(none)),
    ROW(feature_dropout, feature_dropout(none)),
    ROW(alibi, alibi(none)),
    // linalg.h, solvers.h, statistics.h
    ROW(lu_factor, linalg::lu_factor(none)),
    ROW(ldl, linalg::ldl(none)),
    ROW(ldl_solve, linalg::ldl_solve({none, x, x}, x)),
    ROW(ldl_solve, linalg::ldl_solve({ones({1, 1}), ones({1, 1}), zeros({1}, DType::i64)}, none)),
    // low_precision.h
    ROW(saturating_cast, saturating_cast(none, DType::i8)),
    ROW(straight_through, straight_through(none, DType::f8e4m3fn)),
    ROW(scaled_matmul, scaled_matmul(none, x, 1.0, 1.0)),
    ROW(scaled_matmul, scaled_matmul(x, none, 1.0, 1.0)),
    ROW(quantize_blocks, quantize_blocks(none, DType::i8, {0})),
    ROW(pack_elements, pack_elements(none)),
    ROW(unpack_elements, unpack_elements(none, DType::i4, 2)),
    ROW(interp, interp(none, x[0], x[0])),
    ROW(interp, interp(x, none, x[0])),
    ROW(solve_tridiagonal, solve_tridiagonal(x, none, x, x)),
    ROW(nanmedian, nanmedian(none)),
    ROW(segment_mean, segment_mean(none, x[0], 2)),
    ROW(segment_prod, segment_prod(none, x[0], 2)),
    ROW(segment_max, segment_max(none, x[0], 2)),
    ROW(segment_min, segment_min(none, x[0], 2)),
    // autocast.h, autograd.h, checkpoint.h, derivatives.h, vmap.h, control_flow.h
    ROW(cached_cast, cached_cast(none, DType::f16)),
    ROW(gradients, gradients(none, {x})),
    ROW(gradients, gradients(sum(x), {none})),
    ROW(grad, grad([](const Tensor& t) { return sum(t * t); })(none)),
    ROW(value_and_grad, value_and_grad([](const Tensor& t) { return sum(t * t); })(none)),
    ROW(hvp, hvp([](const Tensor& t) { return sum(t * t); }, none, x)),
    ROW(jvp, jvp([](const Tensor& t) { return t * t; }, none, x)),
    ROW(pullback, pullback([](const Tensor& t) { return t * t; }, none)),
    ROW(linearize, linearize([](const Tensor& t) { return t * t; }, none)),
    ROW(checkpoint, checkpoint([](const Tensor& t) { return t * t; })(none)),
    ROW(vmap, vmap([](const Tensor& t) { return t * t; })(none)),
    ROW(cond, cond(
                  none, [](const Tensor& t) { return t; }, [](const Tensor& t) { return t + 1; }, x)),
    ROW(compile, compile([](const Tensor& t) { return t * 2; })(none)),
    ROW(compile, compile([](const Tensor&) { return Tensor(); })(x)),
    ROW(grad, grad([](const Tensor&) { return Tensor(); })(x)),
    // compare.h, complex.h, creation.h
    ROW(isclose, isclose(none, x)),
    ROW(isclose, isclose(x, none)),
    ROW(allclose, allclose(x, none)),
    ROW(array_equal, array_equal(none, x)),
    ROW(array_equal, array_equal(x, none)),
    ROW(complex, complex(none, x)),
    ROW(complex, complex(x, none)),
    ROW(is_complex, is_complex(none)),
    ROW(empty_like, empty_like(none)),
    // device.h, dlpack.h, dtypes.h, inspect.h, io.h, print.h, sync.h
    ROW(device, device(none)),
    ROW(to, to(none, cpu())),
    ROW(to_dlpack, to_dlpack(none)),
    ROW(result_type, result_type(none, x)),
    ROW(dump_ir, dump_ir(none)),
    ROW(explain, explain(none)),
    ROW(save_npy, save_npy("none.npy", none)),
    ROW(save_csv, save_csv("none.csv", none)),
    ROW(sync, sync({x, none})),
    ROW(flush, flush({x, none})),
    // names.h
    ROW(cat, cat({x, none})),
    ROW(concatenate, concatenate({x, none})),
    ROW(vstack, vstack({none, x})),
    ROW(hstack, hstack({none, x})),
    ROW(sub, sub(none, x)),
    ROW(mul, mul(none, x)),
    ROW(div, div(none, x)),
    ROW(true_divide, true_divide(none, x)),
    ROW(power, power(none, x)),
    ROW(mod, mod(none, x)),
    UNARY_ROW(neg),
    UNARY_ROW(absolute),
    ROW(clamp, clamp(none, 0, 1)),
    UNARY_ROW(arcsin),
    UNARY_ROW(arccos),
    UNARY_ROW(arctan),
    ROW(arctan2, arctan2(none, x)),
    UNARY_ROW(arcsinh),
    UNARY_ROW(arccosh),
    UNARY_ROW(arctanh),
    UNARY_ROW(nan_to_num),
    ROW(eq, eq(none, x)),
    ROW(ne, ne(none, x)),
    ROW(lt, lt(none, x)),
    ROW(le, le(none, x)),
    ROW(gt, gt(none, x)),
    ROW(ge, ge(none, x)),
    UNARY_ROW(amax),
    UNARY_ROW(amin),
    UNARY_ROW(norm),
    UNARY_ROW(cumsum),
    UNARY_ROW(cumprod),
    UNARY_ROW(unique),
    ROW(mm, mm(none, x)),
    ROW(bmm, bmm(x, none)),
    ROW(inner, inner(none, x)),
    UNARY_ROW(diag),
    ROW(unsqueeze, unsqueeze(none, 0)),
    UNARY_ROW(ravel),
    UNARY_ROW(unbind),
    ROW(chunk, chunk(none, 2)),
    ROW(index_select, index_select(none, 0, x)),
    ROW(masked_fill, masked_fill(none, x, 0)),
    UNARY_ROW(rand_like),
    UNARY_ROW(randn_like),
    // quantized.h, sparse.h
    ROW(quantize, quantize(none, 0.5)),
    ROW(quantize, quantize(x, none)),
    UNARY_ROW(fit_quantization),
    UNARY_ROW(dequantize),
    ROW(quantized, quantized(none, 0.5)),
    UNARY_ROW(int_repr),
    UNARY_ROW(quantization_of),
    UNARY_ROW(quantize_weight),
    UNARY_ROW(has_quantized_weights),
    ROW(quantized_matmul, quantized_matmul(none, x, 0.5)),
    ROW(quantized_linear, quantized_linear(none, x, {}, 0.5)),
    ROW(quantized_add, quantized_add(none, x, 0.5)),
    ROW(sparse_coo, sparse_coo(none, x, {2, 2})),
    ROW(sparse_coo, sparse_coo(x, none, {2, 2})),
    ROW(sparse_csr, sparse_csr(none, x, x, {2, 2})),
    ROW(sparse_csr, sparse_csr(x, none, x, {2, 2})),
    ROW(sparse_csr, sparse_csr(x, x, none, {2, 2})),
    UNARY_ROW(to_sparse_coo),
    UNARY_ROW(to_sparse_csr),
    UNARY_ROW(to_dense),
    UNARY_ROW(is_coalesced),
    UNARY_ROW(coalesce),
    UNARY_ROW(stored_count),
    UNARY_ROW(stored_indices),
    UNARY_ROW(stored_values),
    UNARY_ROW(stored_row_offsets),
    UNARY_ROW(stored_columns),
    // random.h, random_key.h
    ROW(bernoulli, bernoulli(none)),
    ROW(categorical, categorical(none)),
    ROW(shuffle, shuffle(none)),
    ROW(choice, choice(none, 2)),
    UNARY_ROW(split_key),
    ROW(fold_in, fold_in(none, 1)),
    ROW(fold_in, fold_in(random_key(1), none)),
    ROW(random_bits, random_bits(none, kTwo)),
    ROW(uniform, uniform(none, kTwo)),
    ROW(normal, normal(none, kTwo)),
    ROW(truncated_normal, truncated_normal(none, -1, 1, kTwo)),
    ROW(randint, randint(none, 0, 4, kTwo)),
    ROW(bernoulli, bernoulli(none, x)),
    ROW(bernoulli, bernoulli(random_key(1), none)),
    ROW(exponential, exponential(none, kTwo)),
    ROW(gumbel, gumbel(none, kTwo)),
    ROW(categorical, categorical(none, x)),
    ROW(categorical, categorical(random_key(1), none)),
    ROW(permutation, permutation(none, 4)),
    ROW(shuffle, shuffle(none, x)),
    ROW(shuffle, shuffle(random_key(1), none)),
    ROW(choice, choice(none, x, 2)),
    ROW(choice, choice(random_key(1), none, 2)),
    // convolution.h, manipulation.h, normalization.h, ordering.h, pooling.h
    ROW(conv_transpose3d, conv_transpose3d(none, x)),
    ROW(conv_transpose3d, conv_transpose3d(ones({1, 1, 2, 2, 2}), none)),
    UNARY_ROW(atleast_1d),
    UNARY_ROW(atleast_2d),
    ROW(layer_norm, layer_norm(none, NormalizedShape({2}))),
    ROW(rms_norm, rms_norm(none, NormalizedShape({2}))),
    UNARY_ROW(flatnonzero),
    ROW(max_pool3d, max_pool3d(none, 2)),
    ROW(max_pool1d_with_indices, max_pool1d_with_indices(none, 2)),
    ROW(max_pool2d_with_indices, max_pool2d_with_indices(none, 2)),
    ROW(max_pool3d_with_indices, max_pool3d_with_indices(none, 2)),
    ROW(adaptive_max_pool1d_with_indices, adaptive_max_pool1d_with_indices(none, 2)),
    ROW(adaptive_max_pool2d_with_indices, adaptive_max_pool2d_with_indices(none, 2)),
    ROW(adaptive_max_pool3d_with_indices, adaptive_max_pool3d_with_indices(none, 2)),
    ROW(non_max_suppression, non_max_suppression(none, x)),
    ROW(non_max_suppression, non_max_suppression(x, none)),
    ROW(avg_pool3d, avg_pool3d(none, 2)),
    ROW(adaptive_avg_pool, adaptive_avg_pool(none, 2)),
    ROW(adaptive_max_pool, adaptive_max_pool(none, 2)),
    ROW(adaptive_avg_pool1d, adaptive_avg_pool1d(none, 2)),
    ROW(adaptive_max_pool1d, adaptive_max_pool1d(none, 2)),
    // subscript.h
    ROW(index, index(none, {0})),
    ROW(index, index(x, {none})),
    ROW(index_put, index_put(none, {0}, 1)),
    ROW(index_put, index_put(x, {0}, none)),
    ROW(index_put, index_put(x, {none}, 1)),
    // optimizers.h
    ROW(SGD, optim::SGD(std::vector<Tensor>{none})),
    ROW(Adam, optim::Adam(std::vector<Tensor>{none})),
    ROW(AdamW, optim::AdamW(std::vector<Tensor>{none})),
    // library.h
    ROW(Elements, Elements(none)),
    ROW(elements_to_fill, elements_to_fill<float>(none)),
    ROW(all_reduce, distributed::all_reduce(none)),
    ROW(all_reduce, distributed::all_reduce(std::vector{x, none})),
    ROW(reduce, distributed::reduce(none)),
    ROW(all_gather, distributed::all_gather(none)),
    ROW(reduce_scatter, distributed::reduce_scatter(none)),
    ROW(all_to_all, distributed::all_to_all(none, 0, 1)),
    ROW(broadcast, distributed::broadcast(none)),
    ROW(scatter, distributed::scatter(none)),
    ROW(gather, distributed::gather(none)),
    ROW(permute, distributed::permute(none, {})),
    ROW(shift, distributed::shift(none)),
    ROW(send, distributed::send(none, 0)),
    // mesh.h
    ROW(shard, shard(none, Mesh({{"all", 1}}), {"all"})),
    ROW(shard_, shard_(Tensor(none), Mesh({{"all", 1}}), {"all"})),
    ROW(from_blocks, from_blocks(none, Mesh({{"all", 1}}), {"all"})),
    ROW(own_block, own_block(none)),
    ROW(unshard, unshard(none)),
    ROW(is_sharded, is_sharded(none)),
    ROW(sharding_of, sharding_of(none)),
};

const Row kMembers[] = {
#define FERMATA_UNARY(name, rule, formula, vjp, doc) ROW(name, none.name()),
#define FERMATA_BINARY(name, rule, formula, vjp_a, vjp_b, doc) ROW(name, none.name(x)), ROW(name, x.name(none)),
#define FERMATA_REDUCE(name, rule, vjp, doc) ROW(name, none.name()),
#define FERMATA_SCAN(name, monoid, rule, doc) ROW(name, none.name()),
#include "ir/ops.def"
    ROW(dtype, none.dtype()),
    ROW(shape, none.shape()),
    ROW(sizes, none.sizes()),
    ROW(rank, none.rank()),
    ROW(dim, none.dim()),
    ROW(ndim, none.ndim()),
    ROW(size, none.size(0)),
    ROW(element_count, none.element_count()),
    ROW(numel, none.numel()),
    ROW(device, none.device()),
    ROW(sync, none.sync()),
    ROW(item, none.item<float>()),
    ROW(to_vector, none.to_vector<float>()),
    ROW(data, none.data<float>()),
    ROW(index, none.index({0})),
    ROW(slice, none.slice(0)),
    ROW(select, none.select(0, 0)),
    ROW(reshape, none.reshape(-1)),
    ROW(view, none.view(-1)),
    ROW(flatten, none.flatten()),
    ROW(ravel, none.ravel()),
    ROW(permute, none.permute({0})),
    ROW(transpose, none.transpose()),
    ROW(swapaxes, none.swapaxes(0, 1)),
    ROW(moveaxis, none.moveaxis(0, 1)),
    ROW(T, none.T()),
    ROW(t, none.t()),
    ROW(mT, none.mT()),
    ROW(squeeze, none.squeeze()),
    ROW(expand_dims, none.expand_dims(0)),
    ROW(unsqueeze, none.unsqueeze(0)),
    ROW(broadcast_to, none.broadcast_to({2})),
    ROW(expand, none.expand({2})),
    ROW(flip, none.flip()),
    ROW(diagonal, none.diagonal()),
    ROW(split, none.split(2)),
    ROW(chunk, none.chunk(2)),
    ROW(unbind, none.unbind()),
    ROW(astype, none.astype(DType::f64)),
    ROW(to, none.to(DType::f64)),
    ROW(to, none.to(cpu())),
    ROW(cpu, none.cpu()),
    ROW(cuda, none.cuda()),
    ROW(copy, none.copy()),
    ROW(clone, none.clone()),
    ROW(contiguous, none.contiguous()),
    ROW(clip, none.clip(0, 1)),
    ROW(clamp, none.clamp(0, 1)),
    ROW(where, none.where(x, 1)),
    ROW(masked_fill, none.masked_fill(x, 1)),
    ROW(isclose, none.isclose(x)),
    ROW(allclose, none.allclose(x)),
    ROW(sub, none.sub(1)),
    ROW(mul, none.mul(1)),
    ROW(div, none.div(1)),
    ROW(neg, none.neg()),
    ROW(eq, none.eq(1)),
    ROW(ne, none.ne(1)),
    ROW(lt, none.lt(1)),
    ROW(le, none.le(1)),
    ROW(gt, none.gt(1)),
    ROW(ge, none.ge(1)),
    ROW(mean, none.mean()),
    ROW(var, none.var()),
    ROW(std, none.std()),
    ROW(stddev, none.stddev()),
    ROW(logsumexp, none.logsumexp()),
    ROW(norm, none.norm()),
    ROW(median, none.median()),
    ROW(softmax, none.softmax()),
    ROW(log_softmax, none.log_softmax()),
    ROW(cumsum, none.cumsum()),
    ROW(cumprod, none.cumprod()),
    ROW(sort, none.sort()),
    ROW(argsort, none.argsort()),
    ROW(topk, none.topk(1)),
    ROW(bincount, none.bincount()),
    ROW(nonzero, none.nonzero()),
    ROW(unique, none.unique()),
    ROW(matmul, none.matmul(x)),
    ROW(mm, none.mm(x)),
    ROW(dot, none.dot(x)),
    ROW(trace, none.trace()),
    ROW(tril, none.tril()),
    ROW(triu, none.triu()),
    ROW(take, none.take(x)),
    ROW(gather, none.gather(x)),
    ROW(index_select, none.index_select(0, x)),
    ROW(masked_select, none.masked_select(x)),
    ROW(roll, none.roll(1)),
    ROW(repeat, none.repeat(2)),
    ROW(tile, none.tile({2})),
    ROW(assign, none.assign(1)),
    ROW(assign, x.assign(none)),
    ROW(copy_, x.copy_(none)),
    ROW(fill_, none.fill_(1)),
    ROW(zero_, none.zero_()),
    ROW(add_, Tensor(none).add_(1)),
    ROW(sub_, Tensor(none).sub_(1)),
    ROW(mul_, Tensor(none).mul_(1)),
    ROW(div_, Tensor(none).div_(1)),
    ROW(requires_grad, none.requires_grad()),
    ROW(requires_grad, Tensor(none).requires_grad(true)),
    ROW(requires_grad_, Tensor(none).requires_grad_()),
    ROW(grad, none.grad()),
    ROW(zero_grad, none.zero_grad()),
    ROW(backward, none.backward()),
    ROW(backward, none.backward(x)),
    ROW(detach, none.detach()),
};

// Without a place in the error: there is no argument that could have it.
const Row kWithoutPlace[] = {
    ROW(pending, none.pending()),
    ROW(version, none.version()),
    ROW(node, none.node()),
    ROW(keys, none.keys()),
    ROW(trace, trace([](const Tensor& t) { return t * 2; }, none)),
};

void expect_refused(std::span<const Row> rows, bool with_place) {
  for (const Mode mode : {Mode::eager, Mode::compiled})
    for (const Row& row : rows) {
      const ModeGuard guard(mode);
      const Tensor x = ones({2, 2}, DType::f32);
      const Outcome o = outcome([&] { row.call(Tensor(), x); }, "undefined_test.cpp");
      EXPECT_TRUE(o.is_undefined && (o.names_file || !with_place)) << row.name << ": " << o.text;
    }
}

TEST(Undefined, functions_refuse) { expect_refused(kFunctions, true); }
TEST(Undefined, members_refuse) { expect_refused(kMembers, true); }
TEST(Undefined, parts_of_the_handle_refuse) { expect_refused(kWithoutPlace, false); }
TEST(Undefined, has_no_text_and_is_not_sparse) {
  EXPECT_FALSE(is_sparse(Tensor()));
  EXPECT_EQ(to_string(Tensor()), "tensor(undefined)");
}

/// Every function of the public headers that takes a tensor is called above.
TEST(Undefined, no_function_is_left_out) {
  // They take a list of whatever there is, or a place for one: with their own tests.
  std::set<std::string, std::less<>> called{"to_string",  "is_sparse", "stack",          "broadcast_arrays",
                                            "meshgrid",   "einsum",    "concat",         "sync",
                                            "while_loop", "scan",      "clip_grad_norm", "clip_grad_value"};
  for (const coverage::Function& f : coverage::functions())
    called.emplace(f.name.substr(f.name.starts_with("linalg_") ? 7 : f.name.starts_with("fft_") ? 4 : 0));
  for (const std::span<const Row> rows : {std::span<const Row>(kFunctions), std::span<const Row>(kMembers)})
    for (const Row& row : rows) called.emplace(row.name);
  const std::regex declaration(R"(^(?:\w[\w:<> ]*[&*]? )(\w+)\((?:const (?:Tensor|Operand)& \w+))");
  const std::filesystem::path headers = std::filesystem::path(fermata::test_folder()) / "../frontend/include/fermata";
  std::size_t found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(headers)) {
    std::ifstream file(entry.path());
    bool hidden = false;  // what is in namespace detail
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("namespace detail {")) hidden = true;
      if (line.starts_with("}  // namespace detail")) hidden = false;
      std::smatch match;
      if (hidden || !std::regex_search(line, match, declaration)) continue;
      ++found;
      EXPECT_TRUE(called.contains(match[1].str())) << entry.path().filename() << ": " << line;
    }
  }
  EXPECT_GT(found, 200u);
}

}  // namespace
}  // namespace fermata
