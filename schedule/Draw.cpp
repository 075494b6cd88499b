//===- Draw.cpp - pictures of a schedule --------------------------------------------------------------------------===//
#include "schedule/Draw.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

using namespace braid::schedule;

static double makespan(const Schedule &schedule) {
  double latest = 0;
  for (double end : schedule.end)
    latest = std::max(latest, end);
  return latest;
}

/// Streams that run something.
static std::vector<size_t> usedStreams(const Schedule &schedule) {
  std::vector<size_t> used;
  for (size_t s = 0; s < schedule.orders.size(); ++s)
    if (!schedule.orders[s].empty())
      used.push_back(s);
  return used;
}

std::string braid::schedule::drawText(const Problem &problem, const Schedule &schedule, int64_t width) {
  size_t label = 0;
  for (size_t s : usedStreams(schedule))
    label = std::max(label, problem.streams[s].size());
  double scale = static_cast<double>(width) / std::max(makespan(schedule), 1e-300);
  std::string text;
  for (size_t s : usedStreams(schedule)) {
    std::string line(width, '.');
    for (int64_t task : schedule.orders[s]) {
      auto begin = std::min(width, static_cast<int64_t>(std::lround(schedule.start[task] * scale)));
      auto end = std::min(width, static_cast<int64_t>(std::lround(schedule.end[task] * scale)));
      if (end <= begin)
        continue;
      // [-A0.1--]: the brackets are the first and, where there is room, the last character.
      std::string box(end - begin, '-');
      const std::string &name = problem.tasks[task].shown();
      if (box.size() > name.size())
        box.replace((box.size() - name.size() + 1) / 2, name.size(), name);
      box.front() = '[';
      if (box.size() >= name.size() + 2)
        box.back() = ']';
      line.replace(begin, end - begin, box);
    }
    text += fmt::format("{:<{}} {}\n", problem.streams[s], label, line);
  }
  return text;
}

/// Characters that mean something in XML, and in JSON.
static std::string escaped(const std::string &text, bool xml) {
  std::string result;
  for (char c : text)
    if (xml && (c == '<' || c == '&' || c == '"'))
      result += c == '<' ? "&lt;" : c == '&' ? "&amp;" : "&quot;";
    else if (!xml && (c == '"' || c == '\\'))
      result += {'\\', c};
    else if (static_cast<unsigned char>(c) >= 0x20)
      result += c;
  return result;
}

/// Whether a name is that of a task, "A0.1", "WM3.0.grad".
static bool isTask(const std::string &name) {
  size_t digit = name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ");
  return digit != std::string::npos && digit > 0 && name[digit] >= '0' && name[digit] <= '9';
}

/// Mixers blue, experts orange, exchanges green, gathers and scatters of split experts purple, weight gradients yellow,
/// what is no task grey where it computes, light green where it travels.
static const char *colour(const std::string &name, bool computes) {
  switch (isTask(name) ? name[0] : ' ') {
  case 'A': return "#7aa6d8";
  case 'M': return "#f0a860";
  case 'D': return "#8cc68a";
  case 'C': return "#5da58f";
  case 'G': return "#b79ad6";
  case 'R': return "#9177b8";
  case 'W': return "#e6d37a";
  default: return computes ? "#c0c0c0" : "#c4dfc2";
  }
}

std::string braid::schedule::drawSvg(const Problem &problem, const Schedule &schedule, const std::string &title,
                                     const std::string &unit) {
  std::vector<size_t> streams = usedStreams(schedule);
  size_t most = 0, letters = 0; // tasks of a stream, letters of its name
  for (size_t s : streams) {
    most = std::max(most, schedule.orders[s].size());
    letters = std::max(letters, problem.streams[s].size());
  }
  // Up to 30 tasks fit; each of more has 32 points on average, room for "A0.1".
  const double left = std::max(80.0, 6.2 * static_cast<double>(letters) + 14), row = 34, top = 30,
               width = std::clamp(32.0 * static_cast<double>(most), 960.0, 32000.0);
  double span = makespan(schedule), scale = width / std::max(span, 1e-300);
  const std::string behind = unit.empty() ? "" : " " + unit;
  double height = top + row * static_cast<double>(streams.size());
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:g}\" height=\"{1:g}\" viewBox=\"0 0 {0:g} {1:g}\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<text x=\"{2:g}\" y=\"16\">{3}</text>\n<text x=\"{4:g}\" y=\"16\" text-anchor=\"end\">makespan "
      "{5:.6g}{6}</text>\n",
      left + width + 20, height + 24, left, escaped(title, /*xml=*/true), left + width, span, behind);
  for (size_t i = 0; i < streams.size(); ++i) {
    double y = top + row * static_cast<double>(i);
    svg += fmt::format("<text x=\"{:g}\" y=\"{:g}\" text-anchor=\"end\">{}</text>\n", left - 8, y + 19,
                       escaped(problem.streams[streams[i]], /*xml=*/true));
    svg += fmt::format("<rect x=\"{:g}\" y=\"{:g}\" width=\"{:g}\" height=\"26\" fill=\"#f2f2f2\"/>\n", left, y, width);
    for (int64_t task : schedule.orders[streams[i]]) {
      double x = left + schedule.start[task] * scale, w = (schedule.end[task] - schedule.start[task]) * scale;
      if (w <= 0)
        continue;
      const Task &own = problem.tasks[task];
      std::string name = escaped(own.shown(), /*xml=*/true);
      // The backward of a model is lighter.
      const char *opacity = own.shown().ends_with(".grad") ? " fill-opacity=\"0.6\"" : "";
      svg += fmt::format("<rect x=\"{:.2f}\" y=\"{:g}\" width=\"{:.2f}\" height=\"26\" fill=\"{}\"{} stroke=\"white\">"
                         "<title>{}{}{} {:.6g} to {:.6g}{}</title></rect>\n",
                         x, y, w, colour(own.shown(), problem.computes(own.stream)), opacity,
                         own.label.empty() ? "" : own.label + ": ", escaped(own.name, /*xml=*/true),
                         own.microBatch < 0 ? "" : fmt::format(" of micro-batch {}", own.microBatch),
                         schedule.start[task], schedule.end[task], behind);
      if (w > 7.0 * static_cast<double>(name.size()))
        svg += fmt::format("<text x=\"{:.2f}\" y=\"{:g}\" text-anchor=\"middle\">{}</text>\n", x + w / 2, y + 17, name);
    }
  }
  for (int tick = 0; tick <= 4; ++tick)
    svg += fmt::format("<text x=\"{:g}\" y=\"{:g}\" text-anchor=\"middle\" fill=\"#606060\">{:.4g}{}</text>\n",
                       left + width * tick / 4, height + 12, span * tick / 4, behind);
  return svg + "</svg>\n";
}

std::string braid::schedule::drawTrace(const Problem &problem, const Schedule &schedule, double unitSeconds,
                                       int64_t ranks) {
  std::string trace = ranks ? fmt::format("{{\"ranks\":{},\"traceEvents\":[\n", ranks) : "{\"traceEvents\":[\n";
  for (size_t s : usedStreams(schedule))
    trace +=
        fmt::format("{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":0,\"tid\":{},\"args\":{{\"name\":\"{}\"}}}},\n", s,
                    escaped(problem.streams[s], /*xml=*/false));
  const char *separator = "";
  for (size_t s : usedStreams(schedule))
    for (int64_t task : schedule.orders[s]) {
      const Task &own = problem.tasks[task];
      std::string args;
      if (!own.label.empty())
        args = fmt::format("\"task\":\"{}\"", escaped(own.label, /*xml=*/false));
      if (own.microBatch >= 0)
        args += fmt::format("{}\"micro_batch\":{}", args.empty() ? "" : ",", own.microBatch);
      trace += fmt::format("{}{{\"ph\":\"X\",\"name\":\"{}\",\"pid\":0,\"tid\":{},\"ts\":{:.6f},\"dur\":{:.6f}{}}}",
                           separator, escaped(own.name, /*xml=*/false), s, 1e6 * unitSeconds * schedule.start[task],
                           1e6 * unitSeconds * (schedule.end[task] - schedule.start[task]),
                           args.empty() ? "" : fmt::format(",\"args\":{{{}}}", args));
      separator = ",\n";
    }
  return trace + "\n]}\n";
}
