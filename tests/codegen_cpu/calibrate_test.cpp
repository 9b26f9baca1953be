// Rates of products as this machine gives them: what is kept and read back, what is refused, and that costs follow.
#include "codegen_cpu/library/calibrate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "dispatch/calibration.h"

namespace fermata {
namespace {

TEST(Calibrate, TextGivesTheFiguresBack) {
  ProductRates rates = shipped_product_rates();
  rates.onednn_far = 1.0 / 3, rates.onednn_packing = 0;
  const auto read = product_rates_of_text(to_text(rates));
  ASSERT_TRUE(read);
  for (const ProductRateField& f : kProductRateFields) EXPECT_EQ((*read).*f.field, rates.*f.field) << f.name;
}

TEST(Calibrate, OtherTextIsRefused) {
  const std::string text = to_text(shipped_product_rates());
  EXPECT_FALSE(product_rates_of_text(""));
  EXPECT_FALSE(product_rates_of_text(text + "x"));
  EXPECT_FALSE(product_rates_of_text(text.substr(0, text.size() - 3)));
  for (const char* const figure : {"nan", "inf", "-3", "0", "1e9", "", "3 "}) {
    std::string other = text;
    const std::size_t at = other.find(' ') + 1;
    other.replace(at, other.find('\n') - at, figure);
    EXPECT_FALSE(product_rates_of_text(other)) << other;
  }
}

TEST(Calibrate, MeasuredFiguresAreThoseOfAProcessor) {
  const ProductRates rates = measure_product_rates(), shipped = shipped_product_rates();
  for (const ProductRateField& f : kProductRateFields) {
    const double figure = rates.*f.field, first = shipped.*f.field;
    EXPECT_TRUE(std::isfinite(figure) && figure >= first / 8 && figure <= first * 8) << f.name << " " << figure;
  }
  EXPECT_TRUE(product_rates_of_text(to_text(rates)));
}

TEST(Calibrate, OnlyItsThreadSeesATrial) {
  ProductRates other = shipped_product_rates();
  other.libxsmm *= 3;
  const double before = product_rates().libxsmm;
  {
    const TrialRates trial(other);
    EXPECT_EQ(product_rates().libxsmm, other.libxsmm);
  }
  EXPECT_EQ(product_rates().libxsmm, before);
  EXPECT_EQ(calibration(false).figures.size(), kProductRateFields.size());
}

}  // namespace
}  // namespace fermata
