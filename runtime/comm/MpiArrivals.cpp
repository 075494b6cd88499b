#include "runtime/comm/MpiArrivals.h"

#include <algorithm>
#include <atomic>
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
constexpr microseconds longestWait(1000); // for a socket: what another axis has taken out of it is noticed then
constexpr microseconds betweenPackets(200);
constexpr int mostYields = 50; // before the first nap, where nothing announces a message
constexpr int mostMisses = 4, mostIdleWakes = 16;
constexpr milliseconds firstSearches(20), lastSearches(5000);

static std::atomic<uint64_t> unannouncedMessages, misledMessages;
uint64_t MpiArrivals::unannounced() { return unannouncedMessages; }
uint64_t MpiArrivals::misled() { return misledMessages; }

MpiArrivals::~MpiArrivals() {
  if (epoll >= 0)
    close(epoll);
}

void MpiArrivals::begin() {
  // What was waited for before ended with the last pause, so something had come.
  note();
  questions = idleWakes = 0;
  nap = shortestNap;
  paused = waited = listened = woken = false;
}

void MpiArrivals::note() {
  if (woken) { // a socket that held a message
    announced = true;
    misses = 0;
    betweenSearches = firstSearches;
    return;
  }
  unannouncedMessages += paused;
  misledMessages += waited;
  if (waited && ++misses >= mostMisses)
    announced = false;
}

void MpiArrivals::pause(bool progress) {
  if (progress) {
    note();
    questions = 0;
    nap = shortestNap;
  }
  ++questions;
  if (progress || (listened && !woken))
    idleWakes = 0;
  else if (woken)
    ++idleWakes;
  if (!announced && Clock::now() >= nextSearch)
    findSockets();
  // The middle of a message: packets are collected, for each of them asked for by itself costs more than what is in it.
  if (woken && !progress)
    std::this_thread::sleep_for(betweenPackets);
  // A socket may hold what the library does not take: it announces nothing.
  bool idle = idleWakes >= mostIdleWakes;
  paused = true;
  waited = announced && !idle;
  listened = woken = false;
  if (!announced && questions < mostYields) {
    sched_yield(); // a rank that shares its core with others must let them run
  } else if (idle) {
    std::this_thread::sleep_for(longestNap);
  } else {
    listened = true;
    woken = sleep(announced ? longestWait : nap);
    nap = std::min(nap * 2, longestNap);
  }
}

bool MpiArrivals::sleep(microseconds most) const {
  epoll_event event;
  timespec time{0, std::chrono::nanoseconds(most).count()};
  int ready = epoll < 0 ? -1 : epoll_pwait2(epoll, &event, 1, &time, nullptr);
  if (ready < 0) // no sockets to listen to, or a kernel before 5.11
    std::this_thread::sleep_for(std::min(most, longestNap));
  return ready > 0;
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
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) ==
        0) { // it is closed some day, and goes from here by itself
      announced = true;
      misses = 0;
    }
  }
  closedir(folder);
}

} // namespace braid::runtime
