// A host with NVTX in it, header only, that knows nothing of any tool. Each launch has a grid of its own, by which
// nvtx_test.py knows where in the program it was made.
//
//   nvtx_host tour | threads N | no_cuda | fork | paused | forever | full N
#include <nvtx3/nvToolsExt.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "sim_program.h"

using gpuflight::test::Cuda;
using gpuflight::test::kernel_named;

namespace {

nvtxEventAttributes_t with_message(const char* text) {
  nvtxEventAttributes_t a{};
  a.version = NVTX_VERSION;
  a.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  a.messageType = NVTX_MESSAGE_TYPE_ASCII;
  a.message.ascii = text;
  a.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  a.payload.ullValue = 7;
  return a;
}

void push_in(nvtxDomainHandle_t domain, const char* text) {
  const nvtxEventAttributes_t a = with_message(text);
  nvtxDomainRangePushEx(domain, &a);
}

// gpuflight's own API, as a program that only looks for it finds it.
template <class Function>
Function* api(const char* name) {
  auto* const found = reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
  if (found == nullptr) gpuflight::test::fail(std::string("no ") + name);
  return found;
}
void api_push(const char* name) { api<void(const char*)>("gpuflight_push_scope")(name); }
void api_pop() { api<void()>("gpuflight_pop_scope")(); }

int tour() {
  nvtxRangePushA("popped early");
  nvtxRangePushA("before");
  nvtxRangePushA("popped before");
  nvtxRangePop();
  const nvtxDomainHandle_t lib = nvtxDomainCreateA("lib");
  push_in(lib, "early");
  nvtxMarkA("nobody is there");
  nvtxRangeEnd(nvtxRangeStartA("nobody either"));
  const Cuda cuda({kernel_named("k")});
  const auto launch = [&](unsigned grid) { Cuda::check(cuda.launch(grid), "launch"); };
  launch(1);
  nvtxDomainRangePop(lib);
  nvtxRangePushA("step");
  launch(2);
  nvtxRangePop();
  launch(3);
  nvtxRangePop();
  nvtxRangePop();
  launch(4);
  nvtxRangePop();  // of nothing
  nvtxRangePop();
  nvtxDomainRangePop(lib);
  launch(5);

  nvtxRangePushA("again");
  launch(6);
  api_push("api");
  launch(7);
  nvtxRangePop();  // each pops its own
  launch(8);
  api_pop();
  launch(9);

  std::printf("same_domain=%d\n", nvtxDomainCreateA("lib") == lib);
  push_in(lib, "inner");
  launch(10);
  nvtxRangePushA("outer");
  launch(11);
  nvtxDomainRangePop(lib);
  launch(12);
  nvtxRangePop();
  launch(13);

  nvtxEventAttributes_t a = with_message("");
  a.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  a.message.registered = nvtxDomainRegisterStringA(lib, "registered \xc3\xbc");
  nvtxDomainRangePushEx(lib, &a);
  launch(14);
  nvtxDomainRangePop(lib);
  a.message.registered = nvtxDomainRegisterStringW(nullptr, L"wide registered");
  nvtxRangePushEx(&a);
  launch(15);
  nvtxRangePop();
  nvtxRangePushW(L"w\u00e4\u20ac\U0001F600");
  launch(16);
  nvtxRangePop();
  nvtxRangePushA("\xff\xfe no \"utf\"\n");
  launch(17);
  nvtxRangePop();
  nvtxRangePushA("");
  launch(18);
  nvtxRangePop();
  nvtxRangePushEx(nullptr);
  launch(19);
  nvtxRangePop();
  a = {};
  a.version = NVTX_VERSION;
  a.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  nvtxRangePushEx(&a);
  launch(20);
  nvtxRangePop();

  nvtxRangePushA("p");
  nvtxMarkA("m");
  nvtxMarkW(L"m\u00fc");
  a = with_message("dm");
  nvtxDomainMarkEx(lib, &a);
  nvtxMarkEx(&a);
  const nvtxRangeId_t cross = nvtxRangeStartA("cross"), second = nvtxRangeStartW(L"cross");
  const nvtxRangeId_t in_domain = nvtxDomainRangeStartEx(lib, &a);
  launch(21);
  std::thread([&] {
    nvtxRangeEnd(cross);
    nvtxDomainRangeEnd(lib, in_domain);
  }).join();
  nvtxRangeEnd(second);
  nvtxRangeEnd(0);
  nvtxRangePop();

  const std::string longest(5000, 'x');
  nvtxRangePushA(longest.c_str());
  launch(22);
  nvtxRangePop();
  for (int i = 0; i < 70; ++i) nvtxRangePushA("d");
  launch(23);
  for (int i = 0; i < 70; ++i) nvtxRangePop();
  launch(24);
  std::thread([&] {
    cuda.use();
    nvtxRangePushA("left open");
    launch(25);
  }).join();
  launch(26);
  nvtxDomainDestroy(lib);
  push_in(lib, "still");  // a program may be wrong
  launch(27);
  nvtxDomainRangePop(lib);
  // A name in memory that is used again for another.
  char name[8] = "one";
  nvtxRangePushA(name);
  launch(28);
  nvtxRangePop();
  std::strcpy(name, "two");
  nvtxRangePushA(name);
  launch(29);
  nvtxRangePop();
  return 0;
}

int threads(int count) {
  const Cuda cuda({kernel_named("k")});
  const nvtxDomainHandle_t domain = nvtxDomainCreateA("d");
  std::vector<std::thread> running;
  for (int t = 0; t < count; ++t) {
    running.emplace_back([&, t] {
      cuda.use();
      const std::string own = "thread " + std::to_string(t);
      nvtxRangePushA(own.c_str());
      for (int i = 0; i < 200; ++i) {
        const std::string name = "n" + std::to_string(i % 100);  // more than a thread remembers
        nvtxRangePushA(name.c_str());
        push_in(domain, "in");
        Cuda::check(cuda.launch(1), "launch");
        if (i % 2 == 0) nvtxRangePop();
        nvtxDomainRangePop(domain);
        if (i % 2 != 0) nvtxRangePop();
        nvtxRangeEnd(nvtxRangeStartA(name.c_str()));
        nvtxMarkA(name.c_str());
      }
    });  // ends inside "thread T"
  }
  for (std::thread& thread : running) thread.join();
  return 0;
}

int no_cuda() {
  for (int i = 0; i < 1000; ++i) {
    nvtxRangePushA("a");
    nvtxMarkA("b");
    nvtxRangePop();
  }
  std::printf("loaded=%d\n", dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_NOW) != nullptr);
  return 0;
}

int forked() {
  nvtxRangePushA("parent");
  nvtxDomainRegisterStringA(nullptr, "known");
  const pid_t child = fork();
  if (child == 0) {
    nvtxRangePushA("child");
    nvtxDomainRegisterStringA(nullptr, "known");
    const Cuda cuda({kernel_named("k")});
    Cuda::check(cuda.launch(1), "launch");
    nvtxRangePop();
    Cuda::check(cuda.launch(2), "launch");
    nvtxRangePop();
    Cuda::check(cuda.launch(3), "launch");
    std::exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  nvtxRangePop();
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int paused() {
  const Cuda cuda({kernel_named("k")});
  nvtxRangePushA("a");
  api<int(unsigned)>("gpuflight_pause")(0);
  nvtxRangePushA("b");
  api<int()>("gpuflight_resume")();
  Cuda::check(cuda.launch(1), "launch");
  api<int(unsigned)>("gpuflight_pause")(1);
  nvtxRangePop();
  api<int()>("gpuflight_resume")();
  Cuda::check(cuda.launch(2), "launch");
  api<int(unsigned)>("gpuflight_shutdown")(5000);
  nvtxRangePop();
  nvtxRangePushA("nobody");
  nvtxMarkA("nobody");
  nvtxRangeEnd(nvtxRangeStartA("nobody"));
  Cuda::check(cuda.launch(3), "launch");
  return 0;
}

int forever() {
  const Cuda cuda({kernel_named("k")});
  for (std::uint64_t n = 0;; ++n) {
    nvtxRangePushA("step");
    nvtxMarkA("m");
    const nvtxRangeId_t range = nvtxRangeStartA("r");
    nvtxRangeEnd(range);
    nvtxRangePop();
    if (n % 100 == 0) {
      std::printf("%llu\n", static_cast<unsigned long long>(5 * (n + 1)));
      std::fflush(stdout);
    }
    usleep(100);
  }
}

// More names than there is room for.
int full(int count) {
  const Cuda cuda({kernel_named("k")});
  nvtxRangePushA("outer");
  for (int i = 0; i < count; ++i) {
    nvtxRangePushA(std::to_string(i).c_str());
    if (i + 1 == count) Cuda::check(cuda.launch(1), "launch");
    nvtxRangePop();
  }
  nvtxRangePop();
  Cuda::check(cuda.launch(2), "launch");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string verb = argc > 1 ? argv[1] : "";
  const int count = argc > 2 ? std::atoi(argv[2]) : 0;
  if (verb == "tour") return tour();
  if (verb == "threads") return threads(count);
  if (verb == "no_cuda") return no_cuda();
  if (verb == "fork") return forked();
  if (verb == "paused") return paused();
  if (verb == "forever") return forever();
  if (verb == "full") return full(count);
  std::fprintf(stderr, "usage: nvtx_host tour | threads N | no_cuda | fork | paused | forever | full N\n");
  return 2;
}
