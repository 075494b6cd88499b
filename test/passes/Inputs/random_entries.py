"""Random entry functions in phase `kernels`: launches (in place or not), views, concats, carried, stacked and reversed repeats,
collectives under way, shared names. python3 random_entries.py SEED COUNT > entries.mlir"""
import random
import sys

ROWS, COLUMNS = 4, 8


def tensor(rows, lead=()):
    return "tensor<" + "x".join(map(str, (*lead, rows, COLUMNS))) + "xf32>"


class Entry:
    def __init__(self, rng, number):
        self.rng, self.number, self.next, self.lines = rng, number, 0, []
        self.stacks = [] # (value, count) of the entry itself: stacked arguments and results

    def name(self):
        self.next += 1
        return f"%v{self.next}"

    def emit(self, text, depth):
        self.lines.append("  " * (depth + 1) + text)

    def launch(self, values, rows, depth):
        """One or two results of some operands; each may update an operand of its shape."""
        inputs = [self.rng.choice(values) for _ in range(self.rng.randint(1, 3))]
        if self.stacks and self.rng.random() < 0.15:
            inputs.append(self.rng.choice(self.stacks)) # all layers at once
        types = [tensor(r) if (v, r) in values else tensor(ROWS, (r,)) for v, r in inputs]
        results = self.rng.randint(1, 2)
        free = [i for i, t in enumerate(types) if t == tensor(rows)]
        self.rng.shuffle(free)
        inplace = [free.pop() if free and self.rng.random() < 0.4 else -1 for _ in range(results)]
        names = [self.name() for _ in range(results)]
        args = ", ".join(f'"a{i}"' for i in range(len(inputs)))
        outs = ", ".join(f'"o{i}"' for i in range(results))
        self.emit(f"{', '.join(names)} = tile.launch @k grid [1] ({', '.join(v for v, _ in inputs)}) {{arg_names = [{args}], result_names = [{outs}], "
                  f"inplace = array<i64: {', '.join(map(str, inplace))}>, scalars = {{}}}} : ({', '.join(types)}) -> "
                  f"({', '.join(tensor(rows) for _ in names)})", depth)
        return [(n, rows) for n in names]

    def body(self, values, depth, length):
        values, pending = list(values), []
        for _ in range(length):
            kind = self.rng.random()
            if kind < 0.5:
                values += self.launch(values, self.rng.choice([ROWS, ROWS, ROWS // 2]), depth)
            elif kind < 0.6:
                source, rows = self.rng.choice([v for v in values if v[1] == ROWS])
                name, begin = self.name(), self.rng.choice([0, ROWS // 2])
                self.emit(f"{name} = braid.slice {source} {{dim = 0 : i64, begin = {begin} : i64}} : ({tensor(rows)}) -> {tensor(ROWS // 2)}", depth)
                values.append((name, ROWS // 2))
            elif kind < 0.7:
                halves = [v for v in values if v[1] == ROWS // 2]
                if halves:
                    a, b, name = self.rng.choice(halves)[0], self.rng.choice(halves)[0], self.name()
                    self.emit(f"{name} = braid.concat {a}, {b} {{dim = 0 : i64}} : ({tensor(ROWS // 2)}, {tensor(ROWS // 2)}) -> {tensor(ROWS)}", depth)
                    values.append((name, ROWS))
            elif kind < 0.75:
                name = self.name()
                self.emit(f"{name} = arith.constant dense<0.0> : {tensor(ROWS)}", depth)
                values.append((name, ROWS))
            elif kind < 0.82:
                x, rows = self.rng.choice(values)
                future = self.name()
                self.emit(f'{future} = braid.comm.start all_reduce {x} {{axis = "dp"}} : ({tensor(rows)}) -> !braid.future<{tensor(rows)}>', depth)
                pending.append((future, rows))
            elif kind < 0.88 and pending:
                values.append(self.wait(pending.pop(0), depth))
            elif depth < 2:
                values += self.repeat(values, depth)
        while pending:
            values.append(self.wait(pending.pop(), depth))
        return values

    def wait(self, future, depth):
        name = self.name()
        self.emit(f"{name} = braid.comm.await {future[0]} : (!braid.future<{tensor(future[1])}>) -> {tensor(future[1])}", depth)
        return name, future[1]

    def repeat(self, values, depth):
        """A repeat with carried values, and a second one that walks over what the first stacked (some of it twice)."""
        count, full = self.rng.randint(1, 4), [v for v in values if v[1] == ROWS]
        carried = [self.rng.choice(full)[0] for _ in range(self.rng.randint(0, 3))]
        stacks = self.rng.randint(1, 3)
        results = [self.name() for _ in range(len(carried) + stacks)]
        at = len(self.lines)
        arguments = [self.name() for _ in carried]
        inner = self.body(values + [(a, ROWS) for a in arguments], depth + 1, self.rng.randint(1, 6))
        inside = [v for v, r in inner if r == ROWS]
        recent = inside[-6:]
        yielded = [self.rng.choice(recent if self.rng.random() < 0.8 else inside) for _ in results]
        types = [tensor(ROWS)] * len(carried) + [tensor(ROWS, (count,))] * stacks
        reverse = ", reverse" if self.rng.random() < 0.5 else ""
        self.open(at, results, carried, [tensor(ROWS)] * len(carried), types, arguments, count, len(carried), reverse, depth)
        self.close(yielded, depth)

        stacked = results[len(carried):]
        walked = [self.rng.choice(stacked) for _ in range(self.rng.randint(1, 2))]
        if depth == 0:
            walked += [v for v, c in self.stacks if c == count and self.rng.random() < 0.7]
            self.stacks += [(v, count) for v in stacked]
        again, at, slots = [self.name()], len(self.lines), [self.name() for _ in walked]
        inner = self.body(values + [(s, ROWS) for s in slots], depth + 1, self.rng.randint(1, 4))
        inside = [v for v, r in inner if r == ROWS]
        reverse = ", reverse" if self.rng.random() < 0.5 else ""
        self.open(at, again, walked, [tensor(ROWS, (count,))] * len(walked), [tensor(ROWS, (count,))], slots, count, 0, reverse, depth)
        self.close([inside[-1]], depth)
        if depth == 0:
            self.stacks.append((again[0], count))
        name = self.name()
        self.emit(f"{name} = tile.launch @k grid [1] ({again[0]}) {{arg_names = [\"a\"], result_names = [\"o\"], inplace = array<i64: -1>, scalars = {{}}}} : "
                  f"({tensor(ROWS, (count,))}) -> {tensor(ROWS)}", depth)
        return [(r, ROWS) for r in results[:len(carried)]] + [(name, ROWS)]

    def open(self, at, results, operands, operand_types, types, arguments, count, carried, reverse, depth):
        indent = "  " * (depth + 1)
        block = [f"{indent}^bb0({', '.join(f'{a}: {tensor(ROWS)}' for a in arguments)}):"] if arguments else []
        self.lines[at:at] = [f"{indent}{', '.join(results)} = braid.repeat {', '.join(operands)} {{count = {count} : i64, carried = {carried} : i64{reverse}}} : "
                             f"({', '.join(operand_types)}) -> ({', '.join(types)}) {{"] + block

    def close(self, yielded, depth):
        self.emit(f"braid.yield {', '.join(yielded)} : ({', '.join(tensor(ROWS) for _ in yielded)}) -> ()", depth + 1)
        self.emit("}", depth)

    def text(self):
        rng, roles = self.rng, ["input", "parameter", "cache"]
        arguments = [(f"%a{i}", f"a{i}", rng.choice(roles), ()) for i in range(rng.randint(1, 4))]
        arguments += [(f"%s{i}", f"s{i}", rng.choice(roles), (rng.randint(1, 4),)) for i in range(rng.randint(0, 3))]
        self.stacks = [(a, lead[0]) for a, _, _, lead in arguments if lead]
        values = self.body([(a, ROWS) for a, _, _, lead in arguments if not lead], 0, rng.randint(3, 14))
        results = [] # value, name, role, leading dimensions
        for i in range(rng.randint(1, 4)):
            value, lead = rng.choice([v for v, r in values if r == ROWS]), ()
            if self.stacks and rng.random() < 0.5:
                value, count = rng.choice(self.stacks)
                lead = (count,)
            name, role = f"o{i}", "output"
            targets = [a for a in arguments if a[2] != "input" and a[3] == lead and a[1] not in [r[1] for r in results]]
            if targets and rng.random() < 0.7:
                name, role = rng.choice(targets)[1:3]
            results.append((value, name, role, lead))
        prefix = f"f{self.number}_"
        kind = lambda name, role: f'{{braid.name = "{prefix + name}", braid.role = "{role}"}}'
        inputs = ", ".join(f"{v}: {tensor(ROWS, lead)} {kind(n, r)}" for v, n, r, lead in arguments)
        outputs = ", ".join(f"{tensor(ROWS, lead)} {kind(n, r)}" for _, n, r, lead in results)
        self.emit(f"return {', '.join(r[0] for r in results)} : {', '.join(tensor(ROWS, r[3]) for r in results)}", 0)
        return "\n".join([f"func.func @f{self.number}({inputs}) -> ({outputs}) attributes {{braid.entry}} {{", *self.lines, "}"])


def main():
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    for number in range(count):
        print(Entry(random.Random(seed * 100003 + number), number).text())


if __name__ == "__main__":
    main()
