"""What the source's analytic model says about the four cases, by arithmetic, and what the source printed.

A. Ching and others, Evaluating Structured I/O Methods for Parallel File Systems: table I (the model), tables II to
IV (the figures). There MB is 2^20 bytes. Everything here is computed from the access patterns alone; where the
arithmetic and the printed table differ, `notes` says so.
"""

import math
from dataclasses import dataclass, field

MIB = 1 << 20
METHODS = ("posix", "sieve", "two-phase", "list", "datatype")
SIEVE_BUFFER = 4 * MIB
TWO_PHASE_BUFFER = 4 * MIB
LIST_REGIONS = 64
# Published edge, and elements of a row, tile and overlap: see examples/*.c.
TILE, OVERLAP, PIXEL = (1024, 768), (270, 128), 3
BLOCK_EDGE, BLOCK_ELEMENT = 600, 4
FLASH_BLOCKS, FLASH_VARIABLES, FLASH_CELLS, FLASH_VALUE = 80, 24, 8**3, 8
HARD_RECORD, HARD_RECORDS = 47_008, 512


def ceil(a, b):
    return -(-a // b)


@dataclass
class Pattern:
    """What one client asks of the file, in bytes."""

    wanted: int  # bytes one client wants
    file_regions: int  # contiguous pieces in the file
    region: int  # bytes of one
    pieces: int  # pieces that are contiguous in memory and file
    extent: int  # first to last byte of one client
    aggregate: int  # first to last byte of all clients
    clients: int
    own: float  # of the bytes a client wants, those in its own file domain (two-phase)
    paper: dict = field(default_factory=dict)
    notes: dict = field(default_factory=dict)

    def model(self, method):
        """Table I. Aggregators are all clients."""
        n = self.wanted
        share = self.aggregate / self.clients
        ops, accessed, resent, region = {
            "posix": (self.pieces, n, 0, self.wanted // self.pieces),
            "sieve": (ceil(self.extent, SIEVE_BUFFER), self.extent, 0, min(SIEVE_BUFFER, self.extent)),
            "two-phase": (
                ceil(self.aggregate, self.clients * TWO_PHASE_BUFFER),
                share,
                n - self.own,
                min(TWO_PHASE_BUFFER, share),
            ),
            "list": (ceil(self.pieces, LIST_REGIONS), n, 0, self.region),
            "datatype": (1, n, 0, self.region),
        }[method]
        return {
            "ops_per_client": ops,
            "accessed_bytes_per_client": round(accessed),
            "resent_bytes_per_client": round(resent),
            "region_bytes": round(region),
        }


def printed(ops, accessed, resent, region):
    """A row of tables II to IV, MB as bytes."""
    return {
        "ops_per_client": round(ops),
        "accessed_bytes_per_client": accessed and round(accessed * MIB),
        "resent_bytes_per_client": resent and round(resent * MIB),
        "region_bytes": round(region),
    }


def overlap(a, b, c, d):
    """Length of [a, b) ∩ [c, d)."""
    return max(0, min(b, d) - max(a, c))


def tile(clients, scale=1.0):
    across, down = {6: (3, 2), 4: (2, 2), 2: (2, 1), 1: (1, 1)}[clients]
    width, height = (round(x * scale) for x in TILE)
    over_x, over_y = (int(x * scale) for x in OVERLAP)
    frame_x = across * width - (across - 1) * over_x
    frame_y = down * height - (down - 1) * over_y
    row, line, frame = frame_x * PIXEL, width * PIXEL, frame_x * frame_y * PIXEL
    own = 0
    for rank in range(clients):
        left, top = rank % across * (width - over_x) * PIXEL, rank // across * (height - over_y)
        first, last = frame * rank // clients, frame * (rank + 1) // clients
        own += sum(overlap(y * row + left, y * row + left + line, first, last) for y in range(top, top + height))
    pattern = Pattern(
        wanted=line * height,
        file_regions=height,
        region=line,
        pieces=height,
        extent=(height - 1) * row + line,
        aggregate=frame,
        clients=clients,
        own=own / clients,
    )
    if scale == 1 and clients == 6:
        pattern.paper = {
            "posix": printed(768, 2.25, None, 3 * 1024),
            "sieve": printed(2, 5.56, None, 4 * MIB),
            "two-phase": printed(1, 1.70, 1.50, round(1.70 * MIB)),
            "list": printed(12, 2.25, None, 3 * 1024),
            "datatype": printed(1, 2.25, None, 3 * 1024),
        }
        pattern.notes = {"two-phase": "source prints 1.50 MB resent, even file domains give 1.56 MB"}
    return pattern


def block(clients, scale=1.0):
    side = round(clients ** (1 / 3))
    assert side**3 == clients, f"{clients} is no cube"
    edge = round(BLOCK_EDGE * scale)
    cut = edge // side
    row, plane = edge * BLOCK_ELEMENT, edge * edge * BLOCK_ELEMENT
    wanted, whole = cut**3 * BLOCK_ELEMENT, edge**3 * BLOCK_ELEMENT
    own = 0
    for rank in range(clients):
        z0, y0, x0 = (cut * (rank // side**d % side) for d in (2, 1, 0))
        first, last = whole * rank // clients, whole * (rank + 1) // clients
        for z in range(max(z0, first // plane), min(z0 + cut, last // plane + 1)):
            for y in range(y0, y0 + cut):
                at = z * plane + y * row + x0 * BLOCK_ELEMENT
                own += overlap(at, at + cut * BLOCK_ELEMENT, first, last)
    pattern = Pattern(
        wanted=wanted,
        file_regions=cut * cut,
        region=cut * BLOCK_ELEMENT,
        pieces=cut * cut,
        extent=(cut - 1) * (plane + row) + cut * BLOCK_ELEMENT,
        aggregate=whole,
        clients=clients,
        own=own / clients,
    )
    rows = {8: (90_000, 103, 412, 103, 26, 77.2, 1408, 1200)}
    rows |= {27: (40_000, 30.5, 274.7, 69, 8, 27.1, 626, 800), 64: (22_500, 12.9, 206.0, 52, 4, 12.1, 352, 300)}
    if clients in rows:
        posix, n, sieved, sieve, phases, resent, lists, region = rows[clients]
        # Of a smaller array: rows of a block go with the square of its edge, bytes with the cube.
        square, cube = scale**2, scale**3
        pattern.paper = {
            "posix": printed(posix * square, n * cube, None, region * scale),
            "sieve": printed(math.ceil(sieve * cube), sieved * cube, None, 4 * MIB),
            "two-phase": printed(math.ceil(phases * cube), n * cube, resent * cube, min(4, n * cube) * MIB),
            "list": printed(math.ceil(lists * square), n * cube, None, region * scale),
            "datatype": printed(1, n * cube, None, region * scale),
        }
    if scale != 1:
        pattern.notes = dict.fromkeys(METHODS, f"source's figures scaled from {BLOCK_EDGE}³ to {edge}³ elements")
    elif clients in rows:
        exact = ceil(posix, LIST_REGIONS)
        if exact != lists:
            pattern.notes["list"] = f"source prints {lists} operations, ⌈{posix} / 64⌉ is {exact}"
        if region != pattern.region:
            for method in ("posix", "list", "datatype"):
                pattern.notes[method] = f"source prints regions of {region} B, arithmetic gives {pattern.region} B"
        pattern.notes["sieve"] = (
            f"source prints {sieved} MB accessed (whole planes), first to last byte is {pattern.extent / MIB:.1f} MB"
        )
    return pattern


def flash(clients, scale=1.0):
    blocks = max(1, int(FLASH_BLOCKS * scale + 0.5))
    variable = blocks * FLASH_CELLS * FLASH_VALUE  # one variable of one client
    wanted, whole = variable * FLASH_VARIABLES, variable * FLASH_VARIABLES * clients
    own = 0
    for rank in range(clients):
        first, last = whole * rank // clients, whole * (rank + 1) // clients
        for v in range(FLASH_VARIABLES):
            at = (v * clients + rank) * variable
            own += overlap(at, at + variable, first, last)
    pattern = Pattern(
        wanted=wanted,
        file_regions=FLASH_VARIABLES,
        region=variable,
        pieces=wanted // FLASH_VALUE,
        extent=(FLASH_VARIABLES - 1) * variable * clients + variable,
        aggregate=whole,
        clients=clients,
        own=own / clients,
    )
    if scale == 1:
        pattern.paper = {
            "posix": printed(983_040, 7.5, None, 8),
            "two-phase": printed(2, 7.5, 7.5 * (clients - 1) / clients, 4 * MIB),
            "list": printed(15_360, 7.5, None, 4 * 1024),
            "datatype": printed(1, 7.5, None, 4 * 1024),
        }
        pattern.notes["sieve"] = "no figures in the source: its file system had no locks"
        for method in ("list", "datatype"):
            pattern.notes[method] = (
                "source prints regions of 4 KB (a block); a client's blocks are adjacent in the file"
            )
    return pattern


def hard(clients, scale=1.0):
    records = max(1, int(HARD_RECORDS * scale + 0.5))
    whole = records * clients * HARD_RECORD
    own = 0
    for rank in range(clients):
        first, last = whole * rank // clients, whole * (rank + 1) // clients
        own += sum(
            overlap(at, at + HARD_RECORD, first, last) for at in range(rank * HARD_RECORD, whole, clients * HARD_RECORD)
        )
    return Pattern(
        wanted=records * HARD_RECORD,
        file_regions=records,
        region=HARD_RECORD,
        pieces=records,
        extent=(records - 1) * clients * HARD_RECORD + HARD_RECORD,
        aggregate=whole,
        clients=clients,
        own=own / clients,
    )


CASES = {"tile": tile, "block": block, "flash": flash, "hard": hard}
