// This engine as one of those that bench/peers/compare.py sets side by side: a process that times what it is told to.
//   fermata_peer_worker FOLDER THREADS eager|compiled
//
// Commands on standard input, one answer a line on standard output:
//   rows                the names of all rows, "ok ROW ..."
//   inputs ROW          writes the row's inputs to FOLDER/ROW.N.npy, "ok N"
//   load ROW            makes the row ready and runs it twice, "ok"; a row of FOLDER/ROW.txt is a random program
//   result ROW          writes what the loaded row gives to FOLDER/ROW.fermata.N.npy, "ok N"
//   time SECONDS        runs the loaded row for about so long, "ok MILLISECONDS ..."
//   peak                the largest resident memory since the row was loaded, "ok MEGABYTES"
// What cannot be done is answered by "error WHY".
#include <fermata/fermata.h>

#include <chrono>
#include <exception>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>

#include "bench/cases.h"
#include "bench/models.h"
#include "bench/peers/random_program.h"
#include "runtime/allocator.h"
#include "runtime/thread_pool.h"

namespace bench {
namespace {

namespace fm = fermata;
using Clock = std::chrono::steady_clock;

class Worker {
 public:
  explicit Worker(std::string folder) : folder_(std::move(folder)) {}

  std::string answer(const std::string& line) {
    std::istringstream words(line);
    std::string command, row;
    words >> command >> row;
    if (command == "rows") return rows();
    if (command == "inputs") return saved(find(row).inputs(), row);
    if (command == "load") return load(row);
    if (command == "result") return saved(run(case_->prepare(), case_->inputs()), row + ".fermata");
    if (command == "time") return time(std::stod(row));
    if (command == "peak") return "ok " + std::to_string(peak_megabytes());
    throw std::invalid_argument("no such command: " + command);
  }

 private:
  static std::string rows() {
    std::string names = "ok";
    for (const Case& c : cases()) names += " " + c.name;
    return names;
  }
  Case find(const std::string& row) const {
    for (const auto* table : {&cases(), &models()})
      for (const Case& c : *table)
        if (c.name == row) return c;
    std::ifstream file(folder_ + "/" + row + ".txt");
    if (!file) throw std::invalid_argument("no such row: " + row);
    return random_program(row, file, folder_);
  }
  std::string saved(const Tensors& tensors, const std::string& stem) const {
    for (std::size_t i = 0; i < tensors.size(); ++i)
      fm::save_npy(folder_ + "/" + stem + "." + std::to_string(i) + ".npy", tensors[i]);
    return "ok " + std::to_string(tensors.size());
  }
  std::string load(const std::string& row) {
    program_ = nullptr, inputs_.clear();
    fm::trim_cache();
    std::ofstream("/proc/self/clear_refs") << 5;  // the peak starts anew
    case_ = find(row);
    program_ = case_->prepare(), inputs_ = case_->inputs();
    run(program_, inputs_), run(program_, inputs_);
    return "ok";
  }
  std::string time(double seconds) const {
    std::string times = "ok";
    const auto begin = Clock::now();
    do {
      const auto start = Clock::now();
      run(program_, inputs_);
      times += " " + std::to_string(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    } while (std::chrono::duration<double>(Clock::now() - begin).count() < seconds);
    return times;
  }
  static long peak_megabytes() {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;)
      if (word == "VmHWM:") {
        long kilobytes = 0;
        status >> kilobytes;
        return kilobytes / 1024;
      }
    return 0;
  }

  std::string folder_;
  std::optional<Case> case_;
  Program program_;
  Tensors inputs_;
};

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const fermata::ModeGuard mode(std::string(argv[3]) == "eager" ? fermata::Mode::eager : fermata::Mode::compiled);
  fermata::set_compile_policy(fermata::CompilePolicy::immediate);
  fermata::set_thread_count(std::atoi(argv[2]));
  bench::Worker worker(argv[1]);
  for (std::string line; std::getline(std::cin, line);) {
    try {
      std::cout << worker.answer(line) << std::endl;
    } catch (const std::exception& error) {
      std::string text = error.what();
      for (char& c : text)
        if (c == '\n') c = ' ';
      std::cout << "error " << text << std::endl;
    }
  }
}
