// Rules about what the pipeline stages of a program have in common.
#include "runtime/ProgramChecks.h"
#include "runtime/comm/Collectives.h"
#include "runtime/io/Shape.h"
#include "runtime/schema/Limits.h"
#include "runtime/schema/Program_generated.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

namespace braid::runtime {
namespace {

using Stages = std::map<std::string_view, std::set<int32_t>>; // by the name of an entry

// All arenas and entries have a stage, or none. How many there are, as arenas say.
Expected<uint32_t> countedStages(const schema::Program &file, const MeshInfo &mesh, Stages &entries) {
  constexpr size_t most = maxStages;
  std::string with, without; // the first
  auto note = [&](const char *kind, const flatbuffers::String *name, int32_t stage) -> Status {
    if (stage < -1)
      return corrupt("{} '{}': stage {}; valid: 0 and more, or -1 for none", kind, name->string_view(), stage);
    if (std::string &first = stage < 0 ? without : with; first.empty())
      first = fmt::format("{} '{}'", kind, name->string_view());
    return Status::success();
  };
  std::set<int32_t> stages;
  for (const auto *arena : *file.arenas()) {
    BRAID_TRY(note("arena", arena->name(), arena->stage()));
    stages.insert(arena->stage());
  }
  for (const auto *entry : *file.entries()) {
    BRAID_TRY(note("entry", entry->name(), entry->stage()));
    entries[entry->name()->string_view()].insert(entry->stage());
  }
  if (with.empty())
    return 1;
  if (!without.empty())
    return corrupt("{} has a stage, but {} has none; valid: all arenas and entries have one, or none has", with,
                   without);
  uint32_t ranks = mesh.size(stageAxis).value_or(1);
  int32_t last = stages.empty() ? -1 : *stages.rbegin();
  if (stages.size() != ranks || stages.size() > most || static_cast<uint32_t>(last) != ranks - 1)
    return corrupt(
        "arenas of {} stages, the last of them {}, but the mesh has {} ranks along {}; valid: stages 0 to {}, "
        "one for each, and at most {}",
        stages.size(), last, ranks, stageAxis, ranks - 1, most);
  for (const auto &[name, found] : entries) {
    if (*found.rbegin() >= static_cast<int32_t>(ranks))
      return corrupt("entry '{}': stage {}; valid: 0 to {}", name, *found.rbegin(), ranks - 1);
    for (int32_t stage : stages)
      if (!found.contains(stage))
        return corrupt("entry '{}': stage {} has it, but stage {} has not; every stage has the same entries", name,
                       *found.begin(), stage);
  }
  return ranks;
}

// What the ranks of a stage call together with those of others, in the order of its list, repeats unrolled.
class SharedCalls {
public:
  struct Shared {
    const schema::Collective *collective;
    std::string_view axis;
  };

  // Nothing: too many to look at, which ranks find out for themselves.
  static std::optional<SharedCalls> of(const Program &stage, const EntryInfo &entry) {
    SharedCalls calls(stage);
    uint64_t most = mostOfAll / stage.stages();
    const auto &list = *stage.file().entries()->Get(entry.index)->commands();
    if (calls.count(list, most) > most)
      return std::nullopt;
    calls.add(list);
    for (const Shared &call : calls.calls)
      calls.byAxis[call.axis].push_back(call.collective);
    return calls;
  }

  const std::vector<Shared> &inOrder() const { return calls; }
  using Calls = std::vector<const schema::Collective *>;
  const std::map<std::string_view, Calls> &onAxes() const { return byAxis; }
  Calls on(std::string_view axis) const {
    auto found = byAxis.find(axis);
    return found == byAxis.end() ? Calls() : found->second;
  }

private:
  using List = flatbuffers::Vector<flatbuffers::Offset<schema::Command>>;
  static constexpr uint64_t mostOfAll = 1 << 18; // stages

  explicit SharedCalls(const Program &stage) : stage(stage) {}

  const schema::Collective *shared(const schema::Command &command) const {
    const auto *collective = command.body_as_Collective();
    if (!collective)
      return nullptr;
    // The axis has been looked at: this stage is on it.
    uint32_t own = stage.ownStage(), other = (own + 1) % stage.stages();
    std::string_view axis = collective->axis()->string_view();
    const MeshInfo &mesh = stage.mesh();
    bool alone = mesh.coordinate(stage.firstRank(own), axis) == mesh.coordinate(stage.firstRank(other), axis);
    return alone ? nullptr : collective;
  }

  // At most one more than `most`.
  uint64_t count(const List &list, uint64_t most) const {
    uint64_t calls = 0;
    for (const schema::Command *command : list) {
      if (const auto *repeat = command->body_as_Repeat())
        if (uint64_t inside = count(*repeat->commands(), most); inside > 0)
          calls += inside * std::min(static_cast<uint64_t>(repeat->count()), most + 1);
      calls = std::min(calls + (shared(*command) != nullptr), most + 1);
    }
    return calls;
  }

  void add(const List &list) {
    for (const schema::Command *command : list) {
      if (const auto *repeat = command->body_as_Repeat(); repeat && count(*repeat->commands(), 0) > 0)
        for (int64_t i = 0; i < repeat->count(); ++i)
          add(*repeat->commands());
      if (const schema::Collective *collective = shared(*command))
        calls.push_back({collective, collective->axis()->string_view()});
    }
  }

  const Program &stage;
  std::vector<Shared> calls;
  std::map<std::string_view, Calls> byAxis;
};

using StageCalls = std::vector<SharedCalls>; // by stage

std::string nameOf(const schema::Collective &collective) {
  return callOf(collective).on(collective.axis()->string_view());
}

// On each axis all of its stages call the same, in the same order: else they wait for each other until a timeout.
Status checkCalls(const Program &program, const StageCalls &stages) {
  std::map<std::string_view, uint32_t> first; // an axis, and the first stage that calls something on it
  for (uint32_t stage = 0; stage < stages.size(); ++stage)
    for (const auto &[axis, calls] : stages[stage].onAxes())
      first.try_emplace(axis, stage);
  for (auto [axis, one] : first) {
    auto expected = stages[one].on(axis);
    for (uint32_t stage = 0; stage < stages.size(); ++stage) {
      if (!program.stage(stage)->isOn(axis))
        continue;
      auto found = stages[stage].on(axis);
      uint32_t ranks[] = {program.firstRank(one), program.firstRank(stage)};
      for (size_t i = 0; i < std::min(found.size(), expected.size()); ++i)
        if (std::string words = disagreement(axis, ranks[0], callOf(*expected[i]), ranks[1], callOf(*found[i]));
            !words.empty())
          return corrupt("collective {}: {}", i, words);
      if (found.size() != expected.size())
        return corrupt("stage {} calls {} collectives on axis '{}', but stage {} calls {}", one, expected.size(), axis,
                       stage, found.size());
    }
  }
  return Status::success();
}

// On GPUs collectives of all axes follow each other, and hold what they have until their peers come.
Status checkTurns(const Program &program, const StageCalls &stages) {
  std::map<std::string_view, std::vector<uint32_t>> members; // stages of an axis
  for (uint32_t stage = 0; stage < stages.size(); ++stage)
    for (const auto &[axis, calls] : stages[stage].onAxes())
      members[axis].push_back(stage);
  std::vector<size_t> at(stages.size());
  auto next = [&](uint32_t stage) -> const SharedCalls::Shared * {
    const auto &calls = stages[stage].inOrder();
    return at[stage] < calls.size() ? &calls[at[stage]] : nullptr;
  };
  for (bool goesOn = true; goesOn;) {
    goesOn = false;
    for (uint32_t stage = 0; stage < stages.size(); ++stage) {
      const auto *call = next(stage);
      if (!call)
        continue;
      const std::vector<uint32_t> &needed = members[call->axis];
      bool all =
          std::ranges::all_of(needed, [&](uint32_t other) { return next(other) && next(other)->axis == call->axis; });
      for (uint32_t other : needed)
        at[other] += all;
      goesOn |= all;
    }
  }
  std::string waiting;
  for (uint32_t stage = 0; stage < stages.size(); ++stage)
    if (const auto *call = next(stage))
      waiting += fmt::format("{}stage {} in {} (its number {})", waiting.empty() ? "" : ", ", stage,
                             nameOf(*call->collective), at[stage]);
  return waiting.empty() ? Status::success()
                         : corrupt("stages wait for each other: {}; valid: on GPUs, where the collectives of all axes "
                                   "follow each other, lists of which none waits for a later one of another",
                                   waiting);
}

// Parameters that two stages hold.
Status checkTied(const Program &program) {
  struct Held {
    uint32_t stage;
    DType dtype;
    std::vector<int64_t> shape;
  };
  std::map<std::string, Held> first; // by the name that checkpoints have
  for (uint32_t stage = 0; stage < program.stages(); ++stage) {
    auto view = program.stage(stage);
    for (const TensorInfo &tensor : view->tensors())
      for (size_t i = 0; i < tensor.layerCount() && tensor.role == Role::parameter; ++i) {
        std::vector<int64_t> shape = globalShape(*view, tensor);
        const auto &[name, held] = *first.try_emplace(tensor.layerName(i), Held{stage, tensor.dtype, shape}).first;
        if (held.dtype != tensor.dtype || held.shape != shape)
          return corrupt("parameter '{}' is {} {} in stage {}, but {} {} in stage {}; valid: one tensor in both", name,
                         toString(held.dtype), formatShape(held.shape), held.stage, toString(tensor.dtype),
                         formatShape(shape), stage);
      }
  }
  return Status::success();
}

// What is cut over stages, all of them have, cut alike: a part that none has could be read and written by nobody.
Status checkAcrossStages(const Program &program) {
  for (uint32_t stage = 0; stage < program.stages(); ++stage) {
    auto view = program.stage(stage), other = program.stage((stage + 1) % program.stages());
    auto nameOf = [](const TensorInfo &tensor) { return tensor.layers.empty() ? tensor.name : tensor.layerName(0); };
    std::unordered_map<std::string, const TensorInfo *> parts;
    for (const TensorInfo &tensor : other->tensors())
      parts.emplace(nameOf(tensor), &tensor);
    for (const TensorInfo &tensor : view->tensors()) {
      if (!view->isAcrossStages(tensor))
        continue;
      auto found = parts.find(nameOf(tensor));
      const TensorInfo *same = found == parts.end() ? nullptr : found->second;
      if (!same || same->role != tensor.role || same->of != tensor.of || same->slot != tensor.slot ||
          same->layers != tensor.layers || same->shape != tensor.shape ||
          !std::ranges::equal(same->shards, tensor.shards, [](const ShardInfo &a, const ShardInfo &b) {
            return a.dim == b.dim && a.axis == b.axis;
          }))
        return corrupt("tensor '{}' of stage {} is a part of one that lies across stages, but stage {} has no such "
                       "part; valid: all stages have one, or a tensor is of one stage alone",
                       tensor.name, stage, other->ownStage());
    }
  }
  return Status::success();
}

} // namespace

Expected<uint32_t> countStages(const schema::Program &file, const MeshInfo &mesh) {
  Stages entries;
  BRAID_ASSIGN(uint32_t stages, countedStages(file, mesh, entries));
  const auto &arenas = *file.arenas();
  const auto &tensors = *file.tensors();
  for (const auto *tensor : tensors)
    if (tensor->arena() >= arenas.size())
      return corrupt("tensor '{}': arena {} of {}", tensor->name()->string_view(), tensor->arena(), arenas.size());
  for (const auto *entry : *file.entries())
    for (const auto *list : {entry->inputs(), entry->outputs()})
      for (uint32_t i = 0; list && i < list->size(); ++i) {
        const char *kind = list == entry->inputs() ? "input" : "output";
        std::string_view name = entry->name()->string_view();
        if (list->Get(i) >= tensors.size())
          return corrupt("entry '{}': {} tensor {} of {}", name, kind, list->Get(i), tensors.size());
        const auto *tensor = tensors.Get(list->Get(i));
        if (const auto *arena = arenas.Get(tensor->arena()); arena->stage() != entry->stage())
          return corrupt("entry '{}' of stage {}: its {} '{}' lies in arena '{}' of stage {}", name, entry->stage(),
                         kind, tensor->name()->string_view(), arena->name()->string_view(), arena->stage());
      }
  return stages;
}

Status checkTogether(const Program &program) {
  BRAID_TRY(checkTied(program));
  BRAID_TRY(checkAcrossStages(program));
  for (const EntryInfo &entry : program.entries()) {
    StageCalls stages;
    for (uint32_t stage = 0; stage < program.stages(); ++stage) {
      auto view = program.stage(stage);
      if (auto calls = SharedCalls::of(*view, *view->findEntry(entry.name)))
        stages.push_back(*std::move(calls));
    }
    if (stages.size() != program.stages())
      continue;
    Status status = checkCalls(program, stages);
    if (status.ok() && program.target() == "cuda")
      status = checkTurns(program, stages);
    BRAID_TRY(status.withContext(fmt::format("entry '{}'", entry.name)));
  }
  return Status::success();
}

} // namespace braid::runtime
