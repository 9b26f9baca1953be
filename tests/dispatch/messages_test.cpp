// The full text of errors of custom operators that no other test covers; and that calls work afterwards.
#include <fermata/fermata.h>
#include <fermata/library.h>
#include <gmock/gmock.h>

#include "tests/error_message.h"

namespace fermata {
namespace {

using testing::message_without_place;

class LibraryErrors : public ::testing::TestWithParam<Mode> {
 protected:
  ~LibraryErrors() override { EXPECT_EQ((ones({2}) + 1).to_vector<int>(), (std::vector<int>{2, 2})); }
  ModeGuard mode_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Modes, LibraryErrors, ::testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& mode) { return mode.param == Mode::eager ? "eager" : "compiled"; });

TEST_P(LibraryErrors, Schemas) {
  EXPECT_EQ(message_without_place<ParseError>([] { parse_schema("my::f(Tensor x -> Tensor"); }),
            "FM1511 ParseError: schema: expected ','\n"
            "  my::f(Tensor x -> Tensor\n"
            "                 ^");
  EXPECT_EQ(message_without_place<ParseError>([] { parse_schema("my::f(Tensor x) -> Tensor(a)"); }),
            "FM1512 ParseError: schema: a result aliases (a), which no argument has\n"
            "  schema my::f(Tensor x) -> Tensor(a)");
}

TEST_P(LibraryErrors, NoVariantTakesTheArguments) {
  Library def(Library::Kind::definition, "choosy");
  def.def("f(Tensor x) -> Tensor");
  Library cpu(Library::Kind::implementation, "choosy", "CPU");
  const auto pairs = [](const Stack& s) { return s[0].as<Tensor>().element_count() == 2; };
  const auto triples = [](const Stack& s) { return s[0].as<Tensor>().element_count() == 3; };
  cpu.impl("f", [](const Tensor& x) { return x + 1; },
           {.variant = "pairs", .fits = pairs, .fits_text = "two elements"});
  cpu.impl("f", [](const Tensor& x) { return x + 2; }, {.variant = "triples", .fits = triples, .fits_text = "three"});
  const auto f = OperatorHandle::find("choosy::f").typed<Tensor(const Tensor&)>();
  EXPECT_EQ(f(ones({3})).to_vector<int>(), (std::vector<int>{3, 3, 3}));
  EXPECT_EQ(message_without_place<UnsupportedError>([&] { f(ones({4})); }),
            "FM2007 UnsupportedError: choosy::f: no kernel accepts these arguments\n"
            "  hint `fermata ops choosy::f` shows their conditions");
}

TEST_P(LibraryErrors, AViewWrittenWhileGradientsAreRecorded) {
  Library def(Library::Kind::definition, "writer");
  def.def("fill_(Tensor(a!) x, Tensor value) -> Tensor(a!)");
  Library cpu(Library::Kind::implementation, "writer", "CPU");
  cpu.impl("fill_", [](Tensor& x, const Tensor& value) {
    x.assign(value);
    return x;
  });
  const auto fill = OperatorHandle::find("writer::fill_").typed<Tensor(Tensor&, const Tensor&)>();
  Tensor value = full({}, 2.0f);
  value.requires_grad(true);
  const Tensor base = ones({2, 2});
  Tensor row = base[0];
  EXPECT_EQ(message_without_place<UnsupportedError>([&] { fill(row, value); }),
            "FM2009 UnsupportedError: writer::fill_: in-place write to a view while gradients are recorded\n"
            "  x    f32[2]\n"
            "  hint write to a copy() of the view, then assign() it");
}

}  // namespace
}  // namespace fermata
