// Reports: what the pages hold, and, where Chromium is installed, that a browser shows them without errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/cli/run_program.h"
#include "tests/test_folder.h"

namespace fermata {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Report : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream("p.ir") << "// a layer\n"
                             "%0 = input : f32[64, 128]\n"
                             "%1 = input : f32[128, 32]\n"
                             "%2 = matmul(%0, %1) : f32[64, 32]\n"
                             "%3 = tanh(%2) : f32[64, 32]\n"
                             "%4 = sum(%3) {axes=[0], keepdims=false} : f32[32]\n"
                             "return %3, %4\n";
  }
  /// What the page becomes once every tab was opened, and a node was searched and chosen.
  static std::string use_page(const std::string& page) {
    constexpr const char* kUse = R"(<script>
const failures = [];
addEventListener("error", e => failures.push(e.message));
const seen = [...document.querySelectorAll("[role=tab]")].map(tab => {
  tab.click();
  const panel = document.getElementById(tab.getAttribute("aria-controls"));
  return tab.textContent + (panel.hidden || panel.textContent.length < 20 ? " is empty" : "");
});
const search = document.querySelector("input[type=search]"), programs = document.querySelector("#panel-graph select");
let found = [];
for (let i = 0; i < programs.options.length && found.length === 0; ++i) {
  programs.value = i, programs.dispatchEvent(new Event("change"));
  search.value = "matmul", search.dispatchEvent(new Event("input"));
  found = document.querySelectorAll(".node.found");
}
found[0].dispatchEvent(new Event("click"));
const detail = document.getElementById("detail").textContent;
document.getElementById("tab-kernels").click();
const texts = [...document.querySelectorAll("#panel-kernels .linked-texts [role=listbox]")];
const lines_of = pre => [...pre.children], marked = pre => lines_of(pre).filter(l => l.classList.contains("linked")).length;
const value = texts.length && lines_of(texts[0]).findIndex(l => l.textContent.includes(" = "));
let linked = "no code";
if (texts.length) {
  lines_of(texts[0])[value].click();
  const by_click = texts.map(marked), back = lines_of(texts[1]).find(l => l.classList.contains("linked"));
  texts[0].dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowDown"}));
  const by_key = lines_of(texts[0]).findIndex(l => l.classList.contains("current"));
  if (back) back.click();
  linked = by_click.length === 3 && by_click.every(n => n > 0) && by_key === value + 1 && back && lines_of(texts[0])[value].classList.contains("linked") ?
    "lines linked" + (document.getElementById("panel-kernels").textContent.includes("bytes of stack") ? "" : ", no registers") : "not linked: " + by_click + " " + by_key;
}
document.querySelector(".edge").dispatchEvent(new Event("click"));
document.querySelector("[role=tab]").click();
const used = document.createElement("p");
used.hidden = true, document.body.append(used);
used.textContent = "USED " + [...seen, found.length + " found", detail.slice(0, 9), failures.length + " failures", linked,
  document.documentElement.scrollWidth > innerWidth ? "too wide" : "fits"].join("; ");
</script></body>)";
    std::string text = file_text(page);
    text.replace(text.rfind("</body>"), 7, kUse);
    std::ofstream("used.html") << text;
    return shown("used.html", 1280) + shown("used.html", 390);
  }
  /// Pictures of the page stay with the results of the run.
  static std::string shown(const std::string& page, int width) {
    const std::string folder = std::filesystem::current_path().string();
    const char* const results = std::getenv("FERMATA_TEST_RESULTS");
    const std::string picture =
        (results == nullptr ? folder : std::string(results)) + "/report_" + std::to_string(width) + ".png";
    const std::string command = "timeout 100 chromium --headless --no-sandbox --disable-gpu --user-data-dir='" +
                                folder + "/profile' --enable-logging=stderr --window-size=" + std::to_string(width) +
                                ",844 --virtual-time-budget=3000 --dump-dom --screenshot='" + picture + "' 'file://" +
                                folder + "/" + page + "' > dom.txt 2> log.txt";
    if (std::system(command.c_str()) != 0) return "the browser failed: " + file_text("log.txt").substr(0, 1000);
    if (!std::filesystem::exists(picture)) return "there is no picture";
    const std::string dom = file_text("dom.txt"), log = file_text("log.txt");
    std::string found = dom.find("USED") == dom.npos ? dom.substr(0, 500) : dom.substr(dom.rfind("USED"), 500);
    const std::size_t message = log.find(":CONSOLE");
    return found + (message == log.npos ? "" : log.substr(message, 300));
  }
  Scratch scratch_;
};

TEST_F(Report, ExplainsAProgram) {
  const Outcome made = run_program("fermata explain p.ir --html p.html");
  EXPECT_EQ(made.status, 0) << made.err;
  EXPECT_EQ(made.out, "p.html\n");
  const std::string page = file_text("p.html");
  EXPECT_LT(page.size(), 2u << 20);
  EXPECT_THAT(page, HasSubstr("\"op\":\"matmul\""));
  EXPECT_THAT(page, HasSubstr("us per run"));
  EXPECT_THAT(page, Not(HasSubstr("@FERMATA")));
  EXPECT_THAT(page, Not(HasSubstr("src=\"http")));
}

TEST_F(Report, ShowsAProfiledProcess) {
  const Outcome run = run_program("fermata run p.ir --check", "FERMATA_PROFILE=run.json ");
  ASSERT_EQ(run.status, 0) << run.err;
  const Outcome made = run_program("fermata report run.json");
  EXPECT_EQ(made.status, 0) << made.err;
  EXPECT_EQ(made.out, "run.html\n");
  const std::string page = file_text("run.html");
  EXPECT_THAT(page, HasSubstr("\"traceEvents\":["));
  EXPECT_THAT(page, HasSubstr("\"kernels_us\":"));
}

TEST_F(Report, WritesAPageAtTheEndOfAProcess) {
  const Outcome run = run_program("fermata run p.ir", "FERMATA_PROFILE=run.html ");
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(file_text("run.html"), HasSubstr("\"traceEvents\":["));
}

TEST_F(Report, TracesAreOfTheFormatThatOtherToolsRead) {
  if (std::system("command -v python3 > /dev/null") != 0) GTEST_SKIP() << "python3 is not installed";
  ASSERT_EQ(run_program("fermata demo --epochs 1", "FERMATA_COMPILE=second_sight FERMATA_PROFILE=run.json ").status, 0);
  const std::string script = std::filesystem::path(fermata::test_folder()).parent_path() / "scripts/check_trace.py";
  const int status = std::system(("python3 '" + script + "' run.json > checked.txt 2>&1").c_str());
  EXPECT_EQ(status, 0) << file_text("checked.txt");
  EXPECT_THAT(file_text("checked.txt"), ::testing::ContainsRegex("[1-9][0-9]+ slices, [1-9][0-9]* arrows"));
}

TEST_F(Report, SaysWhatIsNoTrace) {
  std::ofstream("other.json") << "{\"traceEvents\": []}";
  EXPECT_THAT(run_program("fermata report other.json").err,
              HasSubstr("FM1603 FileError: report: other.json: not a Fermata trace"));
  std::ofstream("broken.json") << "{\"traceEvents\": [";
  EXPECT_EQ(run_program("fermata report broken.json").status, 1);
  EXPECT_THAT(run_program("fermata report none.json").err, HasSubstr("FM1601"));
}

TEST_F(Report, WorksInABrowser) {
  if (std::system("command -v chromium > /dev/null") != 0) GTEST_SKIP() << "chromium is not installed";
  ASSERT_EQ(run_program("fermata run p.ir --check", "FERMATA_PROFILE=run.json ").status, 0);
  ASSERT_EQ(run_program("fermata report run.json").status, 0);
  const std::string tabs = "Summary; Graph; Passes; Kernels; Timeline; Memory; Dispatch table; Per op against fused; ";
  const std::string rest = "1 found; %2 matmul; 0 failures; lines linked; fits";
  EXPECT_THAT(use_page("run.html"), ::testing::AllOf(HasSubstr(tabs), HasSubstr(rest)));
}

}  // namespace
}  // namespace fermata
