// What ran, as a file for chrome://tracing or ui.perfetto.dev: one row per stream, one box per command.
#pragma once

#include "runtime/Program.h"
#include "runtime/Trace.h"

#include <mutex>

namespace braid::runtime {

class ChromeTrace : public TraceSink {
public:
  explicit ChromeTrace(const Program &program) : program(program) {}

  void command(const TraceEvent &event) override;
  size_t size() const { return events.size(); }
  Status write(const std::string &path) const;

private:
  struct Event {
    const char *entry, *command, *kind; // text of the session, which outlives the trace
    uint32_t stream;
    int64_t beginNs, endNs;
    std::string iterations;
  };

  const Program &program;
  std::mutex mutex; // streams report from their own threads
  std::vector<Event> events;
};

} // namespace braid::runtime
