// Bessel functions of real arguments and orders 0 and 1: J, and the modified I with and without e^-|x|.
//
// Polynomials are interpolations at Chebyshev points computed for this file with 40 digits (coefficients rounded one
// after another); errors in the comments are relative, of the polynomial alone.
#pragma once

#include "ir/scalar_math/exponential.h"
#include "ir/scalar_math/gamma_functions.h"
#include "ir/scalar_math/trigonometric.h"

namespace fermata::math {

template <class T> struct BesselConstants;
template <> struct BesselConstants<float> {
  // I0 and 2 I1 / x in t = x^2 / 4 for x <= 8: 2^-31, 2^-30.
  static constexpr std::array kI0Near = {1.2115991e-15f,
                                         4.88715513e-14f,
                                         8.27921932e-12f,
                                         6.04336137e-10f,
                                         3.94785715e-08f,
                                         1.92825496e-06f,
                                         6.94478367e-05f,
                                         0.00173610146f,
                                         0.0277777929f,
                                         0.249999985f,
                                         1.0f,
                                         1.0f};
  static constexpr std::array kI1Near = {1.33355851e-14f,
                                         4.89614751e-13f,
                                         7.44242099e-11f,
                                         4.83761031e-09f,
                                         2.76299971e-07f,
                                         1.15700277e-05f,
                                         0.0003472362f,
                                         0.00694441609f,
                                         0.0833333656f,
                                         0.5f,
                                         1.0f};
  // I e^-x sqrt(x) in 16 / x - 1 for x >= 8: 2^-29.
  static constexpr std::array kI0Far = {1.08298984e-07f, 3.6317104e-07f, 1.47679214e-06f, 1.11115251e-05f,
                                        0.00013621684f,  0.00336055574f, 0.402176499f};
  static constexpr std::array kI1Far = {-1.22124987e-07f, -4.21555427e-07f, -1.82671454e-06f, -1.50033229e-05f,
                                        -0.000219236666f, -0.00974958111f,  0.389398456f};
  // J0, and J1 / x, over the product of x^2 - root^2 of two roots, in x^2 - 32 for x <= 8.
  static constexpr std::array kJ0Near = {-8.00063235e-23f, 3.67405711e-20f, -1.36117219e-17f, 4.06668946e-15f,
                                         -9.4096161e-13f,  1.61907321e-10f, -1.95782182e-08f, 1.52699522e-06f,
                                         -6.62435705e-05f, 0.00114349381f};
  static constexpr std::array kJ1Near = {-3.34494537e-24f, 1.67584651e-21f, -6.84559682e-19f, 2.27464769e-16f,
                                         -5.92796144e-14f, 1.16750516e-11f, -1.6503916e-09f,  1.54882983e-07f,
                                         -8.42975896e-06f, 0.000194989363f};
  // J = sqrt(2 / (pi x)) (P cos c - Q sin c / x), c = x - pi / 4 or x - 3 pi / 4, P and Q in 1 / x^2 for x >= 8: 2^-29,
  // 2^-24.
  static constexpr std::array kJ0P = {-0.43308121f, 0.110917829f, -0.0703087896f, 1.0f};
  static constexpr std::array kJ0Q = {1.20327914f, -0.222567648f, 0.0732286572f, -0.124999993f};
  static constexpr std::array kJ1P = {0.51747787f, -0.142783538f, 0.117183253f, 1.0f};
  static constexpr std::array kJ1Q = {-1.40344214f, 0.272455573f, -0.102523781f, 0.375f};
  static constexpr float kRoots0[2][2] = {{2.40482545f, 1.08705905e-07f}, {5.52007818f, -7.19341483e-08f}};
  static constexpr float kRoots1[2][2] = {{3.83170605f, -7.68505932e-08f}, {7.01558685f, -1.83211725e-07f}};
  static constexpr float kGrowthMax = 95.0f;  // infinity above
};
template <> struct BesselConstants<double> {
  // 2^-61, 2^-59.
  static constexpr std::array kI0Near = {3.6454386812677436e-27,
                                         4.940670282542572e-25,
                                         1.35095827969477e-22,
                                         2.5698743857514957e-20,
                                         4.3600362269175774e-18,
                                         6.275862820937522e-16,
                                         7.594079950279469e-14,
                                         7.594056846699174e-12,
                                         6.151187413177668e-10,
                                         3.936759885673581e-08,
                                         1.9290123457790406e-06,
                                         6.944444444424399e-05,
                                         0.0017361111111113758,
                                         0.027777777777777565,
                                         0.2500000000000001,
                                         1.0,
                                         1.0};
  static constexpr std::array kI1Near = {
      5.833651333188183e-26, 7.413211040554544e-24,  1.891028804078631e-21, 3.3410044697092935e-19,
      5.231992159979275e-17, 6.90345927367201e-15,   7.594078567160322e-13, 6.834651294492253e-11,
      4.920949921538654e-09, 2.7557319204030443e-07, 1.157407407453132e-05, 0.00034722222222153507,
      0.0069444444444450686, 0.08333333333333304,    0.5000000000000001,    1.0};
  // 2^-57.
  static constexpr std::array kI0Far = {
      -7.06893851181878e-11,   -1.9216763724933513e-11, 5.181936971288284e-10,  1.4672236659214398e-10,
      -1.7789375042917173e-09, -5.562201990080394e-10,  3.881151253996067e-09,  1.497880830187091e-09,
      -6.188265090497361e-09,  -3.4857887470034955e-09, 7.58022133915272e-09,   7.540601378890834e-09,
      -5.4685974495866e-09,    -1.3404241991980871e-08, -6.729724111923548e-09, 7.553516470355896e-09,
      2.1545177650836005e-08,  3.932602459703109e-08,   8.87225351128584e-08,   2.973598432479169e-07,
      1.4838475473607391e-06,  1.1143033791556743e-05,  0.00013621607439232746, 0.003360551983667854,
      0.4021765094450081};
  static constexpr std::array kI1Far = {
      -1.9677083272584384e-11, 6.135932778393812e-11,   1.417650842869536e-10,   -4.6561597954216946e-10,
      -4.798751536934023e-10,  1.657764699456319e-09,   1.0715528639398075e-09,  -3.75344338735913e-09,
      -1.992076551203188e-09,  6.202984113000443e-09,   3.803814960536081e-09,   -7.863004697555056e-09,
      -7.816968266767898e-09,  5.963645798166707e-09,   1.408852075202545e-08,   6.737493433374833e-09,
      -8.43880090582137e-09,   -2.337446787242448e-08,  -4.312778920167609e-08,  -1.0001282610189342e-07,
      -3.4838567401229716e-07, -1.8349101357991557e-06, -1.5038547197358572e-05, -0.00021923576383382282,
      -0.009749577193235768,   0.38939845902587233};
  static constexpr std::array kJ0Near = {
      -3.0066685776766236e-40, 3.3939718431552865e-37, -3.3719693893533353e-34, 2.9423771526888492e-31,
      -2.22697873908176e-28,   1.445642671509478e-25,  -7.94347817823466e-23,   3.6369231979483445e-20,
      -1.3612234096218637e-17, 4.067022655755918e-15,  -9.409614027211442e-13,  1.6190720285413593e-10,
      -1.9578218525409324e-08, 1.5269952779230138e-06, -6.624357154624037e-05,  0.0011434937743762545};
  static constexpr std::array kJ1Near = {1.0003099489260801e-38, -1.0599222186906092e-35, 9.838598710893146e-33,
                                         -7.981201446650425e-30, 5.581964951451497e-27,   -3.324468173610557e-24,
                                         1.6615147338037168e-21, -6.845780457887608e-19,  2.2747761204391907e-16,
                                         -5.927960622055104e-14, 1.1675046589866266e-11,  -1.6503916134904498e-09,
                                         1.5488297655634642e-07, -8.42975858348865e-06,   0.00019498936985895625};
  // 2^-57, 2^-56.
  static constexpr std::array kJ0P = {624282679333.6104,
                                      -74001450525.13843,
                                      4138261097.5343075,
                                      -149745039.18374547,
                                      4178650.6200810215,
                                      -106369.46004116545,
                                      2981.954365484816,
                                      -109.83815572443793,
                                      6.073662203243812,
                                      -0.5725009290351473,
                                      0.11215209927188538,
                                      -0.07031249999990756,
                                      1.0};
  static constexpr std::array kJ0Q = {
      -1.2251742023288252e+16, 1591649807950406.5, -96273557246748.58,   3644430160017.9746,  -98948700577.2007,
      2134233585.651123,       -40820618.45627625, 792930.5619702797,    -18127.90255055954,  551.0337964633763,
      -24.380057195193327,     1.727727047645654,  -0.22710800147555416, 0.07324218749995201, -0.125};
  static constexpr std::array kJ1P = {-662944440537.667,
                                      78640462154.19698,
                                      -4402701952.221096,
                                      159622977.06493694,
                                      -4469688.289671981,
                                      114482.25143410322,
                                      -3242.987400166411,
                                      121.40877978679497,
                                      -6.883512855196256,
                                      0.6765920683808826,
                                      -0.14419555628380828,
                                      0.11718749999990227,
                                      1.0};
  static constexpr std::array kJ1Q = {-255217140364263.38,  31512635702038.04,
                                      -1815777644573.3303,  66028999124.92343,
                                      -1757771600.8744948,  38794965.89279046,
                                      -818596.0740798949,   19447.616568809382,
                                      -603.1144869439781,   27.247509834336093,
                                      -1.9935302734137457,  0.27757644567237666,
                                      -0.10253906249979691, 0.375};
  static constexpr double kRoots0[2][2] = {{2.404825557695773, -1.176691651530894e-16},
                                           {5.520078110286311, 8.088597146146722e-17}};
  static constexpr double kRoots1[2][2] = {{3.8317059702075125, -1.5269184090088067e-16},
                                           {7.015586669815619, -9.414165653410389e-17}};
  static constexpr double kGrowthMax = 720.0;
};
template <class V> using BesselOf = BesselConstants<ElementOfValue<V>>;

/// I0(a) e^-a and I1(a) e^-a for a >= 0.
template <int kOrder, class V> V scaled_bessel_i(V a) {
  using C = BesselOf<V>;
  const V eight = constant<V>(8), half = min(eight, a) * constant<V>(0.5), t = half * half;
  const V v = fma(constant<V>(16), constant<V>(1) / max(eight, a), constant<V>(-1));
  const V decay = exp(-min(eight, a)), root = sqrt(a);
  if constexpr (kOrder == 0)
    return select(a <= eight, polynomial(t, C::kI0Near) * decay, polynomial(v, C::kI0Far) / root);
  else
    return select(a <= eight, polynomial(t, C::kI1Near) * half * decay, polynomial(v, C::kI1Far) / root);
}
/// The same without e^-a: the power of two comes last, since e^a may overflow where the result does not.
template <int kOrder, class V> V bessel_i_of_magnitude(V a) {
  using C = BesselOf<V>;
  const V eight = constant<V>(8), half = min(eight, a) * constant<V>(0.5), t = half * half;
  const V bounded = min(V(C::kGrowthMax), max(eight, a));
  const V v = fma(constant<V>(16), constant<V>(1) / bounded, constant<V>(-1));
  const SplitExponential<V> e = split_exp(bounded);
  const V weight = e.value / sqrt(bounded);
  if constexpr (kOrder == 0)
    return select(a <= eight, polynomial(t, C::kI0Near),
                  times_power_of_two(polynomial(v, C::kI0Far) * weight, e.shifted));
  else
    return select(a <= eight, polynomial(t, C::kI1Near) * half,
                  times_power_of_two(polynomial(v, C::kI1Far) * weight, e.shifted));
}

template <class V> V i0e(V x) { return select(x == x, scaled_bessel_i<0>(abs(x)), x); }
template <class V> V i1e(V x) { return select(x == x, with_sign_of(scaled_bessel_i<1>(abs(x)), x), x); }
template <class V> V i0(V x) { return select(x == x, bessel_i_of_magnitude<0>(abs(x)), x); }
template <class V> V i1(V x) { return select(x == x, with_sign_of(bessel_i_of_magnitude<1>(abs(x)), x), x); }

/// (x - root)(x + root), where roots are pairs.
template <class V> V distance_of_squares(V x, const ElementOfValue<V> (&root)[2]) {
  return ((x - V(root[0])) - V(root[1])) * (x + V(root[0]));
}

template <class V> V j0(V x) {
  using C = BesselOf<V>;
  const V a = abs(x), eight = constant<V>(8), low = min(eight, a);
  const V near = distance_of_squares(low, C::kRoots0[0]) * distance_of_squares(low, C::kRoots0[1]) *
                 polynomial(fma(low, low, constant<V>(-32)), C::kJ0Near);
  const V inverse = constant<V>(1) / max(eight, a), w = inverse * inverse;
  const V p = polynomial(w, C::kJ0P), q = polynomial(w, C::kJ0Q) * inverse;
  const SineAndCosine<V> of = of_angle(reduce_angle(a));
  const V far = fma(of.cosine, p + q, of.sine * (p - q)) * sqrt(inverse * constant<V>(0.31830988618379067));
  return select(a <= eight, near, select(a == infinity<V>(), constant<V>(0), far));
}

template <class V> V j1(V x) {
  using C = BesselOf<V>;
  const V a = abs(x), eight = constant<V>(8), low = min(eight, a);
  const V near = low * distance_of_squares(low, C::kRoots1[0]) * distance_of_squares(low, C::kRoots1[1]) *
                 polynomial(fma(low, low, constant<V>(-32)), C::kJ1Near);
  const V inverse = constant<V>(1) / max(eight, a), w = inverse * inverse;
  const V p = polynomial(w, C::kJ1P), q = polynomial(w, C::kJ1Q) * inverse;
  const SineAndCosine<V> of = of_angle(reduce_angle(a));
  const V far = fma(of.sine, p + q, of.cosine * (q - p)) * sqrt(inverse * constant<V>(0.31830988618379067));
  const V value = select(a <= eight, near, select(a == infinity<V>(), constant<V>(0), far));
  return from_bits<V>(bits_of(value) ^ sign_bit_of(x));
}

}  // namespace fermata::math
