"""Exact facts that both exact methods stand on: what may be counted instead of chosen CPU by CPU.

``blocks`` are cores that spans cannot tell apart, ``costs`` what taking k CPUs from them costs, added up by
``minplus`` and ``splits``; ``symmetry`` says what may change places, ``shares`` how even an even split can be, and
``pinning`` turns counts into CPU numbers by the tie rule. A mistake in here would deceive both methods: ``score``,
``verify`` and the tests' brute force, which know nothing of it, are the witnesses against that.
"""
