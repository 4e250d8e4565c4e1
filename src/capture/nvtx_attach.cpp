#include "capture/nvtx_attach.h"

// Types and numbers of NVTX's tables, without NVTX itself: we are the tool, not a program that uses it.
#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>

#include <atomic>
#include <cstddef>
#include <pthread.h>
#include <string>
#include <string_view>

#include "capture/early_scopes.h"
#include "capture/launch_recorder.h"
#include "capture/nvtx_names.h"

namespace gpuflight::capture {
namespace {

std::atomic<LaunchRecorder*> g_launches{nullptr};

// Null: there is no recorder (yet), or it is that of the process this one was forked from.
LaunchRecorder* launches() noexcept {
  LaunchRecorder* const found = g_launches.load(std::memory_order_acquire);
  return found != nullptr && found->alive() ? found : nullptr;
}

constexpr const char* kNoText = "(no text)";

// The text of a call, whatever it was given as, handed to `use`.
template <class Use>
auto with_text(const char* text, Use&& use) noexcept {
  return use(std::string_view(text != nullptr ? text : kNoText));
}
template <class Use>
auto with_text(const wchar_t* text, Use&& use) noexcept {
  std::string converted;
  try {
    converted = text != nullptr ? utf8_of(text) : kNoText;
  } catch (...) {  // no memory: nameless rather than not there
  }
  return use(std::string_view(converted));
}
template <class Use>
auto with_text(const nvtxEventAttributes_t* attributes, Use&& use) noexcept {
  constexpr std::size_t kNeeded = offsetof(nvtxEventAttributes_t, message) + sizeof(nvtxMessageValue_t);
  if (attributes == nullptr || attributes->size < kNeeded) return use(std::string_view(kNoText));
  switch (attributes->messageType) {
    case NVTX_MESSAGE_TYPE_ASCII: return with_text(attributes->message.ascii, use);
    case NVTX_MESSAGE_TYPE_UNICODE: return with_text(attributes->message.unicode, use);
    case NVTX_MESSAGE_TYPE_REGISTERED: return use(NvtxNames::text_of(attributes->message.registered));
    default: return use(std::string_view(kNoText));
  }
}

// What a program is told without a tool: levels are not counted for it.
int push(const ScopeDomain& domain, std::string_view name) noexcept {
  if (LaunchRecorder* const recorder = launches()) {
    recorder->push_scope(domain, name);
  } else if (EarlyScopes* const early = EarlyScopes::of_this_thread(true)) {
    early->push(domain, name);
  }
  return NVTX_NO_PUSH_POP_TRACKING;
}

int pop(const ScopeDomain& domain) noexcept {
  if (LaunchRecorder* const recorder = launches()) {
    recorder->pop_scope(domain);
  } else if (EarlyScopes* const early = EarlyScopes::of_this_thread(false)) {
    early->pop(domain.tag);
  }
  return NVTX_NO_PUSH_POP_TRACKING;
}

nvtxRangeId_t start(const ScopeDomain& domain, std::string_view name) noexcept {
  LaunchRecorder* const recorder = launches();
  return recorder != nullptr ? recorder->begin_range(domain, name) : 0;
}

void mark(const ScopeDomain& domain, std::string_view name) noexcept {
  if (LaunchRecorder* const recorder = launches()) recorder->mark(domain, name);
}

// --- the functions that NVTX calls ---

template <class Text>
void NVTX_API on_mark(Text text) {
  with_text(text, [](std::string_view name) { mark(kNvtxDefaultDomain, name); });
}
template <class Text>
nvtxRangeId_t NVTX_API on_start(Text text) {
  return with_text(text, [](std::string_view name) { return start(kNvtxDefaultDomain, name); });
}
template <class Text>
int NVTX_API on_push(Text text) {
  return with_text(text, [](std::string_view name) { return push(kNvtxDefaultDomain, name); });
}
int NVTX_API on_pop() { return pop(kNvtxDefaultDomain); }
void NVTX_API on_end(nvtxRangeId_t range) {
  if (LaunchRecorder* const recorder = launches()) recorder->end_range(range);
}

void NVTX_API on_domain_mark(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  with_text(attributes, [&](std::string_view name) { mark(NvtxNames::scopes_of(domain), name); });
}
nvtxRangeId_t NVTX_API on_domain_start(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  return with_text(attributes, [&](std::string_view name) { return start(NvtxNames::scopes_of(domain), name); });
}
void NVTX_API on_domain_end(nvtxDomainHandle_t, nvtxRangeId_t range) { on_end(range); }
int NVTX_API on_domain_push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  return with_text(attributes, [&](std::string_view name) { return push(NvtxNames::scopes_of(domain), name); });
}
int NVTX_API on_domain_pop(nvtxDomainHandle_t domain) { return pop(NvtxNames::scopes_of(domain)); }

template <class Text>
nvtxStringHandle_t NVTX_API on_register(nvtxDomainHandle_t domain, Text text) {
  return with_text(text, [&](std::string_view string) {
    const auto* const made = NvtxNames::string(NvtxNames::scopes_of(domain), string);
    return reinterpret_cast<nvtxStringHandle_t>(const_cast<NvtxNames::String*>(made));
  });
}
template <class Text>
nvtxDomainHandle_t NVTX_API on_domain(Text text) {
  return with_text(text, [&](std::string_view name) {
    return reinterpret_cast<nvtxDomainHandle_t>(const_cast<NvtxNames::Domain*>(NvtxNames::domain(name)));
  });
}
void NVTX_API on_domain_destroy(nvtxDomainHandle_t) {}  // its handles may still be used elsewhere

class FunctionTable {
 public:
  FunctionTable(const NvtxExportTableCallbacks& callbacks, NvtxCallbackModule module) noexcept {
    if (callbacks.GetModuleFunctionTable(module, &table_, &size_) == 0) table_ = nullptr;
  }
  explicit operator bool() const noexcept { return table_ != nullptr; }

  // `Type`: of the function, by NVTX's own list.
  template <class Type>
  void put(unsigned id, Type function) const noexcept {
    if (id < size_ && table_[id] != nullptr) *table_[id] = reinterpret_cast<NvtxFunctionPointer>(function);
  }

 private:
  NvtxFunctionTable table_ = nullptr;
  unsigned size_ = 0;
};

void put_core(const FunctionTable& table) noexcept {
  table.put<nvtxMarkEx_impl_fntype>(NVTX_CBID_CORE_MarkEx, &on_mark);
  table.put<nvtxMarkA_impl_fntype>(NVTX_CBID_CORE_MarkA, &on_mark);
  table.put<nvtxMarkW_impl_fntype>(NVTX_CBID_CORE_MarkW, &on_mark);
  table.put<nvtxRangeStartEx_impl_fntype>(NVTX_CBID_CORE_RangeStartEx, &on_start);
  table.put<nvtxRangeStartA_impl_fntype>(NVTX_CBID_CORE_RangeStartA, &on_start);
  table.put<nvtxRangeStartW_impl_fntype>(NVTX_CBID_CORE_RangeStartW, &on_start);
  table.put<nvtxRangeEnd_impl_fntype>(NVTX_CBID_CORE_RangeEnd, &on_end);
  table.put<nvtxRangePushEx_impl_fntype>(NVTX_CBID_CORE_RangePushEx, &on_push);
  table.put<nvtxRangePushA_impl_fntype>(NVTX_CBID_CORE_RangePushA, &on_push);
  table.put<nvtxRangePushW_impl_fntype>(NVTX_CBID_CORE_RangePushW, &on_push);
  table.put<nvtxRangePop_impl_fntype>(NVTX_CBID_CORE_RangePop, &on_pop);
}

void put_domains(const FunctionTable& table) noexcept {
  table.put<nvtxDomainMarkEx_impl_fntype>(NVTX_CBID_CORE2_DomainMarkEx, &on_domain_mark);
  table.put<nvtxDomainRangeStartEx_impl_fntype>(NVTX_CBID_CORE2_DomainRangeStartEx, &on_domain_start);
  table.put<nvtxDomainRangeEnd_impl_fntype>(NVTX_CBID_CORE2_DomainRangeEnd, &on_domain_end);
  table.put<nvtxDomainRangePushEx_impl_fntype>(NVTX_CBID_CORE2_DomainRangePushEx, &on_domain_push);
  table.put<nvtxDomainRangePop_impl_fntype>(NVTX_CBID_CORE2_DomainRangePop, &on_domain_pop);
  table.put<nvtxDomainRegisterStringA_impl_fntype>(NVTX_CBID_CORE2_DomainRegisterStringA, &on_register);
  table.put<nvtxDomainRegisterStringW_impl_fntype>(NVTX_CBID_CORE2_DomainRegisterStringW, &on_register);
  table.put<nvtxDomainCreateA_impl_fntype>(NVTX_CBID_CORE2_DomainCreateA, &on_domain);
  table.put<nvtxDomainCreateW_impl_fntype>(NVTX_CBID_CORE2_DomainCreateW, &on_domain);
  table.put<nvtxDomainDestroy_impl_fntype>(NVTX_CBID_CORE2_DomainDestroy, &on_domain_destroy);
}

void on_fork_in_child() noexcept {
  g_launches.store(nullptr, std::memory_order_release);
  NvtxNames::on_fork_in_child();
}

}  // namespace

bool attach_nvtx(void* get_export_table) noexcept {
  const auto get = reinterpret_cast<NvtxGetExportTableFunc_t>(get_export_table);
  if (get == nullptr) return false;
  const auto* const callbacks = static_cast<const NvtxExportTableCallbacks*>(get(NVTX_ETID_CALLBACKS));
  if (callbacks == nullptr || callbacks->struct_size < sizeof *callbacks ||
      callbacks->GetModuleFunctionTable == nullptr) {
    return false;
  }
  const FunctionTable core(*callbacks, NVTX_CB_MODULE_CORE), domains(*callbacks, NVTX_CB_MODULE_CORE2);
  if (!core) return false;
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, [] { pthread_atfork(nullptr, nullptr, &on_fork_in_child); });
  if (const auto* const version = static_cast<const NvtxExportTableVersionInfo*>(get(NVTX_ETID_VERSIONINFO));
      version != nullptr && version->struct_size >= sizeof *version && version->SetInjectionNvtxVersion != nullptr) {
    version->SetInjectionNvtxVersion(NVTX_VERSION);
  }
  put_core(core);
  if (domains) put_domains(domains);
  return true;
}

void send_nvtx_to(LaunchRecorder* launches) noexcept { g_launches.store(launches, std::memory_order_release); }

}  // namespace gpuflight::capture
