// Which files a command reads and which it writes. What it writes is created or emptied when it is opened, so a name
// that stands for two things must be refused before that.
#pragma once

#include "runtime/Status.h"

#include <string>
#include <vector>

namespace braid::run {

class FileUses {
public:
  // What is written, as it is recognised where it lies.
  enum class Kind { any, array, metrics, trace };

  // A file, or a directory of which every file counts. `flag` is what the command line calls it.
  void reads(const std::string &flag, const std::string &path);
  // A directory into which nothing may be written but hidden files: what is there is the data of the next run.
  void readsAll(const std::string &flag, const std::string &directory);
  void writes(const std::string &flag, const std::string &path, Kind kind);
  // A directory of checkpoints, or one checkpoint.
  void writesCheckpoints(const std::string &flag, const std::string &directory);
  void readsCheckpoints(const std::string &flag, const std::string &directory);

  // An error that says both flags when something that is written is also read, or written twice: the same name, the
  // same file by another name (links, other paths), or standard output or error sent to it; and when it would take the
  // place of a file of another kind. Devices and pipes hold nothing that could be lost.
  runtime::Status check() const;

private:
  struct Use {
    std::string flag, path;
    Kind kind = Kind::any;
  };
  std::vector<Use> inputs, outputs, dataDirectories, checkpointDirectories, checkpointOutputs;
};

} // namespace braid::run
