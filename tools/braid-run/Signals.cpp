#include "tools/braid-run/Commands.h"

#include <csignal>

namespace braid::run {

namespace {

std::atomic<bool> stopRequested = false;

void requestStop(int) { stopRequested = true; }

} // namespace

std::atomic<bool> &stopOnSignals() {
  struct sigaction action = {};
  action.sa_handler = requestStop;
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGUSR1, &action, nullptr); // what batch systems send before the time is over, and mpirun hands on
  // The terminal was closed. Under nohup, which ignores that, it stays ignored.
  struct sigaction before = {};
  if (sigaction(SIGHUP, nullptr, &before) == 0 && before.sa_handler != SIG_IGN)
    sigaction(SIGHUP, &action, nullptr);
  return stopRequested;
}

} // namespace braid::run
