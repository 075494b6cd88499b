//===- RecurrenceNotation.h - equations of columns, and of values by keys, in rows --------------------------------===//
#ifndef FRONTEND_RECURRENCENOTATION_H
#define FRONTEND_RECURRENCENOTATION_H

#include "frontend/Recurrence.h"

namespace braid::recurrence {

/// Writes equations whose vectors are columns, or whose state is values by keys, in rows and keys by values; says so in
/// Recurrence::notation. What is that already stays as it is.
bool toRows(Recurrence &r, std::vector<Statement> &statements, Term &output, ErrorFn error);

} // namespace braid::recurrence

#endif // FRONTEND_RECURRENCENOTATION_H
