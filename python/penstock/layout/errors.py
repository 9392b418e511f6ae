"""What the tool says when it can't go on."""


class LayoutError(Exception):
    """A failure that a person can mend: what and where, then what to do next."""

    def __init__(self, what, next=None):
        super().__init__(what)
        self.next = next

    def __str__(self):
        what = super().__str__()
        return f"{what}\n  next: {self.next}" if self.next else what
