"""Who does which K steps of which tile: whole tiles, tiles cut evenly (split K), or stream K.

Stream K: the tiles that do not fill a wave are shared by all programs, along K (Osama et al., 2023).
"""

from __future__ import annotations

from ...compat import barrier, constexpr, gl, jit


@jit
def pieces_of_program(tiles, STREAM: constexpr, SPLITS: constexpr = 1):
    """How many pieces this program has; with STREAM the last may be empty."""
    program = gl.program_id(0)
    programs = gl.num_programs(0)
    if STREAM:
        count = tiles // programs + 2
    else:
        count = (tiles * SPLITS - program + programs - 1) // programs
    return count


@jit
def split_of(index, tiles):
    """With SPLITS, which of its tile's splits this program's ``index``-th piece is."""
    return (index * gl.num_programs(0) + gl.program_id(0)) // tiles


@jit
def piece(index, tiles, steps, STREAM: constexpr, SPLITS: constexpr = 1):
    """This program's ``index``-th piece: the tile, and the first and last (exclusive) of the tile's K steps.

    With SPLITS above 1, every tile's steps are cut into as many runs; all tiles' first runs come first, so that
    programs at work at one time read the same part of K and find each other's operands in L2.
    With STREAM, the tiles beyond the last full wave are one long row of K steps, cut into equal runs, a run a program.
    There are fewer such tiles than programs, so a run is shorter than a tile and touches two at most.
    """
    program = gl.program_id(0)
    programs = gl.num_programs(0)
    tile = index * programs + program
    first = 0
    last = steps
    if SPLITS > 1:
        split = split_of(index, tiles)
        tile = tile % tiles
        first = run_begin(split, SPLITS, steps)
        last = run_begin(split + 1, SPLITS, steps)
    if STREAM:
        waves = tiles // programs
        if index >= waves:
            row = (tiles - waves * programs) * steps
            begin = run_begin(program, programs, row)
            end = run_begin(program + 1, programs, row)
            border = min(end, (begin // steps + 1) * steps)
            start = gl.where(index == waves, begin, border)
            stop = gl.where(index == waves, border, end)
            # A piece may be empty, at the very end too: it has no tile, so any will do.
            tile = min(waves * programs + start // steps, tiles - 1)
            first = start % steps
            last = first + stop - start
    return tile, first, last


@jit
def run_begin(program, programs, row):
    """Where a program's run begins when ``row`` steps are shared out: the first ones get the odd steps, one each."""
    return row // programs * program + min(program, row % programs)


@jit
def run_of(step, programs, row):
    """The program whose run has this step: :func:`run_begin`'s inverse."""
    each = row // programs
    odd = row % programs
    longer = odd * (each + 1)
    return gl.where(step < longer, step // (each + 1), odd + (step - longer) // max(each, 1))


@jit
def add_up_runs(
    acc, tile, first, tiles, steps, partials, counters, OWNER: constexpr, OWNERS: constexpr, LAYOUT: constexpr
):
    """Leaves this run's part of a tile in memory; the last to arrive of the tile's runs adds all up, in order of K.

    The order of the additions does not depend on who is last, so the result is the same bits in every run.
    Returns the sum, and whether this program has it. A program leaves at most two parts: one of a tile that an earlier
    program began, one of a tile that a later one ends.
    """
    ROWS: constexpr = acc.shape[0]
    COLS: constexpr = acc.shape[1]
    program = gl.program_id(0)
    programs = gl.num_programs(0)
    waves = tiles // programs
    row = (tiles - waves * programs) * steps
    shared_tile = tile - waves * programs
    from_program = run_of(shared_tile * steps, programs, row)
    to_program = run_of(shared_tile * steps + steps - 1, programs, row)
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))[:, None]
    cols = gl.arange(0, COLS, gl.SliceLayout(0, LAYOUT))[None, :]
    offsets = rows * COLS + cols
    part = partials + OWNER * (ROWS * COLS)
    place = gl.where(first == 0, 2 * program + 1, 2 * program)
    gl.store(part + place * (OWNERS * ROWS * COLS) + offsets, acc)
    barrier()
    counter = counters + shared_tile * OWNERS + OWNER
    mine = gl.atomic_add(counter, 1, sem="acq_rel") == to_program - from_program
    if mine:
        acc = gl.load(part + (2 * from_program + 1) * (OWNERS * ROWS * COLS) + offsets, cache_modifier=".cg")
        for other in range(from_program + 1, to_program + 1):
            acc += gl.load(part + 2 * other * (OWNERS * ROWS * COLS) + offsets, cache_modifier=".cg")
        gl.store(counter, 0)
    return acc, mine
