// ElementPlace: what one element of a kernel's argument is to a person: row, token, chunk, head. For messages.
#pragma once

#include "runtime/RunWatcher.h"
#include "runtime/Session.h"

namespace braid::runtime {

// "row 0, token 70 of chunk 1, head 2, value 7" of element `element` (counted in memory) of a launch's argument, by the
// axes that the program names (schema: Param.axes); empty where it names none, or the element is none of theirs. The
// chunk of a token stands in the table of chunks that the kernel reads.
std::string elementPlace(Session &session, const WatchedCommand &watched, std::string_view argument, uint64_t element);

// The kind of the mixer in absolute layer `layer`, as the model's description has it; empty: not known.
std::string mixerKind(const Program &program, int64_t layer);

} // namespace braid::runtime
