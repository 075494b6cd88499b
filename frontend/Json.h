//===- Json.h - JSON values that know their line and their path ---------------------------------------------------===//
// nlohmann's SAX events (no exceptions) build a small tree; readers take keys from it, and a key that nobody took is an
// error with the nearest valid one.
#ifndef FRONTEND_JSON_H
#define FRONTEND_JSON_H

#include "frontend/ModelSpec.h"

#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/JSON.h"

#include <memory>

namespace braid::json {

enum class Kind { null, boolean, integer, number, string, array, object };

struct Field;

struct Value {
  Kind kind = Kind::null;
  bool boolean = false;
  int64_t integer = 0;
  double number = 0; ///< also set for integers
  std::string
      string; ///< of a number beyond 2^53, or that is none but 0 in `number`: its text, of which that has lost digits
  std::vector<Value> items; ///< array
  std::vector<Field> fields; ///< object, in file order
  int64_t line = 0;
  std::string origin; ///< the key of another library's file that it is from; messages name it
  llvm::StringRef flag; ///< the flag that put it in the place of what the file says; messages name it
  bool isNumber() const { return kind == Kind::integer || kind == Kind::number; }
  const Value *find(llvm::StringRef key) const;
};

struct Field {
  std::string name;
  Value value;
};

/// Values that no file said.
Value numberValue(int64_t number);
Value numberValue(double number);
Value stringValue(llvm::StringRef text);
Value boolValue(bool flag);
Value objectValue(std::vector<Field> fields);
Value arrayValue(std::vector<Value> items);
/// How a value looks in a message: 3, "abc", an object.
std::string describe(const Value &value);
/// Parses text; reports syntax errors, duplicate keys, numbers beyond a double and nesting deeper than 32.
std::optional<Value> parse(llvm::StringRef text, llvm::StringRef filename, DiagnosticFn error);
/// The same for a file that holds one object; `valid` shows one where it does not.
std::optional<Value> parseObject(llvm::StringRef text, llvm::StringRef filename, DiagnosticFn error,
                                 llvm::StringRef valid);
/// Puts the flag's value where the key is or would be. Nothing happens where the file has no object around the key: the
/// reader says what is wrong there.
void applyOverride(Value &root, const KeyOverride &key);
/// Joins alternatives: "rms, layer".
std::string join(llvm::ArrayRef<llvm::StringRef> names);

/// What the readers of one file share: its errors, in which a path finds its line again ("mixers.N.heads" -> 12), the
/// type that its numbers end up in, and what keys say that are left out.
class Errors {
public:
  Errors(const Value &root, llvm::StringRef filename, DiagnosticFn error)
      : root(root), filename(filename), error(error) {}
  void report(llvm::StringRef path, const std::string &message);
  /// The path as messages have it: that of the other library's file where the value is from one.
  std::string shown(llvm::StringRef path) const;
  /// What the file calls the key at the path, alone.
  std::string nameOf(llvm::StringRef path) const;
  bool any() const { return count > 0; }
  int64_t number() const { return count; }

  bool doublePrecision = false; ///< kernels compute in f64, else in f32
  llvm::json::Object defaults; ///< by path, of keys that were asked for, given or not: "mixers.N.window" -> 0

private:
  /// The deepest value on the path that is there; `path` becomes what is left.
  const Value &deepest(llvm::StringRef &path) const;

  const Value &root;
  llvm::StringRef filename;
  DiagnosticFn error;
  int64_t count = 0;
  llvm::StringSet<> said;
};

/// Takes the keys of one object. Every reader leaves the default where the key is absent or wrong.
class Reader {
public:
  Reader(const Value &object, std::string path, Errors &errors);
  /// Reports the keys that nobody took.
  ~Reader();
  Reader(const Reader &) = delete;

  const Value *take(llvm::StringRef key);
  bool has(llvm::StringRef key) const { return object.find(key); }
  std::string pathOf(llvm::StringRef key) const;
  void error(llvm::StringRef key, const std::string &message);
  /// A key that is never valid here, and why: no message offers it.
  void refuse(llvm::StringRef key, const std::string &message);
  /// A key that must be there: reports it missing.
  const Value *require(llvm::StringRef key, llvm::StringRef hint);
  /// The name at `key`, which must be there and be one of `names`; else null.
  const std::string *requireChoice(llvm::StringRef key, llvm::ArrayRef<llvm::StringRef> names);

  void integer(llvm::StringRef key, int64_t &value, int64_t least, int64_t most);
  void requireInteger(llvm::StringRef key, int64_t &value, int64_t least, int64_t most);
  /// A number that stays what it is in the type kernels compute in: neither 0 nor subnormal nor infinite.
  void number(llvm::StringRef key, double &value, double least, double most, bool leastAllowed = true);
  void boolean(llvm::StringRef key, bool &value);
  void string(llvm::StringRef key, std::string &value);
  void choice(llvm::StringRef key, std::string &value, llvm::ArrayRef<llvm::StringRef> names);
  /// One of the names, or null for none.
  void choice(llvm::StringRef key, std::optional<std::string> &value, llvm::ArrayRef<llvm::StringRef> names);
  void range(llvm::StringRef key, std::array<double, 2> &value);
  /// A list of 1 to `count` numbers, each as number() takes it.
  void numbers(llvm::StringRef key, std::vector<double> &values, double least, double most, size_t count);
  /// No message about keys that nobody took (the kind of the object is unknown).
  void ignoreRest() { ignored = true; }
  /// The object at `key`, or null: absent, of another type (reported), or null where `nullable`.
  const Value *objectAt(llvm::StringRef key, bool nullable = false, bool *isNull = nullptr);

private:
  const Value *typed(llvm::StringRef key, bool (*test)(const Value &), const llvm::Twine &what);
  bool isOneOf(llvm::StringRef key, const Value &value, llvm::ArrayRef<llvm::StringRef> names, bool nullable);
  bool survives(llvm::StringRef key, const Value &given, double most, bool zeroAllowed);
  /// Before the key is read. What no file could say stands for something else (0: follows from other keys) and is not noted.
  void noteDefault(llvm::StringRef key, bool isValid, llvm::json::Value value);

  const Value &object;
  std::string path;
  Errors &errors;
  std::vector<std::string> known, refused;
  bool ignored = false;
};

} // namespace braid::json

#endif // FRONTEND_JSON_H
