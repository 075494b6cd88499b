#include "runtime/comm/MpiArrivals.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <dirent.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace braid::runtime {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr microseconds shortestNap(10), longestNap(160);
constexpr int longestWait = 1; // ms for a socket: what another axis has taken out of it is noticed then
constexpr int mostYields = 50; // before the first nap, where nothing announces a message
constexpr int mostMisses = 4, mostIdleWakes = 16;
constexpr milliseconds firstSearches(20), lastSearches(5000);

MpiArrivals::~MpiArrivals() {
  if (epoll >= 0)
    close(epoll);
}

void MpiArrivals::begin() {
  // What was waited for before ended with the last pause, so something had come.
  note();
  questions = idleWakes = 0;
  nap = shortestNap;
  waited = woken = false;
}

void MpiArrivals::note() {
  if (!waited)
    return;
  misses = woken ? 0 : misses + 1;
  if (woken)
    betweenSearches = firstSearches;
  else if (misses >= mostMisses)
    announced = false;
}

void MpiArrivals::pause(bool progress) {
  if (progress) {
    note();
    questions = 0;
    nap = shortestNap;
  }
  ++questions;
  if (progress || (waited && !woken))
    idleWakes = 0;
  else if (woken)
    ++idleWakes;
  if (!announced && Clock::now() >= nextSearch)
    findSockets();
  // A socket may hold what the library does not take: it announces nothing.
  waited = announced && idleWakes < mostIdleWakes;
  woken = false;
  if (waited) {
    epoll_event event;
    woken = epoll_wait(epoll, &event, 1, longestWait) > 0;
  } else if (!announced && questions < mostYields) {
    sched_yield(); // a rank that shares its core with others must let them run
  } else {
    std::this_thread::sleep_for(nap);
    nap = std::min(nap * 2, longestNap);
  }
}

static bool isConnection(int descriptor) {
  auto option = [&](int name) {
    int value = 0;
    socklen_t size = sizeof(value);
    return getsockopt(descriptor, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
  };
  int domain = option(SO_DOMAIN);
  return (domain == AF_INET || domain == AF_INET6) && option(SO_TYPE) == SOCK_STREAM && option(SO_ACCEPTCONN) == 0;
}

void MpiArrivals::findSockets() {
  // Again and again while ranks meet, then less and less where sockets do not help.
  betweenSearches = std::clamp(betweenSearches * 2, firstSearches, lastSearches);
  nextSearch = Clock::now() + betweenSearches;
  misses = 0;
  if (epoll < 0)
    epoll = epoll_create1(EPOLL_CLOEXEC);
  DIR *folder = epoll < 0 ? nullptr : opendir("/proc/self/fd");
  if (!folder)
    return;
  while (const dirent *entry = readdir(folder)) {
    const char *name = entry->d_name;
    int descriptor = -1;
    if (std::from_chars(name, name + std::strlen(name), descriptor).ec != std::errc() || !isConnection(descriptor))
      continue;
    epoll_event event{};
    event.events = EPOLLIN;
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) == 0 || errno == EEXIST)
      announced = true; // it is closed some day, and goes from here by itself
  }
  closedir(folder);
}

} // namespace braid::runtime
