// Scopes and marks, of the API and of NVTX.
#include <algorithm>
#include <new>
#include <string>

#include "capture/early_scopes.h"
#include "capture/launch_hit.h"
#include "capture/launch_recorder.h"
#include "capture/miss_guard.h"

namespace gpuflight::capture {

void LaunchRecorder::point(ThreadState& thread, flight::RecordKind kind, event::ScopeId scope,
                           std::uint32_t range) noexcept {
  const std::int64_t now = now_ns();
  flight::Record* const record = begin(thread, kind);
  if (record == nullptr) return;
  record->flags = 0;
  record->config = 0;
  record->launch_ns = now;
  record->grid_x = record->stream = record->graph = 0;
  record->grid_y = record->grid_z = 0;
  record->correlation = range;
  record->scope = scope.value;
  record->phase.store(static_cast<std::uint8_t>(flight::RecordPhase::kReturned), std::memory_order_relaxed);
  thread.ring->publish();
}

// Of a name in `parent`; 0 where the table is full.
event::ScopeId LaunchRecorder::scope_of(ThreadState& thread, event::ScopeId parent, const ScopeDomain& domain,
                                        std::string_view name) noexcept {
  event::ScopeId id;
  if (thread.scope_cache != nullptr && thread.scope_cache->find(parent, domain.tag, name, id)) [[likely]] {
    if (!id) parts_.scopes.refuse();
    return id;
  }
  MissGuard miss(thread);
  thread.missed = false;  // no launch's
  if (domain.prefix.empty()) {
    id = parts_.scopes.child(parent, name);
  } else {
    try {
      id = parts_.scopes.child(parent, std::string(domain.prefix).append(name));
    } catch (...) {
      return {};
    }
  }
  if (thread.scope_cache == nullptr) thread.scope_cache.reset(new (std::nothrow) ScopeCache);
  if (thread.scope_cache != nullptr) thread.scope_cache->put(parent, domain.tag, name, id);
  return id;
}

void LaunchRecorder::enter_scope(ThreadState& thread, const ScopeDomain& domain, std::string_view name) noexcept {
  ScopeStack& stack = thread.scopes;
  event::ScopeId path = stack.path();
  if (stack.depth < ScopeStack::kMax) {
    // Without room for it the launches lie in what is around it.
    if (const event::ScopeId own = scope_of(thread, path, domain, name)) path = own;
    stack.levels[stack.depth] = {path, path, domain.tag};
  }
  ++stack.depth;
  thread.scope_now = path.value;
  point(thread, flight::RecordKind::kScopeBegin, path);
}

// The level is gone from the paths of those above it, which go on.
void LaunchRecorder::leave_level(ThreadState& thread, std::uint32_t level) noexcept {
  ScopeStack& stack = thread.scopes;
  const event::ScopeId begun = stack.levels[level].begun;
  event::ScopeId around = level > 0 ? stack.levels[level - 1].path : event::ScopeId{};
  if (level + 1 < stack.depth) {
    MissGuard miss(thread);
    thread.missed = false;
    event::ScopeId below = stack.levels[level].path;
    for (std::uint32_t i = level + 1; i < stack.depth; ++i) {
      ScopeStack::Level above = stack.levels[i];
      const event::ScopeId moved = parts_.scopes.moved(above.path, below, around);
      below = above.path;
      above.path = moved ? moved : around;
      around = above.path;
      stack.levels[i - 1] = above;
    }
  }
  --stack.depth;
  thread.scope_now = stack.path().value;
  point(thread, flight::RecordKind::kScopeEnd, begun);
}

void LaunchRecorder::push_scope(const ScopeDomain& domain, std::string_view name) noexcept {
  if (ThreadState* const thread = enter()) enter_scope(*thread, domain, name);
}

void LaunchRecorder::pop_scope(const ScopeDomain& domain) noexcept {
  ThreadState* const thread = enter();
  if (thread == nullptr) return;
  ScopeStack& stack = thread->scopes;
  if (stack.depth > ScopeStack::kMax) {  // not known whose it is
    --stack.depth;
    point(*thread, flight::RecordKind::kScopeEnd, stack.path());
    return;
  }
  for (std::uint32_t i = stack.depth; i-- > 0;) {
    if (stack.levels[i].domain == domain.tag) return leave_level(*thread, i);
  }
}

void LaunchRecorder::mark(const ScopeDomain& domain, std::string_view name) noexcept {
  ThreadState* const thread = enter();
  if (thread == nullptr) return;
  point(*thread, flight::RecordKind::kMark, scope_of(*thread, thread->scopes.path(), domain, name));
}

std::uint64_t LaunchRecorder::begin_range(const ScopeDomain& domain, std::string_view name) noexcept {
  ThreadState* const thread = enter();
  if (thread == nullptr) return 0;
  const event::ScopeId scope = scope_of(*thread, {}, domain, name);
  std::uint32_t range = next_range_.fetch_add(1, std::memory_order_relaxed);
  if (range == 0) range = next_range_.fetch_add(1, std::memory_order_relaxed);  // all numbers have been used
  point(*thread, flight::RecordKind::kScopeBegin, scope, range);
  return std::uint64_t{range} << 32 | scope.value;
}

void LaunchRecorder::end_range(std::uint64_t range) noexcept {
  const auto number = static_cast<std::uint32_t>(range >> 32);
  const event::ScopeId scope{static_cast<std::uint32_t>(range)};
  if (number == 0 || (scope && parts_.scopes.path(scope) == nullptr)) return;  // none of ours
  if (ThreadState* const thread = enter()) point(*thread, flight::RecordKind::kScopeEnd, scope, number);
}

// They begin with the thread's first event: when they did before is not known.
void LaunchRecorder::adopt_early_scopes(ThreadState& thread) noexcept {
  const auto early = EarlyScopes::take();
  if (early == nullptr) return;
  const std::uint32_t named = std::min(early->depth, EarlyScopes::kMax);
  for (std::uint32_t i = 0; i < named; ++i) {
    const EarlyScopes::Level& level = early->levels[i];
    enter_scope(thread, level.domain, {level.name, level.length});
  }
}

}  // namespace gpuflight::capture
