//===- main.cpp - braid-tune: the schedule of a model, searched, measured and written down ------------------------===//
#include "runtime/comm/Processes.h"
#include "tools/braid-plan/Forecast.h"
#include "tools/braid-tune/Tuner.h"
#include "tools/common/GivenFlags.h"
#include "tools/common/IntegerFlag.h"
#include "tools/common/ToolMain.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"

using namespace braid;
using namespace braid::tune;

/// Beside this program, else in PATH, else empty.
static std::string findBraidRun(const char *self) {
  static char here; // of this program, not of a library
  std::string own = llvm::sys::fs::getMainExecutable(self, &here);
  llvm::SmallString<256> beside(llvm::sys::path::parent_path(own));
  llvm::sys::path::append(beside, "braid-run");
  if (llvm::sys::fs::can_execute(beside))
    return beside.str().str();
  llvm::ErrorOr<std::string> found = llvm::sys::findProgramByName("braid-run");
  return found ? *found : "";
}

/// One braid-tune searches and starts the ranks, so one of several that a launcher has started is a mistake. 0, or 1
/// after a message.
static int checkAlone() {
  auto processes = runtime::joinProcesses(runtime::Launcher::automatic);
  if (!processes.ok())
    return printError(processes.status().message()), 1;
  if (!*processes)
    return 0;
  if ((*processes)->rank() == 0)
    printError((*processes)->startedBy() + llvm::Twine(" started ") + llvm::Twine((*processes)->size()) +
               " of it, but one searches and starts the ranks itself; valid: --launch=\"mpirun -n " +
               llvm::Twine((*processes)->size()) + "\" behind one braid-tune");
  (*processes)->finish();
  return 1;
}

/// The flag that decides what programs are compiled for, which is returned.
static CLI::Option *addOptions(CLI::App &app, Options &options) {
  CompileOptions &compile = options.job.options;
  compile.secondsOf = plan::secondsOnMachine; // as whoever compiles what is chosen
  app.add_option("model", options.job.input, "a model description")->required()->type_name("MODEL.json");
  notEmpty(app.add_option("-o,--output", options.output,
                          "the description with the choice; may be MODEL.json itself, but for a config.json of other "
                          "software; - for standard output"))
      ->required()
      ->type_name("TUNED.json");
  notEmpty(app.add_option("--mesh", compile.mesh, "ranks by axis, as braid-compile"))->type_name("AXIS=N,..");
  notEmpty(app.add_option("--cluster", options.clusterFile,
                          "devices and links that predictions are for "
                          "(models/clusters)"))
      ->type_name("C.json");
  notEmpty(app.add_option("--launch", options.launch,
                          "what starts braid-run on the ranks to measure on, such as \"mpirun -n 2\" (default: ranks "
                          "are threads of one process); files go through TMPDIR, which all ranks must see"))
      ->type_name("COMMAND");
  integerIn(app.add_option("--batch", compile.batch, "as braid-compile"), 1, maxTokens);
  integerIn(app.add_option("--seq-len", compile.seqLen, "as braid-compile"), 1, maxTokens);
  CLI::Option *cpu =
      app.add_option("--cpu", compile.cpu, "as braid-compile; with --predict-only x86-64-v3 if not given");
  notEmpty(cpu)->type_name("CPU");
  orVariable(app, notEmpty(app.add_option("--kernel-cache", compile.kernelCache, "as braid-compile")),
             "BRAID_KERNEL_CACHE")
      ->type_name("DIR");
  integerIn(app.add_option("--steps", options.steps, "training steps of a measurement, the first is not timed (6)"), 2,
            10000);
  integerIn(app.add_option("--rounds", options.rounds, "how often each is measured, in turns (3)"), 1, 1000);
  integerIn(app.add_option("--best", options.best, "how many are measured besides the unsliced program (3)"), 1, 100);
  integerIn(app.add_option("--threads", options.threads, "worker threads of a rank (1)"), 1, 1024);
  integerIn(app.add_option("--degrees", options.degrees,
                           "overlap degrees to try besides 1 (2,3,4,6,8); a "
                           "choice for which one was not tried is stale")
                ->delimiter(','),
            1, 16)
      ->type_name("N,..");
  CLI::Option *predictOnly =
      app.add_flag("--predict-only", options.predictOnly, "choose by prediction, for machines that are not at hand");
  for (const char *flag : {"--launch", "--steps", "--rounds", "--best", "--threads"})
    predictOnly->excludes(app.get_option(flag));
  app.add_flag("--again", options.again, "search even where the choice in MODEL.json still holds");
  return cpu;
}

int main(int argc, char **argv) {
  if (int code = beginTool("braid-tune"))
    return code;
  if (int code = checkAlone())
    return code;
  CLI::App app(
      "Chooses the schedule of a model: predicts many, measures the best few, writes the choice and its evidence "
      "into the model's `schedule`.",
      "braid-tune");
  app.get_formatter()->column_width(36);
  Options options;
  CLI::Option *cpu = addOptions(app, options);
  return runTool(app, argc, argv, [&] {
    if (options.predictOnly && cpu->count() == 0)
      options.job.options.cpu = plannedCpu;
    options.job.options.given = givenFlags(app);
    if (options.predictOnly && !options.job.options.givenAs("--kernel-cache").empty())
      return printError("--predict-only compiles no kernels, of which --kernel-cache keeps machine code; valid: one "
                        "without the other"),
             2;
    options.braidRun = findBraidRun(argv[0]);
    return Tuner(options).run() ? 0 : 1;
  });
}
