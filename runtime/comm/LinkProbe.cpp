#include "runtime/comm/LinkProbe.h"

#include "runtime/Stream.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <ctime>
#include <numeric>
#include <thread>

namespace braid::runtime {

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t smallBytes = 4; // to every peer
constexpr int rounds = 5;
constexpr double patience = 3; // times as long as it took before: beside other work an exchange may take any time

double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Of the calling thread: what it got of a core, whatever else runs on it.
double processorTime() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// A computation that lives in a core's cache, as kernels do.
class Computation {
public:
  struct Speed {
    double processor = 0, passes = 0; // seconds of the core; how often it went through all of it

    double rate() const { return passes / std::max(processor, 1e-9); }
  };

  template <class Done> Speed runUntil(Done done) {
    Speed speed;
    double begin = processorTime();
    do {
      pass();
      ++speed.passes;
    } while (!done());
    speed.processor = processorTime() - begin;
    return speed;
  }

private:
  // One code for all that are compared: a copy in each caller is a few percent faster or slower by where its loop begins.
  [[gnu::noinline]] void pass() {
    for (float &value : values)
      value = value * 0.999F + 0.001F;
  }

  std::vector<float> values = std::vector<float>(1 << 16, 1.0F);
};

struct Probe {
  Communicator &link;
  uint64_t largeBytes; // to every peer
  std::vector<std::byte> send, recv;
  Computation computation;

  explicit Probe(Communicator &link)
      : link(link), largeBytes(std::max<uint64_t>(256, (uint64_t(1) << 20) / (link.size() - 1))),
        send(static_cast<uint64_t>(link.size()) * largeBytes), recv(send.size()) {}

  Status exchange(uint64_t bytes, int64_t times) {
    Communicator::AllToAll args{send.data(), recv.data(), bytes};
    for (int64_t i = 0; i < times; ++i)
      BRAID_TRY(link.allToAll(args, "probe"));
    return Status::success();
  }

  // Everybody's, in which all count alike.
  Expected<double> mean(double own) {
    std::vector<double> all(static_cast<size_t>(link.size()));
    auto *bytes = reinterpret_cast<std::byte *>(all.data());
    BRAID_TRY(link.allGather(reinterpret_cast<const std::byte *>(&own), bytes, sizeof(own), "probe"));
    return std::accumulate(all.begin(), all.end(), 0.0) / link.size();
  }

  // At most so many exchanges, fewer where they take longer than `seconds`. -> their number, the same on all ranks.
  Expected<int64_t> exchangeFor(uint64_t bytes, int64_t times, double seconds) {
    auto begin = Clock::now();
    int64_t done = 0;
    for (double took = 0; done < times && took < seconds;) {
      int64_t part = std::min(times - done, std::max<int64_t>(done, 1)); // then it is at most twice as late
      BRAID_TRY(exchange(bytes, part));
      done += part;
      if (done < times) {
        BRAID_ASSIGN(took, mean(since(begin)));
      }
    }
    return done;
  }

  // How many exchanges take `seconds`, the same number on all ranks.
  Expected<int64_t> timesIn(uint64_t bytes, double seconds) {
    BRAID_TRY(exchange(bytes, 2)); // the library connects
    auto begin = Clock::now();
    int64_t times = 0;
    for (double most = 0; most < seconds / 10;) {
      BRAID_TRY(exchange(bytes, ++times));
      BRAID_ASSIGN(most, mean(since(begin)));
    }
    double took = 0;
    BRAID_ASSIGN(took, mean(since(begin) / static_cast<double>(times * (times + 1) / 2)));
    return std::max<int64_t>(1, std::llround(seconds / took));
  }

  struct Costs {
    // Seconds of an exchange; of the core, its own and those by which a computation beside it takes longer.
    double alone = 0, lost = 0;
  };

  // How fast a rank computes while nobody exchanges anything.
  Expected<double> undisturbed(double seconds) {
    auto begin = Clock::now();
    double rate = computation.runUntil([&] { return since(begin) > seconds; }).rate();
    BRAID_TRY(mean(rate).status()); // nobody's exchange begins before all are done
    return rate;
  }

  Expected<Costs> costs(uint64_t bytes, double seconds) {
    int64_t times = 0;
    BRAID_ASSIGN(times, timesIn(bytes, seconds));
    std::vector<double> alone, own, slower; // of an exchange
    for (int round = 0; round < rounds; ++round) {
      auto begin = Clock::now();
      int64_t exchanged = 0;
      BRAID_ASSIGN(exchanged, exchangeFor(bytes, times, patience * seconds));
      alone.push_back(since(begin) / static_cast<double>(exchanged));
      double before = 0, after = 0;
      BRAID_ASSIGN(before, undisturbed(seconds));
      Status status = Status::success();
      double busy = 0;
      std::atomic<bool> done = false;
      std::thread progress([&] { // as a session's
        askForShortTurns();
        Expected<int64_t> number = exchangeFor(bytes, times, patience * seconds);
        status = number.status();
        exchanged = number.ok() ? *number : 1;
        busy = processorTime();
        done = true;
      });
      Computation::Speed beside = computation.runUntil([&] { return done.load(); });
      progress.join();
      BRAID_TRY(std::move(status));
      BRAID_ASSIGN(after, undisturbed(seconds));
      // A core's rate wanders by more than an exchange takes of it, over a slow link for longer: it is held against what it was
      // on both sides, and what it seems to gain counts as what it seems to lose.
      own.push_back(busy / static_cast<double>(exchanged));
      slower.push_back(beside.processor * (1 - 2 * beside.rate() / (before + after)) / static_cast<double>(exchanged));
    }
    Costs result;
    BRAID_ASSIGN(result.alone, mean(median(alone)));
    BRAID_ASSIGN(result.lost, mean(median(own)));
    double rest = 0;
    BRAID_ASSIGN(rest, mean(median(slower)));
    result.lost += std::max(0.0, rest);
    return result;
  }
};

} // namespace

Expected<LinkCosts> probeLink(Communicator &link, std::chrono::milliseconds time) {
  if (link.size() < 2)
    return Status::error("axis {} has {} rank: there is no link to probe", link.axis(), link.size());
  // Each size is exchanged alone and beside a computation, which is looked at by itself before and after.
  double seconds = std::chrono::duration<double>(time).count() / (2 * 4 * rounds);
  Probe probe(link);
  Probe::Costs small, large;
  BRAID_ASSIGN(small, probe.costs(smallBytes, seconds));
  BRAID_ASSIGN(large, probe.costs(probe.largeBytes, seconds));
  // In front of its data a rank tells every peer what it calls: two messages each way.
  double peers = link.size() - 1, bytes = peers * static_cast<double>(probe.largeBytes);
  LinkCosts costs;
  costs.latency = small.alone / std::ceil(std::log2(link.size()));
  costs.bandwidth = bytes / std::max(large.alone - small.alone, 1e-9);
  costs.perMessage = small.lost / (4 * peers);
  costs.perByte = std::max(0.0, large.lost - small.lost) / (2 * bytes);
  return costs;
}

} // namespace braid::runtime
