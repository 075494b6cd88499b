#include "tools/braid-run/Commands.h"

#include <csignal>

namespace braid::run {

namespace {

std::atomic<bool> stopRequested = false;
std::atomic<int> stoppedBy = 0;
bool wasStopped = false;

void requestStop(int signal) {
  stoppedBy = signal;
  stopRequested = true;
}

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

void endAsStopped() { wasStopped = true; }

int statusOfStop() {
  // A process that stopped because another one did has seen no signal.
  return wasStopped ? 128 + (stoppedBy ? stoppedBy.load() : SIGTERM) : 0;
}

} // namespace braid::run
