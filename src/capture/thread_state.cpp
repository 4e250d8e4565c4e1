#include "capture/thread_state.h"

#include <new>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "capture/launch_recorder.h"

namespace gpuflight::capture {

constinit thread_local ThreadState* t_thread_state = nullptr;

namespace {

pthread_key_t g_key;
pthread_once_t g_key_once = PTHREAD_ONCE_INIT;
bool g_key_made = false;

void on_thread_exit(void* value) {
  auto* const state = static_cast<ThreadState*>(value);
  // In a forked child the state points into rings that are not mapped: only its memory is freed then.
  if (state == t_thread_state && state->owner->alive()) state->owner->on_thread_exit(*state);
  if (state == t_thread_state) t_thread_state = nullptr;
  delete state;
}

}  // namespace

ThreadState* make_thread_state(LaunchRecorder& owner, flight::RingSet& rings) noexcept {
  pthread_once(&g_key_once, [] { g_key_made = pthread_key_create(&g_key, on_thread_exit) == 0; });
  delete t_thread_state;
  t_thread_state = nullptr;
  auto* const state = new (std::nothrow) ThreadState;
  if (state == nullptr) return nullptr;
  state->owner = &owner;
  state->marks = owner.marks();
  state->tid = static_cast<std::uint32_t>(syscall(SYS_gettid));
  char name[16] = {};
  prctl(PR_GET_NAME, name);
  state->ring = rings.acquire(state->tid, name);
  t_thread_state = state;
  if (g_key_made) pthread_setspecific(g_key, state);
  owner.adopt_early_scopes(*state);
  return state;
}

void forget_thread_state() noexcept { t_thread_state = nullptr; }

}  // namespace gpuflight::capture
