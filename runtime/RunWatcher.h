// RunWatcher: what may look into a running entry. Session::setWatcher(nullptr), the default, costs nothing.
#pragma once

#include <cstdint>
#include <span>

namespace braid::schema {
struct Command;
}

namespace braid::runtime {

// A command and the iterations of the repeats around it, outermost first; valid during the call.
struct WatchedCommand {
  const schema::Command &command;
  std::span<const int64_t> iterations;
  const char *where; // "entry 'train_step' command 3.1 'layers.*.lsm.scan'"
  int32_t layer; // the absolute layer it is a part of; -1: of none
};

// Called on the thread that calls run().
class RunWatcher {
public:
  virtual ~RunWatcher() = default;
  // Once per run, before the first command that touches the arena of a moment: everything an update reads is there,
  // nothing it changes has changed. False ends the run here, without an error.
  virtual bool beforeUpdate() { return true; }
  // Wants to see every command: joined launches are executed one by one, and these two are called around every command
  // of stream 0.
  virtual bool everyCommand() const { return false; }
  virtual void before(const WatchedCommand &) {}
  virtual void after(const WatchedCommand &) {}
};

} // namespace braid::runtime
