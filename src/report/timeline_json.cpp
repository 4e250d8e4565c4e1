#include <bit>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <vector>

#include "report/html_report.h"
#include "report/kernel_name.h"

namespace gpuflight::report {
namespace {

using Json = nlohmann::ordered_json;
using analysis::DrawnName;
using analysis::DrawnTrack;
using analysis::DrawnWork;

static_assert(std::endian::native == std::endian::little, "columns are embedded as they lie in memory");

constexpr std::size_t kMostNameColumns = 110;

std::string base64(const unsigned char* bytes, std::size_t size) {
  constexpr char kLetters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((size + 2) / 3 * 4);
  for (std::size_t i = 0; i < size; i += 3) {
    const std::uint32_t second = i + 1 < size ? bytes[i + 1] : 0, third = i + 2 < size ? bytes[i + 2] : 0;
    const std::uint32_t three = static_cast<std::uint32_t>(bytes[i]) << 16 | second << 8 | third;
    out += kLetters[three >> 18 & 63];
    out += kLetters[three >> 12 & 63];
    out += i + 1 < size ? kLetters[three >> 6 & 63] : '=';
    out += i + 2 < size ? kLetters[three & 63] : '=';
  }
  return out;
}

// One value of each piece, as an array of JavaScript's kind.
template <class T, class Get>
Json column(const std::vector<DrawnTrack>& tracks, Get get) {
  std::vector<T> values;
  for (const DrawnTrack& track : tracks) {
    for (const DrawnWork& work : track.works) values.push_back(static_cast<T>(get(track, work)));
  }
  return base64(reinterpret_cast<const unsigned char*>(values.data()), values.size() * sizeof(T));
}

std::string title_of(const DrawnTrack& track) {
  if (track.host) return fmt::format("host thread {}", track.number);
  std::string title = track.number != 0 ? fmt::format("stream {}", track.number) : "(unknown stream)";
  if (track.stream) {
    if (track.stream->kind == event::StreamInfo::Kind::kLegacyDefault) title += " (default)";
    if (track.stream->kind == event::StreamInfo::Kind::kPerThreadDefault) title += " (thread default)";
    if (track.stream->priority.value_or(0) != 0) title += fmt::format(" prio {}", *track.stream->priority);
  }
  if (track.lane > 0) title = fmt::format("side by side {}", track.lane + 1);
  return title;
}

Json name_json(const DrawnName& name, KernelNames& names) {
  const int kind = static_cast<int>(name.kind);
  if (name.kind != analysis::DrawnKind::kKernel) return Json{{"name", printable(name.text)}, {"kind", kind}};
  Json out{{"name", name.text.empty() ? "(unknown kernel)" : names.of(name.text)}, {"kind", kind}};
  if (!name.details) return out;
  out["block"] = fmt::format("({},{},{})", name.shape.block.x, name.shape.block.y, name.shape.block.z);
  out["regs"] = name.facts.num_regs >= 0 ? Json(name.facts.num_regs) : Json(nullptr);
  out["static_shared"] = name.facts.static_shared_bytes >= 0 ? Json(name.facts.static_shared_bytes) : Json(nullptr);
  out["dyn_shared"] = name.shape.dyn_shared_bytes;
  out["occupancy"] = name.occupancy ? Json(*name.occupancy) : Json(nullptr);
  out["limiters"] = Json::array();
  for (int i = 0; i < event::kLimiterCount; ++i) {
    if ((name.limiters & event::limiter_bit(static_cast<event::Limiter>(i))) != 0) {
      out["limiters"].push_back(event::kLimiterNames[i]);
    }
  }
  return out;
}

}  // namespace

std::string timeline_json(const analysis::WorkSample& works, const analysis::Analysis& analysis) {
  const std::vector<DrawnTrack>& tracks = works.tracks();
  const auto offset_of = [&](const DrawnTrack& track) {
    return track.log < analysis.logs.size() ? analysis.logs[track.log].offset_ns : 0;
  };
  KernelNames names(kMostNameColumns);
  Json out{{"seen", works.seen()},
           {"drawn", works.drawn()},
           {"merged_below_ns", works.merged_below_ns()},
           {"left_out", works.left_out()}};
  out["tracks"] = Json::array();
  std::size_t row = 0;
  for (const DrawnTrack& track : tracks) {
    out["tracks"].push_back(Json{{"title", title_of(track)},
                                 {"log", track.log},
                                 {"host", track.host},
                                 {"device", track.device >= 0 ? Json(track.device) : Json(nullptr)},
                                 {"from", row},
                                 {"to", row + track.works.size()}});
    row += track.works.size();
  }
  out["names"] = Json::array();
  for (const DrawnName& name : works.names()) out["names"].push_back(name_json(name, names));
  out["start"] = column<double>(tracks, [&](const auto& t, const auto& w) { return w.start_ns + offset_of(t); });
  out["length"] = column<float>(tracks, [](const auto&, const auto& w) { return w.end_ns - w.start_ns; });
  out["busy"] = column<float>(tracks, [](const auto&, const auto& w) { return w.busy_ns; });
  out["queue"] = column<float>(tracks, [](const auto&, const auto& w) { return w.queue_ns; });
  out["amount"] = column<float>(tracks, [](const auto&, const auto& w) { return w.amount; });
  out["pieces"] = column<std::uint32_t>(tracks, [](const auto&, const auto& w) { return w.pieces; });
  out["name"] = column<std::uint16_t>(tracks, [](const auto&, const auto& w) { return w.name; });
  out["kind"] = column<std::uint8_t>(tracks, [](const auto&, const auto& w) { return static_cast<int>(w.kind); });
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace gpuflight::report
