#include "runtime/train/TrainSettings.h"
#include "runtime/io/Words.h"

#include <algorithm>

namespace braid::runtime {

namespace {

constexpr double defaultLearningRate = 1e-3;
constexpr double defaultMinimumShare = 0.1; // of the learning rate

Status chooseSteps(const Program &program, const TrainOptions &options, bool resumed, CheckpointState &state) {
  if (options.steps) {
    state.steps = *options.steps;
  } else if (!resumed) {
    BRAID_ASSIGN(std::optional<double> steps, metadataNumber(program, "train.steps"));
    if (!steps || *steps < 1)
      return Status::error("{} does not say how many steps to train: give --steps", program.path());
    state.steps = static_cast<uint64_t>(*steps);
  }
  if (state.steps == 0 || state.steps > uint64_t(maxTrainSteps))
    return Status::error("the number of steps (--steps) is {}; valid: 1 to {}", state.steps, maxTrainSteps);
  return Status::success();
}

Status chooseAccumulation(const Rank &rank, const TrainOptions &options, const BatchBinding &batch, bool accumulates,
                          bool resumed, CheckpointState &state, TrainSettings &settings) {
  const Program &program = rank.program();
  BRAID_ASSIGN(std::optional<double> compiled, metadataNumber(program, "train.accumulation_steps"));
  if (!accumulates && options.accumulationSteps.value_or(1) != 1)
    return Status::error("{} updates the parameters after every batch: to add up the gradients of {} batches, compile "
                         "the model with --accumulation-steps={}",
                         program.path(), *options.accumulationSteps, *options.accumulationSteps);
  settings.compiledAccumulationSteps = static_cast<uint64_t>(std::max(compiled.value_or(1), 1.0));
  uint64_t parts = accumulates ? options.accumulationSteps.value_or(resumed ? state.accumulationSteps
                                                                            : settings.compiledAccumulationSteps)
                               : 1;
  if (parts < 1 || parts > uint64_t(maxAccumulationSteps))
    return Status::error("the number of accumulation steps (--accumulation-steps) is {}; valid: 1 to {}", parts,
                         maxAccumulationSteps);
  // A program of one micro-batch may have them, as one that updates after every batch.
  for (const TensorInfo &tensor : program.tensors())
    if (parts > 1 && tensor.role == Role::gradient && tensor.dtype == DType::bf16)
      return Status::error("{}: '{}' is bf16, which loses what {} batches add up (--accumulation-steps); valid: 1, or "
                           "the model compiled with --gradient-dtype=f32",
                           program.path(), tensor.name, parts);
  state.accumulationSteps = parts;
  state.stepSamples = parts * static_cast<uint64_t>(batch.batch * rank.dpSize());
  return Status::success();
}

Status chooseRates(const Program &program, const TrainOptions &options, const BatchBinding &batch, const Corpus &corpus,
                   bool resumed, CheckpointState &state, TrainSettings &settings) {
  BRAID_ASSIGN(std::optional<double> learningRate, metadataNumber(program, "train.learning_rate"));
  BRAID_ASSIGN(std::optional<double> minimum, metadataNumber(program, "train.min_learning_rate"));
  BRAID_ASSIGN(std::optional<double> warmup, metadataNumber(program, "train.warmup_steps"));
  BRAID_ASSIGN(std::optional<double> seed, metadataNumber(program, "train.seed"));
  if (!resumed) {
    state.learningRate = learningRate.value_or(defaultLearningRate);
    state.minLearningRate = minimum.value_or(defaultMinimumShare * state.learningRate);
    state.warmupSteps = static_cast<uint64_t>(std::max(warmup.value_or(0), 0.0));
    state.seed = options.seed.value_or(static_cast<uint64_t>(std::max(seed.value_or(0), 0.0)));
    state.seqLen = batch.seqLen;
    state.maxDocuments = batch.documentStride - 1;
    state.corpusTokens = corpus.size();
    state.corpusDocuments = corpus.documents();
    state.corpusHash = corpus.hash();
  }
  // A minimum belongs to the peak it was given with: another peak keeps its share of it, in a new run and in a resumed
  // one.
  if (options.learningRate && *options.learningRate != state.learningRate && !options.minLearningRate) {
    double share = state.learningRate > 0 ? state.minLearningRate / state.learningRate : defaultMinimumShare;
    state.minLearningRate = share * *options.learningRate;
    settings.minimumIsScaled = state.minLearningRate > 0;
  }
  state.learningRate = options.learningRate.value_or(state.learningRate);
  state.minLearningRate = options.minLearningRate.value_or(state.minLearningRate);
  state.warmupSteps = options.warmupSteps.value_or(state.warmupSteps);
  if (!(state.learningRate >= minLearningRate && state.learningRate <= maxLearningRate))
    return Status::error("the learning rate (--lr) is {}; valid: {} to {}", state.learningRate, minLearningRate,
                         maxLearningRate);
  if (!(state.minLearningRate >= 0) || state.minLearningRate > state.learningRate)
    return Status::error("the minimum of the learning rate (--min-lr) is {}; valid: 0 to the learning rate (--lr), {}",
                         state.minLearningRate, state.learningRate);
  if (options.warmupSteps && *options.warmupSteps > state.steps)
    return Status::error("a warm-up of {} (--warmup) does not fit into the {} of the training (--steps); valid: 0 "
                         "to {}",
                         counted(*options.warmupSteps, "step"), state.steps, state.steps);
  settings.schedule = {state.learningRate, state.minLearningRate, state.warmupSteps, state.steps};
  return Status::success();
}

} // namespace

Expected<TrainSettings> chooseSettings(const Rank &rank, const TrainOptions &options, const BatchBinding &batch,
                                       const Corpus &corpus, bool accumulates, bool resumed, CheckpointState &state) {
  TrainSettings settings;
  BRAID_TRY(chooseSteps(rank.program(), options, resumed, state));
  BRAID_TRY(chooseAccumulation(rank, options, batch, accumulates, resumed, state, settings));
  BRAID_TRY(chooseRates(rank.program(), options, batch, corpus, resumed, state, settings));
  return settings;
}

Status checkResumed(const CheckpointState &state, const TrainOptions &options, const BatchBinding &batch,
                    const Corpus &corpus) {
  constexpr std::string_view otherwise = "its weights begin a training on other data by --init-from";
  if (options.seed && *options.seed != state.seed)
    return Status::error("cannot resume: the checkpoint was trained with seed {}, but --seed asks for {}", state.seed,
                         *options.seed);
  if (state.seqLen != batch.seqLen)
    return Status::error("cannot resume: the checkpoint was trained on rows of {}, but the program has {}",
                         counted(state.seqLen, "token"), batch.seqLen);
  if (state.maxDocuments != batch.documentStride - 1)
    return Status::error("cannot resume: the checkpoint was trained on rows of at most {}, but the program "
                         "has {} (max_documents)",
                         counted(state.maxDocuments, "document"), batch.documentStride - 1);
  if (state.corpusTokens != corpus.size() || state.corpusDocuments != corpus.documents())
    return Status::error("cannot resume: the checkpoint was trained on {} in {}, but the data given has "
                         "{} in {}; {}",
                         counted(state.corpusTokens, "token"), counted(state.corpusDocuments, "document"),
                         corpus.size(), corpus.documents(), otherwise);
  if (uint64_t hash = corpus.hash(); state.corpusHash != hash)
    return Status::error("cannot resume: the checkpoint was trained on other data of the same {} (hash {:016x}, "
                         "the data given has {:016x}); {}",
                         counted(state.corpusTokens, "token"), state.corpusHash, hash, otherwise);
  if (state.step > uint64_t(maxTrainSteps))
    return Status::error(ErrorCode::corruptFile, "cannot resume: the checkpoint is at step {}, above the limit {}",
                         state.step, maxTrainSteps);
  if (options.steps && state.step > *options.steps)
    return Status::error("cannot resume: the checkpoint is at step {}, past the {} that --steps asks for (counted "
                         "from the start of training); valid: {} or more",
                         state.step, counted(*options.steps, "step"), state.step);
  return Status::success();
}

} // namespace braid::runtime
