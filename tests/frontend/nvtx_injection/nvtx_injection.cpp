// A tool as NVTX knows them: a library that NVTX_INJECTION64_PATH names. Writes the ranges of each domain, a line when
// one begins and a line when it ends, to the file that NVTX_RECORD names.
#define NVTX_AS_SYSTEM_HEADER
#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

std::FILE* record() {
  static std::FILE* const file = std::fopen(std::getenv("NVTX_RECORD"), "w");
  return file;
}

// Domains and strings are their names; NVTX asks for nothing but addresses.
nvtxDomainHandle_t NVTX_API create_domain(const char* name) {
  return reinterpret_cast<nvtxDomainHandle_t>(new std::string(name));
}
nvtxStringHandle_t NVTX_API register_string(nvtxDomainHandle_t, const char* text) {
  return reinterpret_cast<nvtxStringHandle_t>(new std::string(text));
}
const char* text_of(const void* handle) { return static_cast<const std::string*>(handle)->c_str(); }

int NVTX_API push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* range) {
  const char* const text =
      range->messageType == NVTX_MESSAGE_TYPE_REGISTERED ? text_of(range->message.registered) : range->message.ascii;
  std::fprintf(record(), "%s begin %s\n", text_of(domain), text), std::fflush(record());
  return 0;
}
int NVTX_API pop(nvtxDomainHandle_t domain) {
  std::fprintf(record(), "%s end\n", text_of(domain)), std::fflush(record());
  return 0;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  const auto* const callbacks = static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) return 0;
  const auto set = [&](unsigned number, auto* function) {
    if (number < size) *table[number] = reinterpret_cast<NvtxFunctionPointer>(function);
  };
  set(NVTX_CBID_CORE2_DomainCreateA, &create_domain), set(NVTX_CBID_CORE2_DomainRegisterStringA, &register_string);
  set(NVTX_CBID_CORE2_DomainRangePushEx, &push), set(NVTX_CBID_CORE2_DomainRangePop, &pop);
  return 1;
}
