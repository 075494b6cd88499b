#include "runtime/io/ChromeTrace.h"

#include "runtime/io/File.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace braid::runtime {

using Json = nlohmann::ordered_json;

void ChromeTrace::command(const TraceEvent &event) {
  std::lock_guard lock(mutex);
  events.push_back({event.entry, event.command, event.kind, event.stream, event.beginNs, event.endNs,
                    fmt::format("{}", fmt::join(event.iterations, ", "))});
}

Status ChromeTrace::write(const std::string &path) const {
  Json list = Json::array();
  for (size_t i = 0; i < program.streams().size(); ++i)
    list.push_back({{"name", "thread_name"},
                    {"ph", "M"},
                    {"pid", 0},
                    {"tid", i},
                    {"args", {{"name", program.streams()[i].name}}}});
  int64_t origin = INT64_MAX;
  for (const Event &event : events)
    origin = std::min(origin, event.beginNs);
  for (const Event &event : events) {
    Json args = {{"entry", event.entry}};
    if (!event.iterations.empty())
      args["iterations"] = event.iterations;
    list.push_back({{"name", event.command},
                    {"cat", event.kind},
                    {"ph", "X"},
                    {"pid", 0},
                    {"tid", event.stream},
                    {"ts", static_cast<double>(event.beginNs - origin) / 1000}, // microseconds
                    {"dur", static_cast<double>(event.endNs - event.beginNs) / 1000},
                    {"args", std::move(args)}});
  }
  Json trace = {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(list)}};
  return writeFileAtomic(path, trace.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

} // namespace braid::runtime
