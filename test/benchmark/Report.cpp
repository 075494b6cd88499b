#include "test/benchmark/Report.h"

#include <algorithm>

namespace braid::benchmark {
namespace {

constexpr size_t shownKernels = 25, shownShapes = 20;

// Columns as wide as their widest cell; the first is left-aligned, numbers are right-aligned.
class Table {
public:
  explicit Table(std::vector<std::string> header) : rows{std::move(header)} {}
  void add(std::vector<std::string> row) { rows.push_back(std::move(row)); }

  std::string text() const {
    std::vector<size_t> widths(rows[0].size(), 3);
    for (const auto &row : rows)
      for (size_t i = 0; i < row.size(); ++i)
        widths[i] = std::max(widths[i], row[i].size());
    std::string out;
    for (size_t r = 0; r < rows.size(); ++r) {
      for (size_t i = 0; i < rows[r].size(); ++i)
        out +=
            i == 0 ? fmt::format("| {:<{}} ", rows[r][i], widths[i]) : fmt::format("| {:>{}} ", rows[r][i], widths[i]);
      out += "|\n";
      if (r == 0) {
        for (size_t i = 0; i < widths.size(); ++i)
          out += i == 0 ? fmt::format("|{:-<{}}", "", widths[i] + 2) : fmt::format("|{:-<{}}:", "", widths[i] + 1);
        out += "|\n";
      }
    }
    return out + "\n";
  }

private:
  std::vector<std::vector<std::string>> rows;
};

double number(const Json &json, const char *key) { return json.at(key).get<double>(); }
std::string fixed(double value, int digits) { return fmt::format("{:.{}f}", value, digits); }
std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }
std::string mebibytes(const Json &json, const char *key) {
  return fmt::format("{:.1f} MiB", number(json, key) / (1 << 20));
}

std::vector<std::string> timeRow(const std::string &what, const Json &times, double tokens) {
  std::string rate = tokens > 0 ? fmt::format("{:.0f}", 1e3 * tokens / number(times, "median")) : "";
  return {what,
          fixed(number(times, "median"), 3),
          fixed(number(times, "fastest"), 3),
          fixed(number(times, "p10"), 3),
          fixed(number(times, "p90"), 3),
          rate};
}

std::string machineText(const Json &report) {
  const Json &machine = report["machine"];
  std::string features;
  for (const Json &feature : machine["cpu_features"])
    features += " " + feature.get<std::string>();
  return fmt::format("# Benchmark\n\n{}, {} cores, {:.0f} GiB;{}. {}, commit {}.\n\n",
                     machine["cpu"].get<std::string>(), machine["cores"].get<int>(),
                     number(machine, "memory_bytes") / (1 << 30), features, machine["date"].get<std::string>(),
                     report["commit"].get<std::string>());
}

// Time against floor of one kind of row; `most` rows, the others in one.
std::string floorTable(const std::string &title, const Json &rows, size_t most) {
  Table table({title, "calls", "ms", "share", "floor ms", "of floor", "bound", "MFLOP", "MB"});
  size_t shown = 0;
  double ms = 0, share = 0, floor = 0, flops = 0, bytes = 0;
  int64_t calls = 0;
  for (const Json &row : rows) {
    if (shown++ < most) {
      table.add({row["work"].get<std::string>(), row["calls"].dump(), fixed(number(row, "ms"), 3),
                 percent(number(row, "share")), fixed(number(row, "floor_ms"), 3), percent(number(row, "of_floor")),
                 number(row, "floor_ms") > 0 ? row["bound"].get<std::string>() : "",
                 fixed(1e-6 * number(row, "flops"), 2), fixed(1e-6 * number(row, "bytes"), 3)});
      continue;
    }
    ms += number(row, "ms");
    share += number(row, "share");
    floor += number(row, "floor_ms");
    flops += number(row, "flops");
    bytes += number(row, "bytes");
    calls += row["calls"].get<int64_t>();
  }
  if (shown > most)
    table.add({"all others", fmt::format("{}", calls), fixed(ms, 3), percent(share), fixed(floor, 3),
               percent(floor / std::max(ms, 1e-9)), "", fixed(1e-6 * flops, 2), fixed(1e-6 * bytes, 3)});
  return table.text();
}

std::string floorText(const Json &floors, const std::string &byteRateOf) {
  return fmt::format(
      "Floors: {:.3f} GFLOP at {:.1f} GFLOP/s (the products of the training step, each alone) or {:.2f} MB at {:.1f} "
      "GB/s ({}), whichever is longer for each op: {:.3f} ms in all. Time against the sum of "
      "floors: **{}** (fastest: {}); against the bytes alone: {}.\n\n",
      1e-9 * number(floors, "flops"), 1e-9 * number(floors, "flop_rate"), 1e-6 * number(floors, "bytes"),
      1e-9 * number(floors, "byte_rate"), byteRateOf, number(floors, "floor_ms"), percent(number(floors, "of_floor")),
      percent(number(floors, "of_floor_fastest")),
      percent(number(floors, "of_floor") * number(floors, "byte_floor_ms") / number(floors, "floor_ms")));
}

// What bounds decoding: weights that a cache keeps from token to token are read from there.
std::string weightsText(const Json &weights) {
  bool fit = weights["fit"].get<bool>();
  return fmt::format(
      "Weights: {:.1f} MB, of which a token reads {:.1f} MB; the last-level cache has {:.1f} MB, so they {} it. "
      "Reading all "
      "of them: {:.1f} GB/s; reading what a token needs, again and again: {:.1f} GB/s. Floors take the {} rate.\n\n",
      1e-6 * number(weights, "bytes"), 1e-6 * number(weights, "token_bytes"),
      1e-6 * number(weights, "last_level_cache_bytes"), fit ? "fit" : "do not fit", 1e-9 * number(weights, "read_rate"),
      1e-9 * number(weights, "token_read_rate"), fit ? "second" : "first");
}

std::string profileText(const Json &profile, bool kernels) {
  std::string byteRateOf = kernels ? fmt::format("a copy of the {:.1f} MB the entry touches",
                                                 1e-6 * number(profile["floors"], "footprint_bytes"))
                                   : std::string("reading weights");
  std::string out = floorText(profile["floors"], byteRateOf) + floorTable("op", profile["by_op"], shownKernels) +
                    floorTable("family", profile["by_family"], 100);
  if (!kernels)
    return out;
  out += floorTable("kernel or library call", profile["by_work"], shownKernels);

  Table shapes({"product", "calls", "GFLOP/s alone", "fastest", "in the step", "fastest", "ms in the step"});
  size_t shown = 0;
  for (const Json &row : profile["gemm"]["shapes"])
    if (shown++ < shownShapes)
      shapes.add({row["shape"].get<std::string>(), row["calls"].dump(), fixed(number(row, "alone_gflops"), 1),
                  fixed(number(row, "alone_fastest_gflops"), 1), fixed(number(row, "in_step_gflops"), 1),
                  fixed(number(row, "in_step_fastest_gflops"), 1),
                  fixed(number(row, "in_step_ms") * number(row, "calls"), 3)});
  return out + shapes.text();
}

std::string gemmText(const Json &gemm) {
  return fmt::format(
      "Matrix products: {:.3f} GFLOP, {:.1f} GFLOP/s over the whole time. Each shape alone: {:.1f} GFLOP/s (fastest "
      "{:.1f}). Share of that rate: **{}** (fastest against fastest: **{}**). Only library calls are "
      "counted here.\n\n",
      1e-9 * number(gemm, "flops"), number(gemm, "achieved_gflops"), number(gemm, "probe_gflops"),
      number(gemm, "probe_fastest_gflops"), percent(number(gemm, "share_of_probe")),
      percent(number(gemm, "share_of_probe_fastest")));
}

std::string modelText(const Json &model) {
  std::string out = fmt::format("## {}\n\n", model["model"].get<std::string>());
  if (model.contains("error"))
    return out + fmt::format("Failed, so nothing is reported: {}\n\n", model["error"].get<std::string>());
  const Json &gate = model["gate"], &train = model["train"], &busy = train["interference"];
  out += fmt::format("Gate: loss {:.4f} -> {:.4f} in {} steps on one batch; two runs give the same bits.\n",
                     number(gate, "first_loss"), number(gate, "last_loss"), gate["steps"].get<int>());
  out += fmt::format("While training was measured this process had {} of the cores, others {}, the host took {}; load "
                     "average {:.1f}.\n\n",
                     percent(number(busy, "own_share_of_cores")), percent(number(busy, "others_share_of_cores")),
                     percent(number(busy, "stolen_share_of_cores")), busy["load_average"][0].get<double>());

  double tokens = number(train, "batch") * number(train, "seq_len");
  Table times({"what", "median ms", "fastest", "p10", "p90", "tokens/s"});
  times.add(timeRow(fmt::format("train_step, {} x {} tokens, {} threads", train["batch"].dump(),
                                train["seq_len"].dump(), model["threads"].dump()),
                    train["step_ms"], tokens));
  if (!model["eval"].is_null())
    times.add(timeRow("eval_step", model["eval"]["step_ms"], tokens));
  if (!model["generate"].is_null()) {
    double sequences = number(model["generate"], "sequences");
    for (const Json &prefill : model["generate"]["prefill"])
      times.add(timeRow(fmt::format("prefill_{}", prefill["tokens"].dump()), prefill["ms"],
                        sequences * number(prefill, "tokens")));
    times.add(timeRow(fmt::format("decode_{}", sequences), model["generate"]["decode_ms"], sequences));
  }
  times.add(timeRow("compile, wall", model["compile"]["wall_ms"], 0));
  times.add(timeRow("compile, CPU", model["compile"]["cpu_ms"], 0));
  out += times.text();
  out += fmt::format("CPU time of a training step: {:.1f} ms. Program: load {:.1f} ms, session {:.1f} ms. Compile by "
                     "phase (wall ms):",
                     number(train, "cpu_ms_per_step"), number(model, "load_ms"), number(model, "session_ms"));
  for (auto &[phase, time] : model["compile"]["phase_ms"].items())
    out += fmt::format(" {} {:.0f},", phase, time.get<double>());
  out.back() = ';';
  out += fmt::format(" {} resident at most.\n\n", mebibytes(model["compile"], "peak_resident_bytes"));

  const Json &probes = model["probes"];
  out += "Probes:";
  for (const Json &copy : probes["copy"])
    out += fmt::format(" copy of {} {:.1f} GB/s (fastest {:.1f}, read + written);", mebibytes(copy, "bytes"),
                       number(copy, "gbytes_per_s"), number(copy, "fastest_gbytes_per_s"));
  if (probes.contains("large_gemm"))
    out += fmt::format(" {} {:.1f} GFLOP/s (fastest {:.1f});", probes["large_gemm"]["shape"].get<std::string>(),
                       number(probes["large_gemm"], "gflops"), number(probes["large_gemm"], "fastest_gflops"));
  out += fmt::format(" starting the threads {:.1f} us (fastest {:.1f}).\n\n", number(probes["fork_join_us"], "median"),
                     number(probes["fork_join_us"], "fastest"));

  const Json &memory = model["memory"];
  Table arenas({"arena", "planned"});
  for (auto &[name, bytes] : memory["arenas"].items())
    arenas.add({name, fmt::format("{:.1f} MiB", bytes.get<double>() / (1 << 20))});
  arenas.add({"all", mebibytes(memory, "planned_bytes")});
  out += arenas.text();
  out += fmt::format(
      "Resident: {:.1f} MiB more after {} steps than before the session, of {} planned; {} at most in all.\n\n",
      (number(memory, "resident_after_steps_bytes") - number(memory, "resident_before_session_bytes")) / (1 << 20),
      gate["steps"].dump(), mebibytes(memory, "planned_bytes"), mebibytes(memory, "peak_resident_bytes"));

  out += "### train_step\n\n" + gemmText(train["profile"]["gemm"]);
  out += fmt::format("{} commands; their medians add up to {:.1f} ms, their fastest times to {:.1f} ms.\n\n",
                     train["profile"]["commands"].dump(), number(train["profile"], "traced_ms"),
                     number(train["profile"], "traced_fastest_ms"));
  out += profileText(train["profile"], true);
  if (!model["generate"].is_null()) {
    const Json &profile = model["generate"]["profile"];
    out += fmt::format("### decode_{}\n\n", model["generate"]["sequences"].dump());
    if (number(profile["gemm"], "flops") > 0)
      out += gemmText(profile["gemm"]);
    out += fmt::format("{} commands; their medians add up to {:.3f} ms.\n\n", profile["commands"].dump(),
                       number(profile, "traced_ms"));
    out += weightsText(model["generate"]["weights"]) + profileText(profile, false);
    if (const Json &positions = model["generate"]["positions"]; !positions.empty()) {
      Table table({"decode behind", "median ms", "fastest", "p10", "p90", "resident MiB"});
      for (const Json &row : positions)
        table.add({row["position"].dump() + (row["tokens_read"].get<bool>() ? " tokens" : " cached tokens"),
                   fixed(number(row["ms"], "median"), 3), fixed(number(row["ms"], "fastest"), 3),
                   fixed(number(row["ms"], "p10"), 3), fixed(number(row["ms"], "p90"), 3),
                   fixed(number(row, "resident_bytes") / (1 << 20), 1)});
      out += table.text();
    }
  }
  return out;
}

} // namespace

std::string toMarkdown(const Json &report) {
  std::string out = machineText(report);
  for (const Json &model : report["models"])
    out += modelText(model);
  while (out.ends_with("\n\n"))
    out.pop_back();
  return out;
}

} // namespace braid::benchmark
