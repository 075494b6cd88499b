//===- ModelText.h - the schedule of a model file, in the user's own text -----------------------------------------===//
#ifndef TOOLS_BRAIDTUNE_MODELTEXT_H
#define TOOLS_BRAIDTUNE_MODELTEXT_H

#include <nlohmann/json.hpp>

#include <optional>
#include <string>

namespace braid::tune {

using Json = nlohmann::ordered_json;

/// What of `schedule` a search chooses; the other keys are the user's. Of `machine` see machineOf.
inline constexpr const char *chosenKeys[] = {"pipeline",   "overlap_degree", "overlap_degrees", "slicing",
                                             "chunk_size", "sp_algorithm",   "stage_order"};
inline constexpr const char *evidenceKey = "tuned";
inline constexpr const char *chosenKey = "chosen"; ///< of the evidence: what it is evidence for
inline constexpr const char *degreesKey = "degrees"; ///< of the evidence: the degrees that were tried besides 1, "2,4"
inline constexpr const char *ratesKey = "rates"; ///< of the evidence: `schedule.machine` as it was
/// Of the evidence: whether `schedule.machine` is the user's, not the search's.
inline constexpr const char *ownMachineKey = "machine_given";

/// What of this value of the key `schedule` a search chose, or somebody else since.
Json choiceOf(const Json &schedule);

/// `machine` of this value of the key `schedule`, unless a search wrote it; else null.
Json machineOf(const Json &schedule);

/// The same text with another value of the top-level key `schedule` (replaced where it stands, else added last); every
/// other character and comment stays. `text` must be a valid model description.
std::string withSchedule(const std::string &text, const Json &schedule);

/// Whether `text` says what `before` does but for this value of `schedule`.
bool holdsSchedule(const std::string &text, const std::string &before, const Json &schedule);

/// The description without what a search chooses or has written: two that are equal are the same program.
std::string withoutChoice(const std::string &text);

} // namespace braid::tune

#endif // TOOLS_BRAIDTUNE_MODELTEXT_H
