#include "runtime/io/ChromeTrace.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace braid::runtime {

using Json = nlohmann::ordered_json;

Expected<std::unique_ptr<ChromeTrace>> ChromeTrace::create(const std::string &path, const Program &program) {
  std::error_code error;
  bool isNew = std::filesystem::symlink_status(path, error).type() == std::filesystem::file_type::not_found;
  BRAID_ASSIGN(OutputFile file, OutputFile::openInPlace(path));
  std::unique_ptr<ChromeTrace> trace(new ChromeTrace(std::move(file), isNew));
  for (const StreamInfo &stream : program.streams())
    trace->streams.push_back(rowName(stream));
  trace->sinks.resize(program.mesh().worldSize());
  return trace;
}

ChromeTrace::~ChromeTrace() {
  if (isNew)
    std::remove(file.path().c_str());
}

std::string rowName(const StreamInfo &stream) {
  return stream.axis.empty() ? stream.name : "communication over " + stream.axis;
}

// "A.1": a kind of task and a slice.
static bool isTask(std::string_view word) {
  size_t dot = word.find('.');
  auto all = [](std::string_view part, auto is) { return !part.empty() && std::all_of(part.begin(), part.end(), is); };
  return dot != std::string_view::npos && all(word.substr(0, dot), [](char c) { return c >= 'A' && c <= 'Z'; }) &&
         all(word.substr(dot + 1), [](char c) { return c >= '0' && c <= '9'; });
}

// A command of a layer is named "<function> <op> <kernel>", where tasks are woven "<function> <task> <op> <kernel>"; which of
// the function's layers it is stands in front instead.
CommandLabel labelOf(std::string_view command, int64_t layer) {
  if (layer < 0)
    return {std::string(command), "", ""};
  size_t space = std::min(command.find(' '), command.size());
  CommandLabel label{"", std::string(command.substr(0, space)), ""};
  std::string_view rest = command.substr(space);
  std::string_view word = rest.substr(0, rest.find(' ', 1));
  if (!word.empty() && isTask(word.substr(1))) {
    size_t dot = word.find('.');
    label.task = fmt::format("{}{}{}{}", word.substr(1, dot - 1), layer, word.substr(dot),
                             label.function.ends_with(".grad") ? ".grad" : "");
    rest.remove_prefix(word.size());
  }
  label.name = fmt::format("layers.{}{}", layer, rest);
  return label;
}

void ChromeTrace::Sink::command(const TraceEvent &event) {
  Event kept{labelOf(event.command, event.layer),
             event.kind,
             event.entry,
             event.op,
             fmt::format("{}", fmt::join(event.iterations, ", ")),
             event.stream,
             event.layer,
             event.microBatch,
             event.beginNs,
             event.endNs,
             event.sentBytes};
  std::lock_guard lock(mutex);
  events.push_back(std::move(kept));
}

bool ChromeTrace::recorded() const {
  return std::any_of(sinks.begin(), sinks.end(), [](const Sink &sink) { return !sink.events.empty(); });
}

Status ChromeTrace::write() {
  Json list = Json::array();
  auto describe = [&](const char *what, size_t rank, size_t stream, Json args) {
    list.push_back({{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", stream}, {"args", std::move(args)}});
  };
  int64_t origin = INT64_MAX;
  for (size_t rank = 0; rank < sinks.size(); ++rank) {
    describe("process_name", rank, 0, {{"name", fmt::format("rank {}", rank)}});
    describe("process_sort_index", rank, 0, {{"sort_index", rank}});
    for (size_t stream = 0; stream < streams.size(); ++stream) {
      describe("thread_name", rank, stream, {{"name", streams[stream]}});
      describe("thread_sort_index", rank, stream, {{"sort_index", stream}});
    }
    for (const Event &event : sinks[rank].events)
      origin = std::min(origin, event.beginNs);
  }
  for (size_t rank = 0; rank < sinks.size(); ++rank)
    for (const Event &event : sinks[rank].events) {
      Json args = {{"entry", event.entry}};
      if (!event.op.empty())
        args["op"] = event.op;
      if (event.layer >= 0) {
        args["layer"] = event.layer;
        args["function"] = event.label.function;
      }
      if (event.microBatch >= 0)
        args["micro_batch"] = event.microBatch;
      if (!event.label.task.empty())
        args["task"] = event.label.task;
      if (event.kind == "collective")
        args["sent_bytes"] = event.sentBytes;
      if (!event.iterations.empty())
        args["iterations"] = event.iterations;
      list.push_back({{"name", event.label.name},
                      {"cat", event.kind},
                      {"ph", "X"},
                      {"pid", rank},
                      {"tid", event.stream},
                      {"ts", static_cast<double>(event.beginNs - origin) / 1000}, // microseconds
                      {"dur", static_cast<double>(event.endNs - event.beginNs) / 1000},
                      {"args", std::move(args)}});
    }
  Json trace = {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(list)}};
  std::string text = trace.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  std::error_code error;
  if (std::filesystem::file_type type = std::filesystem::status(file.path(), error).type();
      type != std::filesystem::file_type::regular && type != std::filesystem::file_type::not_found) {
    BRAID_TRY(file.write(text)); // a pipe, a device
    return file.close();
  }
  BRAID_TRY(writeReplacing(file.path(), [&](OutputFile &whole) { return whole.write(text); }));
  isNew = false;
  return file.close();
}

} // namespace braid::runtime
