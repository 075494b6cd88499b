// Program: an immutable, verified program file (runtime/schema/Program.fbs), shared by all sessions that execute it.
// load() checks the content hash of the file, the flatbuffer and every semantic rule (indices, ranges of buffers over
// all repeats, arguments, shapes, the hash of the code), so that what it returns can be executed without further
// questions on a machine that has its CPU features; a session asks for those. A malformed file gives an error that
// names the command and the buffer; it never crashes.
//
// A file with pipeline stages has a table of arenas, tensors and entries for each; a Program is the view of one stage, which
// sees its own only. Ranks of a stage run its view. Without stages there is one view, of everything.
#pragma once

#include "runtime/ContentHash.h"
#include "runtime/Expected.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace braid::schema {
struct Program;
}

namespace braid::runtime {

// The values equal those of the schema.
enum class DType : uint8_t { f32 = 0, bf16 = 1, f64 = 2, i32 = 3, i64 = 4, u8 = 5, i16 = 6 };
enum class Role : uint8_t { parameter = 0, moment = 1, gradient = 2, input = 3, output = 4, cache = 5 };

size_t sizeOf(DType type);
std::string_view toString(DType type);
std::string_view toString(Role role);

struct ArenaInfo {
  std::string name;
  uint64_t bytes;
  uint32_t align;
  uint64_t lowerBound = 0; // bytes alive at the worst moment; 0: not known
  int32_t stage = -1; // -1: the program has no stages
};

// The rank with coordinate c on `axis` (size n) holds [c * s / n, (c + 1) * s / n) of dimension `dim` (of one layer).
struct ShardInfo {
  uint32_t dim;
  std::string axis;
};

struct TensorInfo {
  std::string name; // "{}" stands for the layer index when `layers` is not empty
  Role role;
  DType dtype;
  std::vector<int64_t> shape; // of one layer, on this rank
  uint32_t arena;
  uint64_t offset, bytes; // of the whole buffer, all layers
  std::vector<int32_t> layers;
  std::vector<ShardInfo> shards;
  std::string of; // moment, gradient: the parameter's name
  std::string slot; // moment: "first", "second", "low" or "master"; cache: "positions" (as in the schema), or nothing

  size_t layerCount() const { return layers.empty() ? 1 : layers.size(); }
  uint64_t layerBytes() const { return bytes / layerCount(); }
  int64_t layerElements() const; // of one layer
  // Name with "{}" replaced by the absolute layer index layers[i]; the plain name for a single tensor.
  std::string layerName(size_t i) const;
  // The name without the entry in front of it: "train_step/tokens" is called "tokens" there.
  std::string_view lastComponent() const;
  // Of an input "coordinate.<axis>": the axis, or product of axes. A session puts the rank's coordinate on it there,
  // [1] i32, before it runs an entry; by nothing else a program learns which rank it is.
  std::optional<std::string_view> coordinateAxis() const;
};

struct AxisInfo {
  std::string name;
  uint32_t size;
};

inline constexpr std::string_view stageAxis = "pp"; // along which the stages of a program lie

// Two views of the same ranks, numbered slowest to fastest axis. A mesh without axes is one rank.
struct MeshInfo {
  std::vector<AxisInfo> dense, expert;

  uint32_t worldSize() const;
  // Size of an axis of either view; "dp*sp" is the product of axes of one view, "pp[i,j]" the pair of coordinates i and j on
  // pp. Absent: no such axis.
  std::optional<uint32_t> size(std::string_view axis) const;
  // The coordinate of `rank` on such an axis; absent also for a rank that is not of the pair.
  std::optional<uint32_t> coordinate(uint32_t rank, std::string_view axis) const;
  // All ranks that differ from `rank` on this axis only, by coordinate (`rank` included); absent also for a rank that is not of
  // the pair.
  std::optional<std::vector<uint32_t>> members(uint32_t rank, std::string_view axis) const;
};

struct StreamInfo {
  std::string name, axis; // stream 0 is compute and has no axis
};

struct EntryInfo {
  std::string name;
  std::vector<uint32_t> inputs, outputs; // indices into tensors()
  uint32_t events;
  uint64_t commands; // as written in the file, bodies of repeats counted once
  std::vector<uint64_t> reach; // of every arena the bytes up to the last that its commands, inputs and outputs touch
  bool kept = true; // whether sessions can run it
  uint32_t index = 0; // in the file
};

// Which entries will be run, by their names. Sessions have memory for these alone: no caches while they train, no
// moments while they generate.
using EntryFilter = bool (*)(std::string_view entry);
inline bool generates(std::string_view entry) { return entry.starts_with("prefill_") || entry.starts_with("decode_"); }
// Those and the ones that say how likely a prompt's tokens are.
inline bool serves(std::string_view entry) { return generates(entry) || entry.starts_with("score_"); }
inline bool evaluates(std::string_view entry) { return entry == "eval_step"; }
inline bool trains(std::string_view entry) { return !serves(entry); }
// What a command that runs this entry keeps beside it.
inline EntryFilter keptWith(std::string_view entry) {
  return generates(entry) ? generates : serves(entry) ? serves : evaluates(entry) ? evaluates : trains;
}

class Program {
public:
  // The view of stage 0. `keep`: the only entries that will be run; null: all. Arenas are as small as these allow.
  static Expected<std::shared_ptr<const Program>> load(const std::string &path, EntryFilter keep = nullptr);
  // The same on a file's bytes; `name` stands in errors for the path.
  static Expected<std::shared_ptr<const Program>> parse(std::vector<std::byte> bytes, const std::string &name,
                                                        EntryFilter keep = nullptr);
  // Appends the trailer of a complete file to a flatbuffer (the compiler does it for the files it writes).
  static void seal(std::vector<std::byte> &flatbuffer);
  ~Program();

  // Pipeline stages of the file; 1: it has none. All views share the file.
  uint32_t stages() const { return static_cast<uint32_t>(common.views.size()); }
  uint32_t ownStage() const { return stageIndex; }
  std::shared_ptr<const Program> stage(uint32_t index) const;
  bool owns(const ArenaInfo &arena) const { return stages() == 1 || arena.stage == static_cast<int32_t>(stageIndex); }
  // The view that a rank runs.
  uint32_t stageOf(uint32_t rank) const;
  uint32_t firstRank(uint32_t stage) const;
  std::shared_ptr<const Program> ofRank(uint32_t rank) const { return stage(stageOf(rank)); }
  // Whether the ranks of this stage are on an axis of the mesh: of a pair of other stages they are not.
  bool isOn(std::string_view axis) const;
  /// Whether each stage has a part of this tensor, not one of them, or some, the whole.
  bool isAcrossStages(const TensorInfo &tensor) const;

  const std::string &path() const { return common.path; }
  const std::string &name() const { return common.name; }
  const std::string &target() const { return common.target; } ///< cpu or cuda
  const std::string &arch() const { return common.arch; } ///< target cuda: sm_90a, sm_80; else empty
  uint32_t version() const { return common.version; }

  // By their index in the file; those of other stages have no bytes.
  std::span<const ArenaInfo> arenas() const { return arenaTable; }
  std::span<const TensorInfo> tensors() const { return tensorTable; }
  std::span<const EntryInfo> entries() const { return entryTable; }
  std::span<const StreamInfo> streams() const { return common.streams; }
  std::span<const std::string> kernels() const { return common.kernels; }
  std::span<const std::string> cpuFeatures() const { return common.cpuFeatures; }
  const MeshInfo &mesh() const { return common.mesh; }
  std::span<const std::pair<std::string, std::string>> metadata() const { return common.metadata; }

  // nullptr when there is none of that name.
  const TensorInfo *findTensor(std::string_view name) const;
  const EntryInfo *findEntry(std::string_view name) const;
  std::optional<std::string_view> metadata(std::string_view key) const;
  // How keys of metadata begin that are of this view alone: "activations", of stage 1 "activations.stage1".
  std::string ownKey(std::string_view name) const;
  // Bytes of every arena for these entries: what they touch, all parameters, and all caches, moments and gradients in
  // arenas that they touch.
  std::vector<uint64_t> arenaBytes(EntryFilter keep) const;
  // Whether the tensor lies in the arenas of the entries that are kept.
  bool holds(const TensorInfo &tensor) const { return tensor.offset + tensor.bytes <= arenaTable[tensor.arena].bytes; }
  // The moment or gradient that belongs to a parameter; `slot` only for moments.
  const TensorInfo *findCompanion(std::string_view parameter, Role role, std::string_view slot = {}) const;

  // The moment of a parameter of this program; nullptr when there is none. Two stacks may share a name: unlike
  // findCompanion() this one tells them apart.
  const TensorInfo *momentOf(const TensorInfo &parameter, std::string_view slot) const;

  // Of the file without its trailer: two files with the same one are one program.
  ContentHash fileHash() const { return common.hash; }
  // The shared object with the kernels (empty when the program has none) and its SHA-256 in hexadecimal.
  std::span<const std::byte> code() const;
  std::string_view codeHash() const;

  // The verified flatbuffer, for the session that prepares its commands.
  const schema::Program &file() const { return *common.root; }

private:
  // What the views of a file have in common. It owns them: a pointer to a view keeps all of it.
  struct Contents : std::enable_shared_from_this<Contents> {
    std::vector<std::byte> bytes; // the flatbuffer, its trailer removed
    ContentHash hash;
    const schema::Program *root = nullptr;
    std::string path, name, target, arch;
    uint32_t version = 0;
    std::vector<StreamInfo> streams;
    std::vector<std::string> kernels, cpuFeatures;
    MeshInfo mesh;
    std::vector<std::pair<std::string, std::string>> metadata;
    std::vector<std::unique_ptr<Program>> views; // by stage

    Status checkTrailer();
    Status read();
    Status makeViews(EntryFilter keep);
  };

  Program(const Contents &common, uint32_t stage) : common(common), stageIndex(stage) {}
  Status read(); // the tables of the stage
  Status check();
  void leaveOut(EntryFilter keep);

  const Contents &common;
  uint32_t stageIndex;
  std::vector<ArenaInfo> arenaTable;
  std::vector<TensorInfo> tensorTable;
  std::vector<EntryInfo> entryTable;
  std::unordered_map<std::string_view, uint32_t> tensorIndex, entryIndex; // keys live in the tables
};

} // namespace braid::runtime
