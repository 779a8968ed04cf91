"""What one run has to answer: the requests not yet remembered, each as a reduction that listens at its taps."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from model.reduce import reduction
from model.taps import Tap
from model.view import Request, View


class Asked:
    """`known`: what is remembered for each of `requests`, None where nothing is. `find`: the tap of a name."""

    def __init__(self, requests: Sequence[Request], known: Mapping[Request, View | None], find: Callable[[str], Tap]):
        self.requests, self.known, self.find = requests, dict(known), find
        self.watchers: dict[Tap, list] = {}  # for a Recorder
        self._pending = {r: reduction(find(r.tap), r) for r, view in self.known.items() if view is None}
        for request, watch in self._pending.items():
            for name in {request.tap, request.against} - {None}:
                self.watch({find(name): [watch]})

    def watch(self, watchers: Mapping[Tap, list]) -> None:
        """More that listens in the same run."""
        for tap, listening in watchers.items():
            self.watchers.setdefault(tap, []).extend(listening)

    @property
    def missing(self) -> dict[str, Tap]:
        """The taps that must fire, by name."""
        return {request.tap: self.find(request.tap) for request in self._pending}

    def taps_where(self, wanted: Callable[[str], bool]) -> frozenset[Tap]:
        """Of all the taps listened to for a request, those whose name is wanted."""
        names = {name for request in self._pending for name in (request.tap, request.against) if name}
        return frozenset(self.find(name) for name in names if wanted(name))

    def measured(self, fired: Collection[Tap]) -> Iterator[tuple[Request, View]]:
        """Between two stages: what those reductions found whose taps have all fired; from then on they are not missing."""
        for request in [r for r in self._pending if all(self.find(n) in fired for n in (r.tap, r.against) if n)]:
            self.known[request] = self._pending.pop(request).view()
            yield request, self.known[request]

    def answers(self) -> list[View]:
        """In the order asked."""
        return [self.known[request] for request in self.requests]
