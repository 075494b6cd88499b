// What ran, as a file for chrome://tracing or ui.perfetto.dev: one group per rank, in it one row per stream (compute,
// communication over an axis), one box per command, named by layer and op.
#pragma once

#include "runtime/Program.h"
#include "runtime/Trace.h"
#include "runtime/io/File.h"

#include <deque>
#include <memory>
#include <mutex>

namespace braid::runtime {

// What a trace calls a command, and a plan of it (braid-plan --trace), so that the two can be compared.
struct CommandLabel {
  std::string name;     // "layers.3 rows moe.dispatch"; of no layer: the command's own
  std::string function; // of the layer: "layer_L_M_4x64", with ".grad" backward; empty: of no layer
  std::string task;     // of the schedule: kind, layer, slice: "D3.1", with ".grad" backward; empty: of none
};
// `command`: its name in the program; `layer`: its absolute index, -1 for none.
CommandLabel labelOf(std::string_view command, int64_t layer);

// What the row of a stream is called: "compute", "communication over ep".
std::string rowName(const StreamInfo &stream);

class ChromeTrace {
public:
  // Opens the file at once: a path that cannot be written shows before anything has run. A file that was not there is
  // removed again when there is nothing to write.
  static Expected<std::unique_ptr<ChromeTrace>> create(const std::string &path, const Program &program);

  // Where rank `index` reports; any number of its streams at once.
  TraceSink &rank(int index) { return sinks[static_cast<size_t>(index)]; }
  // Whether any rank reported anything.
  bool recorded() const;
  ~ChromeTrace();
  // Writes what all ranks reported, the whole of it or, where there is no room, nothing: what the file held stays then.
  // A device stays a device and a link a link. When no session reports any more.
  Status write();

private:
  struct Event {
    CommandLabel label;
    std::string kind, entry, op, iterations;
    uint32_t stream;
    int32_t layer, microBatch;
    int64_t beginNs, endNs;
    uint64_t sentBytes;
  };
  struct Sink : TraceSink {
    void command(const TraceEvent &event) override;
    std::mutex mutex; // streams report from their own threads
    std::vector<Event> events;
  };

  ChromeTrace(OutputFile file, bool isNew) : file(std::move(file)), isNew(isNew) {}

  OutputFile file; // a pipe must be held: its reader would see an end
  bool isNew; // made here, and empty
  std::vector<std::string> streams; // what their rows are called
  std::deque<Sink> sinks; // one per rank of the program's mesh
};

} // namespace braid::runtime
