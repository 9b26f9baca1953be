// See line_marks.h.
#include "codegen_cpu/jit/line_marks.h"

#include <cstdio>
#include <string_view>
#include <unordered_map>

namespace fermata::jit {
namespace {

/// Writes the lines of instructions behind them.
class LineComments final : public llvm::AssemblyAnnotationWriter {
 public:
  void keep(const llvm::Instruction& instruction, unsigned line) { lines_[&instruction] = line; }
  void printInfoComment(const llvm::Value& value, llvm::formatted_raw_ostream& out) override {
    if (const auto at = lines_.find(&value); at != lines_.end()) out << "  ; @" << at->second;
  }

 private:
  std::unordered_map<const llvm::Value*, unsigned> lines_;
};

}  // namespace

void begin_lines(llvm::Function& function) {
  llvm::DIBuilder describe(*function.getParent());
  llvm::DIFile* const file = describe.createFile("kernel", "");
  describe.createCompileUnit(llvm::dwarf::DW_LANG_C, file, "fermata", true, "", 0, "",
                             llvm::DICompileUnit::DebugDirectivesOnly);
  function.setSubprogram(describe.createFunction(file, function.getName(), "", file, 0,
                                                 describe.createSubroutineType(describe.getOrCreateTypeArray({})), 0,
                                                 llvm::DINode::FlagZero, llvm::DISubprogram::SPFlagDefinition));
  describe.finalize();
}

std::string marked_ir(const llvm::Module& module) {
  llvm::ValueToValueMapTy copies;
  const std::unique_ptr<llvm::Module> copy = llvm::CloneModule(module, copies);
  LineComments comments;
  for (const llvm::Function& function : module)
    for (const llvm::BasicBlock& block : function)
      for (const llvm::Instruction& instruction : block)
        if (const llvm::DebugLoc& where = instruction.getDebugLoc(); where && where.getLine() != 0)
          comments.keep(*llvm::cast<llvm::Instruction>(copies[&instruction]), where.getLine());
  llvm::StripDebugInfo(*copy);
  std::string text;
  llvm::raw_string_ostream out(text);
  copy->print(out, &comments);
  return out.str();
}

std::string marked_assembly(const std::string& text) {
  std::string marked;
  unsigned now = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line(text.data() + at, end - at);
    at = end + 1;
    unsigned file = 0, number = 0;
    if (line.starts_with("\t.loc\t")) {
      if (std::sscanf(std::string(line).c_str(), "\t.loc\t%u %u", &file, &number) == 2) now = number;
      continue;
    }
    if (line.starts_with("\t.file\t") || line.starts_with(".Ltmp") || line.starts_with(".Lfunc_begin")) continue;
    marked += line;
    const bool is_instruction = line.size() > 1 && line[0] == '\t' && line[1] != '.' && line[1] != '#';
    if (is_instruction && now != 0) marked += "\t# @" + std::to_string(now);
    marked += '\n';
  }
  return marked;
}

}  // namespace fermata::jit
